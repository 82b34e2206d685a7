# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet controller: executes the plans of `daemon_set_sync`.

Owns the order of writes: first the revision of the template, then pods, then old revisions, and last the status. A
refused creation ends the reconcile after the status is written; it is repeated with a growing pause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from devcluster.controllers import daemon_facts, daemon_nodes, daemon_pods, daemon_revisions, daemon_set_sync, pod_facts
from devcluster.controllers.caches import BACKOFF, AppCaches
from devcluster.controllers.daemon_set_sync import DaemonSetPlan
from devcluster.controllers.dependents import Dependents, is_namespace_ending
from devcluster.controllers.failure_pauses import FailurePauses
from devcluster.controllers.jobs import each
from devcluster.controllers.recent_writes import RecentWrites
from devcluster.controllers.replica_set_sync import batches
from devcluster.controllers.set_revisions import REVISION_LABEL, collisions_of
from devcluster.resources import CONTROLLER_REVISIONS, DAEMON_SETS
from multikueue.api.objects import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import AlreadyExists, ApiError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import EventRecorder, Reference
from multikueue.kube.runtime.workqueue import WorkQueue

_WORKERS: Final = 4
_GATHER_SECONDS: Final = 0.02  # batches changes of a DaemonSet's pods
_MOST_AT_ONCE: Final = 250


class DaemonSets:
    """The DaemonSet controller of one cluster."""

    def __init__(self, client: KubeClient, caches: AppCaches, *, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._pauses: FailurePauses[tuple[str, int, str]] = FailurePauses()
        owners = caches.daemon_sets
        self._sets = RecentWrites(owners, clock=clock)
        self._pods = Dependents(client, caches.pods, owner=DAEMON_SETS, owners=owners, clock=clock)
        self._revisions = Dependents(client, caches.revisions, owner=DAEMON_SETS, owners=owners, clock=clock)
        self._controller: Controller[Key] = Controller(
            "daemon-sets", self.reconcile, workers=_WORKERS, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        owners.add_handler(lambda change: self._controller.enqueue(change.key))
        caches.nodes.add_handler(self._node_changed)
        self._revisions.follow(self._controller.enqueue)
        self._pods.follow(lambda key: self._controller.queue.add_after(key, _GATHER_SECONDS))

    async def run(self) -> None:
        """Run until cancelled."""
        caches = self._caches
        for informer in (caches.nodes, caches.pods, caches.revisions, caches.daemon_sets):
            await informer.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one DaemonSet."""
        # 1. Load, adopt and release.
        daemon_set = self._sets.object(key)
        if daemon_set is None or "deletionTimestamp" in daemon_set["metadata"]:
            return None
        revisions = await self._revisions.claim(daemon_set)
        pods = await self._pods.claim(daemon_set)
        # 2. Decide.
        history = daemon_revisions.history_of(daemon_set, [await self._with_hash(found) for found in revisions])
        current = await self._current(daemon_set, history)
        if current is None:
            return None
        for duplicate in history.duplicates:
            await self._replace_revision(duplicate, current, pods)
        facts = daemon_facts.facts_of(
            daemon_set,
            pods,
            self._caches.nodes.store.objects(),
            revision=daemon_revisions.hash_of(current),
            now=self._clock.now(),
        )
        held = self._held(daemon_set, facts.pods)
        found = daemon_set_sync.plan(facts, held=held)
        # 3. Act.
        refusal = await self._change_pods(daemon_set, found, revision=facts.revision)
        if refusal is None:
            limit = daemon_set["spec"].get("revisionHistoryLimit", 10)
            used = set(map(daemon_revisions.hash_of, pods))
            for old in daemon_revisions.outdated(history.old, limit=limit, used=used):
                await self._revisions.delete(old)
        await self._write(daemon_set, found.status)
        if refusal is not None and not is_namespace_ending(refusal):
            raise refusal
        times = [*held.values(), *([found.after] if found.after is not None else [])]
        return Result(after=min(times)) if times else None

    async def _with_hash(self, revision: JsonObject) -> JsonObject:
        """The revision with the label that names it to pods."""
        if daemon_revisions.has_hash(revision):
            return revision
        label = {REVISION_LABEL: revision["metadata"]["name"]}
        return await self._revisions.patch(revision, {"metadata": {"labels": label}})

    async def _current(self, daemon_set: JsonObject, history: daemon_revisions.DaemonHistory) -> JsonObject | None:
        """The revision of the template, as stored; None if its name is taken, or nothing more can be created."""
        current = history.current
        if current is not None:
            if current["revision"] < history.number:
                return await self._revisions.patch(current, {"revision": history.number})
            return current
        new = daemon_revisions.new_revision(daemon_set, history.number)
        try:
            return await self._revisions.create(new)
        except AlreadyExists:
            metadata = new["metadata"]
            taken = await self._client.get_object(
                CONTROLLER_REVISIONS, metadata["name"], namespace=metadata["namespace"]
            )
            if taken.get("data") == new["data"]:
                return taken  # of a DaemonSet of the same name that was deleted
            collisions = {"collisionCount": collisions_of(daemon_set) + 1}
            await self._write(daemon_set, {**(daemon_set.get("status") or {}), **collisions})
            return None
        except ApiError as error:
            if is_namespace_ending(error):
                return None
            raise

    async def _replace_revision(self, duplicate: JsonObject, current: JsonObject, pods: Sequence[JsonObject]) -> None:
        """Delete a second revision of the current template, once no pod names it."""
        wanted, label = daemon_revisions.hash_of(current), daemon_revisions.hash_of(duplicate)
        for pod in pods:
            if label != wanted and daemon_revisions.hash_of(pod) == label:
                await self._pods.patch(pod, {"metadata": {"labels": {REVISION_LABEL: wanted}}})
        await self._revisions.delete(duplicate)

    def _held(self, daemon_set: JsonObject, pods: Mapping[str, Sequence[JsonObject]]) -> dict[str, float]:
        """The nodes whose failed pods are not deleted yet, and the seconds until they are."""
        now = self._clock.monotonic()
        left = {
            node: self._pauses.left(_pause(daemon_set, node), now)
            for node, found in pods.items()
            if any(pod_facts.phase(pod) == "Failed" and not pod_facts.deleting(pod) for pod in found)
        }
        return {node: seconds for node, seconds in left.items() if seconds is not None}

    async def _change_pods(self, daemon_set: JsonObject, found: DaemonSetPlan, *, revision: str) -> ApiError | None:
        """Create and delete the pods of a plan; returns why a pod could not be created."""
        now = self._clock.monotonic()
        for node, pod in found.failed:
            self._pauses.begin(_pause(daemon_set, node), now)
            text = f"Found failed daemon pod {_name(pod)} on node {node}, will try to kill it"
            self._emit(daemon_set, "Warning", "FailedDaemonPod", text)
        for node, pod in found.succeeded:
            text = f"Found succeeded daemon pod {_name(pod)} on node {node}, will try to delete it"
            self._emit(daemon_set, "Normal", "SucceededDaemonPod", text)
        refusal = await self._create(daemon_set, found.create[:_MOST_AT_ONCE], revision=revision)

        async def delete(pod: JsonObject) -> None:
            if await self._pods.delete(pod):
                self._emit(daemon_set, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

        ended = [pod for _, pod in (*found.failed, *found.succeeded)]
        await each([*ended, *found.delete][:_MOST_AT_ONCE], delete)
        return refusal

    async def _create(self, daemon_set: JsonObject, nodes: Sequence[str], *, revision: str) -> ApiError | None:
        """Create the pods of these nodes in growing batches, until one is refused; returns why."""
        refused: list[ApiError] = []

        async def create(node: str) -> None:
            try:
                pod = await self._pods.create(daemon_pods.pod_for(daemon_set, node, revision=revision))
            except ApiError as error:
                refused.append(error)
                if not is_namespace_ending(error):
                    self._emit(daemon_set, "Warning", "FailedCreate", f"Error creating: {error.message}")
                return
            self._emit(daemon_set, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

        begun = 0
        for size in batches(len(nodes)):
            await each(nodes[begun : begun + size], create)
            begun += size
            if refused:
                return refused[0]
        return None

    async def _write(self, daemon_set: JsonObject, status: JsonObject) -> None:
        if status == (daemon_set.get("status") or {}):
            return
        metadata = daemon_set["metadata"]
        body = {**daemon_set, "apiVersion": DAEMON_SETS.api_version, "kind": DAEMON_SETS.kind, "status": status}
        try:
            stored = await self._client.replace(
                DAEMON_SETS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
        except NotFound:
            return  # deleted meanwhile
        self._sets.put(orjson.loads(stored))

    def _emit(self, daemon_set: JsonObject, type_: str, reason: str, message: str) -> None:
        about = Reference.of(daemon_set, api_version=DAEMON_SETS.api_version, kind=DAEMON_SETS.kind)
        self._recorder.event(about, type_, reason, message)

    def _node_changed(self, change: Change) -> None:
        """Reconcile all DaemonSets when a node comes, goes, or changes in what they ask of it."""
        rows = self._caches.daemon_sets.store.list()
        if not rows:
            return
        old, new = change.old, change.new
        if old is not None and new is not None and not daemon_nodes.differ(old.object(), new.object()):
            return
        for row in rows:
            self._controller.enqueue(row.key)


def _pause(daemon_set: JsonObject, node: str) -> tuple[str, int, str]:
    """The key of a pause; a new generation of the DaemonSet starts again."""
    generation = (daemon_set.get("status") or {}).get("observedGeneration", 0)
    return (daemon_set["metadata"]["uid"], generation, node)


def _name(pod: JsonObject) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
