# SPDX-License-Identifier: Apache-2.0
"""The virtual kubelet of all virtual nodes of one cluster.

Watches the pods bound to its nodes, advances each one with `lifecycle`, and writes the changes: one status patch per
visible transition, one delete at the end. After a failed write (conflict, server unavailable) the transition is decided
again. Lifecycles are kept by pod uid, and read from the pod status for pods of an earlier process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import pairwise
from typing import Final

import anyio

from devcluster.kubelet import behaviour, journal, lifecycle, pod_status
from devcluster.kubelet.containers.netexec import ExitRequest
from devcluster.kubelet.lifecycle import LifecycleEvent, LifecycleFacts, LifecycleState, PodLifecycle, ProgramExit
from devcluster.kubelet.pod_addresses import PodAddresses
from devcluster.kubelet.pod_network import RunningPods, exit_moment
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import PODS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time, parse_time
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

log = logging.getLogger(__name__)

_BY_WORK: Final = "work"
_BY_ADDRESS: Final = "address"
_WORKERS: Final = 16  # concurrent writes; with one the API server would be idle in between
# A short cap: a pod must not be late by minutes after an outage of its API server.
_BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=2.0, jitter=0.5)

Record = Callable[[journal.JournalEntry], None]


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
        self._lifecycles: dict[str, PodLifecycle] = {}
        self._recorded: dict[str, set[tuple[str, int]]] = {}
        self._addresses = PodAddresses()
        self._exits: dict[str, ProgramExit] = {}
        self.running_pods = RunningPods(
            find_pod=self.find_pod, by_address=self._at_address, ask_to_exit=self._ask_to_exit
        )
        """The interface of the pod network to the pods."""
        self._pods = Informer(
            client,
            PODS,
            field_selector="spec.nodeName!=",
            indexers={_BY_WORK: _work_index, _BY_ADDRESS: _address_index},
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
            # Addresses of pods of an earlier process must be known before new ones are assigned.
            await self._pods.synced.wait()
            tasks.start_soon(self._controller.run)

    def find_pod(self, key: Key) -> tuple[JsonObject, PodLifecycle] | None:
        """A pod and its lifecycle; None if it is not on one of these nodes."""
        pod = self._pods.store.object(key)
        if pod is None or pod["spec"].get("nodeName") not in self._nodes:
            return None
        return pod, self._lifecycles.get(pod["metadata"]["uid"]) or pod_status.lifecycle_of(pod)

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one pod with the current time."""
        # 1. Load. Deleted pods, pods of other nodes and ended pods without a deletion timestamp need no change.
        pod = self._pods.store.object(key)
        if pod is None or pod["spec"].get("nodeName") not in self._nodes:
            return None
        uid: str = pod["metadata"]["uid"]
        before = self._lifecycles.get(uid) or pod_status.lifecycle_of(pod)
        deleted = pod["metadata"].get("deletionTimestamp")
        if before.state is LifecycleState.REMOVED or (before.state is LifecycleState.ENDED and deleted is None):
            self._lifecycles[uid] = before
            return None
        # 2. Gather facts.
        now = self._clock.now()
        try:
            plan = behaviour.behaviour_of(pod)
        except BadInput as error:
            await self._reject(pod, str(error), now=now)
            return None
        facts = LifecycleFacts(
            now=now,
            behaviour=plan,
            failed_before=plan.fail_once and self._failed_before(pod),
            kill_at=parse_time(deleted) if deleted is not None else None,
            exit=self._exits.get(uid),
        )
        # 3. Decide.
        steps = _advance(before, facts, deleted=deleted is not None)
        life = steps[-1]
        # 4. Act, then store the result: after a failed write the transition is decided again.
        for earlier, later in pairwise(steps):
            self._record_transition(pod, earlier, later, now=now)
        if _visible(before, life) or (life.running and deleted is None and not pod_status.shows_spec(pod)):
            address = self._address(pod, life)
            await self._patch(pod, pod_status.status_of(pod, life, now=now, address=address))
        if life.state is LifecycleState.REMOVED:
            await self._delete(pod)
        self._remember(key, uid, life)
        requested_exit = self._exits.get(uid)
        moments = [life.due, requested_exit.at if requested_exit is not None else None]
        due = min((moment for moment in moments if moment is not None), default=None)
        return Result(after=(due - self._clock.now()).total_seconds()) if due is not None else None

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._lifecycles.pop(change.row.uid, None)
            self._recorded.pop(change.row.uid, None)
            self._exits.pop(change.row.uid, None)
            self._addresses.release(change.row.uid)
        else:
            if not self._pods.synced.is_set():
                self._addresses.learn(change.new.object())
            self._controller.enqueue(change.key)

    def _at_address(self, address: str) -> Iterable[Key]:
        return [row.key for row in self._pods.store.list(_BY_ADDRESS, address)]

    def _ask_to_exit(self, key: Key, uid: str, request: ExitRequest) -> None:
        life = self._lifecycles.get(uid)
        if life is not None and uid not in self._exits:
            after = exit_moment(request)
            self._exits[uid] = ProgramExit(request.code, self._clock.now() + after, life.restarts)
            self._controller.queue.add_after(key, after.total_seconds())

    def _address(self, pod: JsonObject, life: PodLifecycle) -> str:
        """The pod's address; empty for one that never ran."""
        if life.started_at is None:
            return ""
        if pod["spec"].get("hostNetwork"):
            return pod_status.LOOPBACK
        row = self._pods.store.get(Key(pod["metadata"]["namespace"], pod["metadata"]["name"]))
        if row is None or row.uid != pod["metadata"]["uid"]:
            return ""  # deleted meanwhile; an address assigned now would never be released
        return self._addresses.address_of(pod)

    def _remember(self, key: Key, uid: str, life: PodLifecycle) -> None:
        row = self._pods.store.get(key)
        if row is not None and row.uid == uid:  # otherwise deleted during the write: no event would remove it
            self._lifecycles[uid] = life
            requested_exit = self._exits.get(uid)
            if requested_exit is not None and (requested_exit.restarts != life.restarts or not life.running):
                del self._exits[uid]  # done

    def _failed_before(self, pod: JsonObject) -> bool:
        work, uid = behaviour.work_of(pod), pod["metadata"]["uid"]
        others = self._pods.store.objects(_BY_WORK, work)
        return any(other["status"].get("phase") == "Failed" for other in others if other["metadata"]["uid"] != uid)

    async def _reject(self, pod: JsonObject, message: str, *, now: datetime) -> None:
        key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        log.warning("pod rejected cluster=%s pod=%s problem=%s", self._cluster, key, message)
        if (pod.get("status") or {}).get("phase") != "Failed":
            await self._patch(pod, pod_status.refusal(pod, message, now=now))
        if "deletionTimestamp" in pod["metadata"]:
            await self._delete(pod)
        self._remember(key, pod["metadata"]["uid"], PodLifecycle(state=LifecycleState.ENDED))

    async def _patch(self, pod: JsonObject, status: JsonObject) -> None:
        metadata = pod["metadata"]
        # With the uid the server answers 409 if the pod was replaced by another one of that name.
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
            return  # force deleted; the watch event removes it

    async def _delete(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_seconds=0
            )
        except (NotFound, Conflict):
            return  # deleted, or replaced by another pod of that name

    def _record_transition(self, pod: JsonObject, before: PodLifecycle, life: PodLifecycle, *, now: datetime) -> None:
        if life.running and not before.running:
            self._write_entry(pod, journal.STARTED, now=now, life=life)
        if before.running and not life.running:
            event = journal.STOPPED if life.state is LifecycleState.REMOVED else journal.ENDED
            self._write_entry(pod, event, now=now, life=life)

    def _write_entry(self, pod: JsonObject, event: str, *, now: datetime, life: PodLifecycle) -> None:
        # After a failed write the transition is decided again, but is recorded once.
        recorded = self._recorded.setdefault(pod["metadata"]["uid"], set())
        if self._record is not None and (event, life.restarts) not in recorded:
            recorded.add((event, life.restarts))
            code = None if event == journal.STARTED else life.exit_code
            self._record(self._entry(pod, event, now=now, exit_code=code))

    def _entry(self, pod: JsonObject, event: str, *, now: datetime, exit_code: int | None) -> journal.JournalEntry:
        owner = controller_of(pod)
        return journal.JournalEntry(
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


def _advance(life: PodLifecycle, facts: LifecycleFacts, *, deleted: bool) -> list[PodLifecycle]:
    """The lifecycle and its successors up to now."""
    steps = [life]
    if life.state is LifecycleState.WAITING and not deleted:
        steps.append(lifecycle.advance(life, LifecycleEvent.BIND, facts))
    if deleted:
        steps.append(lifecycle.advance(life, LifecycleEvent.DELETE, facts))
    requested_exit = facts.exit
    if (
        requested_exit is not None
        and requested_exit.at <= facts.now
        and steps[-1].state in (LifecycleState.STARTING, LifecycleState.READY)
    ):
        steps.append(lifecycle.advance(steps[-1], LifecycleEvent.EXIT, facts))
    while (due := steps[-1].due) is not None and due <= facts.now:
        steps.append(lifecycle.advance(steps[-1], LifecycleEvent.DUE, facts))
    return steps


def _visible(before: PodLifecycle, life: PodLifecycle) -> bool:
    if life.state is LifecycleState.REMOVED:
        return before.state not in (LifecycleState.ENDED, LifecycleState.WAITING, LifecycleState.NOT_PULLED)
    if life.state is LifecycleState.STOPPING:
        return False  # clients see the deletion timestamp
    return (life.state, life.restarts) != (before.state, before.restarts)


def _address_index(pod: JsonObject) -> Iterable[str]:
    address = (pod.get("status") or {}).get("podIP")
    return (address,) if isinstance(address, str) else ()


def _work_index(pod: JsonObject) -> Iterable[str]:
    return (behaviour.work_of(pod),)
