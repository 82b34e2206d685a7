# SPDX-License-Identifier: Apache-2.0
"""The Workload reconciler: facts from the caches, one decision, its writes.

Owns which changes concern which Workload. The rules are `workload_decision`'s; quota is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from manager.caches import CLUSTER_QUEUE_INDEX, OWNER_INDEX, PRIORITY_CLASS_INDEX, QUEUE_INDEX, owner_term
from manager.conditions import conditions_of
from manager.context import ManagerContext
from manager.reconcilers import workload_decision
from manager.reconcilers.workload_decision import Decision
from manager.reconcilers.workload_facts import QueueFacts, WorkloadFacts, gates_of
from manager.views import View
from manager.workload_status import Status
from multikueue.api.constants import JOB_UID_LABEL, WORKLOAD_PRIORITY_CLASS_KIND
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS, Resource
from multikueue.core import conditions
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.engine.engine import Engine
from multikueue.engine.settings import PodsReady
from multikueue.integrations.registry import Registry
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.events import Reference
from multikueue.kube.informer import Change
from multikueue.kube.store import Row


class WorkloadReconciler:
    """Brings every Workload along its life."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        registry: Registry,
        pods_ready: PodsReady | None,
        engine: Callable[[], Engine],
        workers: int = 10,
    ) -> None:
        """`engine` tells whether a ClusterQueue can admit, and why a workload was not looked at."""
        self._context = context
        self._registry = registry
        self._pods_ready = pods_ready
        self._engine = engine
        self._workloads = context.caches.view(WORKLOADS)
        self._local_queues = context.caches.view(LOCAL_QUEUES)
        self._cluster_queues = context.caches.view(CLUSTER_QUEUES)
        retention = context.configuration.object_retention_policies.workloads
        self._retention = _seconds(retention.after_finished)
        self._deactivated_retention = _seconds(retention.after_deactivated_by_kueue)
        self.controller: Controller[Key] = Controller(
            "workload", self.reconcile, workers=workers, clock=context.clock, metrics=context.metrics.controllers
        )

    def attach(self) -> None:
        """Follow Workloads and what their queues say."""
        caches = self._context.caches
        caches.subscribe(WORKLOADS, lambda change: self.controller.enqueue(change.key))
        caches.subscribe(LOCAL_QUEUES, self._local_queue_changed)
        caches.subscribe(CLUSTER_QUEUES, self._cluster_queue_changed)
        caches.subscribe(WORKLOAD_PRIORITY_CLASSES, lambda change: self._enqueue(PRIORITY_CLASS_INDEX, change.key.name))
        for integration in self._registry:
            caches.subscribe(integration.resource, partial(self._job_gone, integration.resource))

    def _local_queue_changed(self, change: Change) -> None:
        if not _counts_only(self._local_queues, change):
            self._enqueue(QUEUE_INDEX, str(change.key))

    def _cluster_queue_changed(self, change: Change) -> None:
        if _counts_only(self._cluster_queues, change):
            return
        self._enqueue(CLUSTER_QUEUE_INDEX, change.key.name)
        for queue in self._local_queues.indexed(CLUSTER_QUEUE_INDEX, change.key.name):
            self._enqueue(QUEUE_INDEX, str(queue))

    def _job_gone(self, kind: Resource, change: Change) -> None:
        if change.new is None:
            term = owner_term(
                api_version=kind.api_version, kind=kind.kind, namespace=change.key.namespace, name=change.key.name
            )
            self._enqueue(OWNER_INDEX, term)

    def _enqueue(self, index: str, value: str) -> None:
        for key in self._workloads.indexed(index, value):
            self.controller.enqueue(key)

    async def reconcile(self, key: Key) -> Result | None:
        """One look at one Workload."""
        workload = self._context.statuses.current(key)
        if workload is None:
            return None
        await self._follow_class(workload)
        uid = workload["metadata"]["uid"]
        decision: Decision | None = None

        def change(status: Status) -> Status:
            nonlocal decision
            decision = workload_decision.decide(
                self._facts(workload), status, now=self._context.clock.now(), random=self._context.random
            )
            return decision.status

        written = await self._context.statuses.write(key, change, uid=uid)
        if written is None or decision is None:
            return None
        for note in decision.notes:
            self._context.recorder.event(Reference.of(written), note.type, note.reason, note.message)
        if decision.deactivate:
            await self._deactivate(written)
        if decision.delete:
            await self._delete(written)
        if decision.delete_job:
            await self._delete_job(written)
        return None if decision.revisit is None else Result(after=decision.revisit)

    def _facts(self, workload: JsonObject) -> WorkloadFacts:
        metadata, spec = workload["metadata"], workload["spec"]
        key = Key(metadata["namespace"], metadata["name"])
        queue_name = spec.get("queueName") or ""
        local_queue = self._local_queues.object(Key(key.namespace, queue_name)) if queue_name else None
        admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
        cluster_name = (
            admission.get("clusterQueue") or ((local_queue or {}).get("spec") or {}).get("clusterQueue") or ""
        )
        cluster_queue = self._cluster_queues.object(Key("", cluster_name)) if cluster_name else None
        return WorkloadFacts(
            key=key,
            uid=metadata["uid"],
            created=parse_time(metadata["creationTimestamp"]),
            active=spec.get("active") is not False,
            deleting="deletionTimestamp" in metadata,
            owned=bool(metadata.get("ownerReferences")),
            owner_gone=self._owner_gone(workload),
            queue_name=queue_name,
            gated_by=gates_of(workload),
            maximum_execution_seconds=spec.get("maximumExecutionTimeSeconds"),
            local_queue=None if local_queue is None else QueueFacts.of(local_queue),
            cluster_queue=None
            if cluster_queue is None
            else QueueFacts.of(cluster_queue, active=self._engine().cluster_queue_state(cluster_name).active),
            cluster_queue_name=cluster_name,
            pods_ready=self._pods_ready,
            retention_seconds=self._retention,
            deactivated_retention_seconds=self._deactivated_retention,
            bypassed=self._engine().bypassed(key),
        )

    def _owner_gone(self, workload: JsonObject) -> bool:
        """Whether it stood for a job that is no more, and nothing else will take it away."""
        metadata = workload["metadata"]
        owners = metadata.get("ownerReferences") or ()
        was_owned = bool(owners) or JOB_UID_LABEL in (metadata.get("labels") or {})
        if not was_owned or (owners and "deletionTimestamp" not in metadata):
            return False
        for owner in owners:
            integration = self._registry.for_kind(owner["apiVersion"], owner["kind"])
            if integration is None:
                return False  # a kind we do not follow: nobody here can say whether it is gone
            job = self._context.caches.view(integration.resource).get(Key(metadata["namespace"], owner["name"]))
            if job is not None and job.uid == owner["uid"]:
                return False
        return True

    async def _follow_class(self, workload: JsonObject) -> None:
        """Give it the value that its WorkloadPriorityClass has now (`docs/spec/kueue-api.md §1.11`)."""
        reference: JsonObject = workload["spec"].get("priorityClassRef") or {}
        if reference.get("kind") != WORKLOAD_PRIORITY_CLASS_KIND:
            return
        found = self._context.caches.view(WORKLOAD_PRIORITY_CLASSES).object(Key("", reference["name"]))
        if found is None or found.get("value", 0) == workload["spec"].get("priority"):
            return
        metadata = workload["metadata"]
        try:
            answer = await self._context.client.patch(
                WORKLOADS,
                metadata["name"],
                {"spec": {"priority": found.get("value", 0)}},
                namespace=metadata["namespace"],
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self._workloads.observe(answer)

    async def _deactivate(self, workload: JsonObject) -> None:
        if workload["spec"].get("active") is False:
            return
        metadata = workload["metadata"]
        try:
            answer = await self._context.client.patch(
                WORKLOADS, metadata["name"], {"spec": {"active": False}}, namespace=metadata["namespace"]
            )
        except NotFound:
            return
        self._workloads.observe(answer)

    async def _delete(self, workload: JsonObject) -> None:
        metadata = workload["metadata"]
        try:
            await self._context.client.delete(
                WORKLOADS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except (NotFound, Conflict):  # gone, or another one of that name: either way this one is deleted
            return

    async def _delete_job(self, workload: JsonObject) -> None:
        """Remove the job, and the Workload with it; one that belongs to none goes by itself."""
        metadata = workload["metadata"]
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
        if owner is None:
            await self._delete(workload)
            return
        integration = self._registry.for_kind(owner["apiVersion"], owner["kind"])
        if integration is None:
            return  # of a kind that somebody else takes care of
        try:
            await self._context.client.delete(
                integration.resource,
                owner["name"],
                namespace=metadata["namespace"],
                uid=owner["uid"],
                propagation="Background",
            )
        except (NotFound, Conflict):
            return
        message = f"Deleted {owner['kind']} {owner['name']}, which was deactivated long enough ago"
        self._context.recorder.event(Reference.of(workload), "Normal", "Deleted", message)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _counts_only(view: View, change: Change) -> bool:
    """Whether a queue changed in nothing but its figures."""
    if change.old is None or change.new is None:
        return False
    return _gist(view, change.old) == _gist(view, change.new)


def _gist(view: View, row: Row) -> tuple[int, bool, bool]:
    entries = (view.parse(row).get("status") or {}).get("conditions") or ()
    return row.generation, row.deleting, conditions.is_true(conditions_of(entries), ACTIVE_CONDITION)
