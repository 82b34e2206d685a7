# SPDX-License-Identifier: Apache-2.0
"""The disruption controller: counts the pods of PodDisruptionBudgets, which evictions use up.

Owns the status of budgets. It follows their pods, not the scale of the controllers, as a real one does; and it takes
back the condition of pods that were to be evicted and stayed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster import disruption_budgets
from devcluster.controllers import disruption_sync
from devcluster.controllers.caches import BACKOFF, BY_NAMESPACE, AppCaches, namespaces
from devcluster.controllers.controller_scales import ControllerScales, UnknownScale
from devcluster.controllers.disruption_sync import PodExpectation
from devcluster.controllers.metadata_watch import MetadataWatch
from devcluster.resources import DISRUPTION_BUDGETS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS, Resource
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import EventRecorder, Reference
from multikueue.kube.runtime.workqueue import WorkQueue

NAME: Final = "controllermanager"
"""The reporter of its events, which a real cluster names so."""
_GATHER_SECONDS: Final = 0.02  # batches the pods of a controller
_TARGET: Final = f'"{disruption_budgets.TARGET}"'.encode()


class Disruptions:
    """The disruption controller of one cluster."""

    def __init__(
        self, client: KubeClient, caches: AppCaches, watch: MetadataWatch, *, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._scales = ControllerScales(client, caches, watch)
        self._budgets = Informer(
            client, DISRUPTION_BUDGETS, indexers={BY_NAMESPACE: namespaces}, clock=clock, backoff=BACKOFF
        )
        self._gone: dict[Key, set[str]] = {}
        """By budget, the pods that were deleted since it was counted: another may have the name by now."""
        queue: WorkQueue[tuple[Resource, Key]] = WorkQueue(clock=clock, backoff=BACKOFF)
        self._controller = Controller("disruptions", self.reconcile, queue=queue, clock=clock)
        self._budgets.add_handler(lambda change: self._controller.enqueue((DISRUPTION_BUDGETS, change.key)))
        caches.pods.add_handler(self._pod_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses."""
        return (self._budgets,)

    async def run(self) -> None:
        """Run until cancelled."""
        caches = self._caches
        for informer in (caches.pods, caches.deployments, caches.replica_sets, caches.stateful_sets, self._budgets):
            await informer.synced.wait()
        await self._controller.run()

    async def reconcile(self, item: tuple[Resource, Key]) -> Result | None:
        """Count the pods of one budget, or look at the condition of one pod."""
        resource, key = item
        return await (self._clean(key) if resource is PODS else self._count(key))

    async def _count(self, key: Key) -> Result | None:
        budget = self._budgets.store.object(key)
        if budget is None:
            self._gone.pop(key, None)
            return None
        pods = [
            pod
            for pod in self._caches.pods.store.objects(BY_NAMESPACE, key.namespace)
            if disruption_budgets.selects(budget, pod["metadata"].get("labels") or {})
        ]
        if not pods:
            self._emit(budget, "Normal", "NoPods", "No matching pods found")
        now = self._clock.now()
        try:
            expected = await self._expected(budget, pods)
        except (UnknownScale, BadInput) as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._emit(budget, "Warning", "CalculateExpectedPodCountFailed", message)
            await self._write(budget, disruption_sync.failed(budget, str(error), now=now))
            return None
        gone = self._gone.pop(key, set())
        found = disruption_sync.plan(budget, pods, expected, gone=gone, now=now)
        for pod in found.overdue:
            # A real controller names the namespace twice, and not the budget.
            message = f"Pod was expected by PDB {key.namespace}/{key.namespace} to be deleted but it wasn't"
            self._emit_pod(pod, "NotDeleted", message)
        await self._write(budget, found.status)
        return Result(after=found.after) if found.after is not None else None

    async def _expected(self, budget: JsonObject, pods: list[JsonObject]) -> PodExpectation:
        scale = await self._scales.total(pods) if disruption_sync.needs_scale(budget) else 0
        return disruption_sync.expectation(budget, matching=len(pods), scale=scale)

    async def _write(self, budget: JsonObject, status: JsonObject) -> None:
        """Write the status of this version of the budget: an eviction may have used it up meanwhile."""
        if status == (budget.get("status") or {}):
            return
        metadata = budget["metadata"]
        kind = {"apiVersion": DISRUPTION_BUDGETS.api_version, "kind": DISRUPTION_BUDGETS.kind}
        body = {**budget, **kind, "status": status}
        try:
            await self._client.replace(
                DISRUPTION_BUDGETS, metadata["name"], body, namespace=metadata["namespace"], subresource="status"
            )
        except NotFound:
            return  # deleted meanwhile

    async def _clean(self, key: Key) -> Result | None:
        """Take back the condition DisruptionTarget of a pod that has stayed."""
        pod = self._caches.pods.store.object(key)
        now = self._clock.now()
        left = disruption_sync.stale_after(pod, now=now) if pod is not None else None
        if pod is None or left is None:
            return None
        if left > 0:
            return Result(after=left)
        try:
            await self._client.patch(
                PODS,
                key.name,
                _cleaned(pod, now),
                namespace=key.namespace,
                kind=PatchKind.STRATEGIC,
                subresource="status",
            )
        except (NotFound, Conflict):
            return None  # deleted, or replaced by another pod of that name
        return None

    def _pod_changed(self, change: Change) -> None:
        if change.new is not None and _TARGET in change.new.raw:
            self._controller.enqueue((PODS, change.key))
        budgets = self._budgets.store.list(BY_NAMESPACE, change.key.namespace)
        if not budgets:
            return
        # A budget that no longer selects the pod counts it no longer, which a real controller notices later.
        rows = [row for row in (change.new, change.old) if row is not None]
        current, *former = (self._of(row, budgets) for row in rows)
        for key in {*current, *(key for keys in former for key in keys)}:
            if change.new is None:
                self._gone.setdefault(key, set()).add(change.key.name)
            self._controller.queue.add_after((DISRUPTION_BUDGETS, key), _GATHER_SECONDS)
        if len(current) > 1 and change.new is not None:
            message = (
                f'Pod "{change.key.namespace}"/"{change.key.name}" matches multiple PodDisruptionBudgets.  '
                f'Chose "{current[0].name}" arbitrarily.'
            )
            self._emit_pod(change.new.object(), "MultiplePodDisruptionBudgets", message)

    def _of(self, pod: Row, budgets: list[Row]) -> list[Key]:
        """The budgets that select the pod."""
        labels = pod.labels
        return [row.key for row in budgets if disruption_budgets.selects(row.object(), labels)]

    def _emit(self, budget: JsonObject, type_: str, reason: str, message: str) -> None:
        about = Reference.of(budget, api_version=DISRUPTION_BUDGETS.api_version, kind=DISRUPTION_BUDGETS.kind)
        self._recorder.event(about, type_, reason, message)

    def _emit_pod(self, pod: JsonObject, reason: str, message: str) -> None:
        about = Reference.of(pod, api_version=PODS.api_version, kind=PODS.kind)
        self._recorder.event(about, "Warning", reason, message)


def _cleaned(pod: JsonObject, now: datetime) -> JsonObject:
    """The change that takes the condition back; the uid keeps it from another pod of that name."""
    metadata = pod["metadata"]
    condition = {
        "type": disruption_budgets.TARGET,
        "status": "False",
        "observedGeneration": metadata.get("generation", 0),
        "lastTransitionTime": format_time(now),
        "reason": None,
        "message": None,
    }
    return {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
