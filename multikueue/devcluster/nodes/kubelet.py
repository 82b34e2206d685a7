# SPDX-License-Identifier: Apache-2.0
"""The virtual kubelet of all virtual nodes of one cluster.

Owns following the pods that are bound to its nodes, driving each through `lifecycle`, and writing what changes: one
status patch per transition that a client could see, one delete at the end. A pod that is written and then fails to be
(conflict, server away) is decided anew, so nothing depends on a write arriving. Lives are kept per pod uid, and read
back from the API for pods that another process ran before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import pairwise
from typing import Final

import anyio

from multikueue.api.meta import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time, parse_time
from multikueue.devcluster.nodes import behaviour, journal, lifecycle, pod_status
from multikueue.devcluster.nodes.lifecycle import Event, Facts, Life, State
from multikueue.kube.client import KubeClient, PatchKind
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.informer import Change, Informer
from multikueue.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_BY_WORK: Final = "work"
_WORKERS: Final = 16  # writes in flight; one at a time would leave the API server idle between two
# A pod must not be late by minutes because its API server was away for one.
_BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=2.0, jitter=0.5)

Record = Callable[[journal.Entry], None]


class VirtualKubelet:
    """Runs the pods of the given nodes of one cluster."""

    def __init__(
        self, client: KubeClient, *, cluster: str, nodes: Iterable[str], clock: Clock, record: Record | None = None
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._nodes = frozenset(nodes)
        self._clock = clock
        self._record = record
        self._lives: dict[str, Life] = {}
        self._recorded: dict[str, set[tuple[str, int]]] = {}
        self._pods = Informer(
            client,
            PODS,
            field_selector="spec.nodeName!=",
            indexers={_BY_WORK: _work_index},
            clock=clock,
            backoff=_BACKOFF,
        )
        self._pods.add_handler(self._changed)
        self._controller: Controller[Key] = Controller(
            "virtual-kubelet",
            self.reconcile,
            workers=_WORKERS,
            queue=WorkQueue(clock=clock, backoff=_BACKOFF),
            clock=clock,
        )

    async def run(self) -> None:
        """Run pods until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pods.run)
            tasks.start_soon(self._controller.run)

    def story(self, key: Key) -> tuple[JsonObject, Life] | None:
        """A pod and its life; None for a pod that is not here."""
        pod = self._pods.store.object(key)
        if pod is None or pod["spec"].get("nodeName") not in self._nodes:
            return None
        return pod, self._lives.get(pod["metadata"]["uid"]) or pod_status.life_of(pod)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one pod up to date with its time."""
        # 1. Load. A pod that is gone, or is not ours, or has ended and was not asked to go, needs nothing.
        pod = self._pods.store.object(key)
        if pod is None or pod["spec"].get("nodeName") not in self._nodes:
            return None
        uid: str = pod["metadata"]["uid"]
        before = self._lives.get(uid) or pod_status.life_of(pod)
        deleted = pod["metadata"].get("deletionTimestamp")
        if before.state is State.REMOVED or (before.state is State.ENDED and deleted is None):
            self._lives[uid] = before
            return None
        # 2. Gather facts.
        now = self._clock.now()
        try:
            plan = behaviour.behaviour_of(pod)
        except BadInput as error:
            await self._refuse(pod, str(error), now=now)
            return None
        facts = Facts(
            now=now,
            behaviour=plan,
            failed_before=plan.fail_once and self._failed_before(pod),
            kill_at=parse_time(deleted) if deleted is not None else None,
        )
        # 3. Decide.
        lives = _advance(before, facts, deleted=deleted is not None)
        life = lives[-1]
        # 4. Act, then remember: what could not be written is decided again.
        for earlier, later in pairwise(lives):
            self._note(pod, earlier, later, now=now)
        if _visible(before, life):
            await self._patch(pod, pod_status.status_of(pod, life, now=now))
        if life.state is State.REMOVED:
            await self._delete(pod)
        self._remember(key, uid, life)
        return Result(after=(life.due - self._clock.now()).total_seconds()) if life.due is not None else None

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._lives.pop(change.row.uid, None)
            self._recorded.pop(change.row.uid, None)
        else:
            self._controller.enqueue(change.key)

    def _remember(self, key: Key, uid: str, life: Life) -> None:
        row = self._pods.store.get(key)
        if row is not None and row.uid == uid:  # else its end was seen while we wrote, and nobody would forget it
            self._lives[uid] = life

    def _failed_before(self, pod: JsonObject) -> bool:
        work, uid = behaviour.work_of(pod), pod["metadata"]["uid"]
        others = self._pods.store.objects(_BY_WORK, work)
        return any(other["status"].get("phase") == "Failed" for other in others if other["metadata"]["uid"] != uid)

    async def _refuse(self, pod: JsonObject, message: str, *, now: datetime) -> None:
        key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        log.warning("%s: pod %s: %s", self._cluster, key, message)
        if (pod.get("status") or {}).get("phase") != "Failed":
            await self._patch(pod, pod_status.refusal(pod, message, now=now))
        if "deletionTimestamp" in pod["metadata"]:
            await self._delete(pod)
        self._remember(key, pod["metadata"]["uid"], Life(state=State.ENDED))

    async def _patch(self, pod: JsonObject, status: JsonObject) -> None:
        metadata = pod["metadata"]
        # With the uid a pod of the same name that was made since is left alone: the server answers 409.
        body = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self._client.patch(
                PODS,
                metadata["name"],
                body,
                namespace=metadata["namespace"],
                kind=PatchKind.STRATEGIC,
                subresource="status",
            )
        except NotFound:
            return  # deleted by force; the watch will say so

    async def _delete(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_seconds=0
            )
        except (NotFound, Conflict):
            return  # gone, or another pod of that name

    def _note(self, pod: JsonObject, before: Life, life: Life, *, now: datetime) -> None:
        if life.running and not before.running:
            self._tell(pod, journal.STARTED, now=now, life=life)
        if before.running and not life.running:
            event = journal.STOPPED if life.state is State.REMOVED else journal.ENDED
            self._tell(pod, event, now=now, life=life)

    def _tell(self, pod: JsonObject, event: str, *, now: datetime, life: Life) -> None:
        # What could not be written is decided again; it still happened once.
        told = self._recorded.setdefault(pod["metadata"]["uid"], set())
        if self._record is not None and (event, life.restarts) not in told:
            told.add((event, life.restarts))
            code = None if event == journal.STARTED else life.exit_code
            self._record(self._entry(pod, event, now=now, exit_code=code))

    def _entry(self, pod: JsonObject, event: str, *, now: datetime, exit_code: int | None) -> journal.Entry:
        owner = behaviour.controller_of(pod)
        return journal.Entry(
            time=format_time(now),
            cluster=self._cluster,
            event=event,
            namespace=pod["metadata"]["namespace"],
            pod=pod["metadata"]["name"],
            uid=pod["metadata"]["uid"],
            node=pod["spec"]["nodeName"],
            owner=f"{owner['kind']}/{owner['name']}" if owner is not None else "",
            exit_code=exit_code,
        )


def _advance(life: Life, facts: Facts, *, deleted: bool) -> list[Life]:
    """The life so far and what it becomes, step by step, up to now."""
    lives = [life]
    if life.state is State.WAITING and not deleted:
        lives.append(lifecycle.advance(life, Event.BIND, facts))
    if deleted:
        lives.append(lifecycle.advance(life, Event.DELETE, facts))
    while (due := lives[-1].due) is not None and due <= facts.now:
        lives.append(lifecycle.advance(lives[-1], Event.DUE, facts))
    return lives


def _visible(before: Life, life: Life) -> bool:
    if life.state is State.REMOVED:
        return before.state not in (State.ENDED, State.WAITING)
    if life.state is State.STOPPING:
        return False  # a client sees the deletion timestamp
    return (life.state, life.restarts) != (before.state, before.restarts)


def _work_index(pod: JsonObject) -> Iterable[str]:
    return (behaviour.work_of(pod),)
