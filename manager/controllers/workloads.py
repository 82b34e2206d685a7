# SPDX-License-Identifier: Apache-2.0
"""The Workload reconciler: facts from the caches, one decision, its writes.

Owns which changes concern which Workload. The rules are `workload_decision`'s; quota is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

from manager.cache.ended_workloads import has_finished, is_released
from manager.cache.indexes import (
    CLUSTER_QUEUE_INDEX,
    OWNER_INDEX,
    PREBUILT_INDEX,
    PRIORITY_CLASS_INDEX,
    QUEUE_INDEX,
    owner_term,
)
from manager.cache.views import View
from manager.context import ManagerContext
from manager.controllers import workload_decision
from manager.controllers.workload_decision import WorkloadDecision
from manager.controllers.workload_facts import AdmissionQueueFacts, WorkloadFacts, gates_of
from manager.controllers.workload_removal import release_workload
from manager.scheduler import admission_writes
from manager.scheduler.pending_writes import News, PendingSender, PendingWrites
from manager.workload import changes
from manager.workload.conditions import conditions_of
from manager.workload.status import Status
from manager.workload.transitions import concerned
from multikueue.api.constants import (
    JOB_UID_LABEL,
    MULTIKUEUE_MANAGED_BY,
    ORIGIN_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    WORKLOAD_PRIORITY_CLASS_KIND,
    WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION,
)
from multikueue.api.featuregates import ELASTIC_JOBS
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.reasons import ACTIVE_CONDITION, FinishedReason, WorkloadCondition
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core import conditions
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.engine.engine import Engine
from multikueue.engine.messages import slice_replaced
from multikueue.engine.settings import PodsReady
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import NotFound
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import Reference


class WorkloadReconciler:
    """Reconciles every Workload through its lifecycle."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        registry: JobRegistry,
        pods_ready: PodsReady | None,
        engine: Callable[[], Engine],
        pending_writes: PendingWrites,
        workers: int = 10,
    ) -> None:
        """`engine` returns the current engine: whether a ClusterQueue admits, and why a workload was bypassed."""
        self._pending_writes = pending_writes
        self._may_explain: set[Key] = set()  # why these wait is written by their next reconcile
        self._explanations = PendingSender(self._news, self._explain)
        self._context = context
        self._registry = registry
        self._pods_ready = pods_ready
        self._engine = engine
        self._workloads = context.caches.view(WORKLOADS)
        self._local_queues = context.caches.view(LOCAL_QUEUES)
        self._cluster_queues = context.caches.view(CLUSTER_QUEUES)
        self._queue_facts: dict[tuple[Resource, Key], tuple[Row, AdmissionQueueFacts]] = {}
        retention = context.configuration.object_retention_policies.workloads
        self._retention = _seconds(retention.after_finished)
        self._deactivated_retention = _seconds(retention.after_deactivated_by_kueue)
        self.controller: Controller[Key] = Controller(
            "workload",
            self.reconcile,
            workers=workers,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=WORKLOADS,
        )

    def attach(self) -> None:
        """Subscribe to Workloads and to their queues."""
        caches = self._context.caches
        caches.subscribe(WORKLOADS, self._workload_changed)
        caches.subscribe(LOCAL_QUEUES, self._local_queue_changed)
        caches.subscribe(CLUSTER_QUEUES, self._cluster_queue_changed)
        caches.subscribe(RESOURCE_CLAIM_TEMPLATES, self._claim_template_changed)
        caches.subscribe(WORKLOAD_PRIORITY_CLASSES, lambda change: self._enqueue(PRIORITY_CLASS_INDEX, change.key.name))
        for integration in self._registry.followed:
            caches.subscribe(integration.resource, partial(self._job_gone, integration.resource))

    def _workload_changed(self, change: Change) -> None:
        found_ended = change.old is None and is_released(self._workloads, change.key)
        if not found_ended or self._retention is not None:
            self.controller.enqueue(change.key)

    def _local_queue_changed(self, change: Change) -> None:
        if not _counts_only(self._local_queues, change):
            self._enqueue_unfinished(QUEUE_INDEX, str(change.key))

    def _cluster_queue_changed(self, change: Change) -> None:
        if _counts_only(self._cluster_queues, change):
            return
        self._enqueue_unfinished(CLUSTER_QUEUE_INDEX, change.key.name)
        for queue in self._local_queues.indexed(CLUSTER_QUEUE_INDEX, change.key.name):
            self._enqueue_unfinished(QUEUE_INDEX, str(queue))

    def _claim_template_changed(self, change: Change) -> None:
        """What waits for the template may be counted now, and what holds quota by a former one may claim more."""
        if change.old is None or change.new is None or change.old.uid != change.new.uid:
            for key in self._engine().claimants.of(change.key):
                self.controller.enqueue(key)

    def _job_gone(self, kind: Resource, change: Change) -> None:
        if change.new is None:
            term = owner_term(
                api_version=kind.api_version, kind=kind.kind, namespace=change.key.namespace, name=change.key.name
            )
            self._enqueue(OWNER_INDEX, term)

    def _enqueue_unfinished(self, index: str, value: str) -> None:
        for key in self._workloads.indexed(index, value):
            if not has_finished(self._workloads, key):
                self.controller.enqueue(key)

    def _enqueue(self, index: str, value: str) -> None:
        for key in self._workloads.indexed(index, value):
            self.controller.enqueue(key)

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one Workload."""
        workload = self._context.statuses.current(key)
        if workload is None:
            self._may_explain.discard(key)
            return None
        await self._follow_class(workload)
        await self._look_for_owner(workload)
        uid = workload["metadata"]["uid"]
        decision: WorkloadDecision | None = None

        def change(status: Status) -> Status:
            nonlocal decision
            decision = self._decide(workload, status)
            only_explains_waiting = decision.status is not status and changes.only_explains_waiting(
                status, decision.status
            )
            if only_explains_waiting and key not in self._may_explain:
                self._pending_writes.put(key, self._explanations.about((key, uid)), slot="reconciler")
                decision = replace(decision, notes=())  # the reconcile that writes the reason records them
                return status
            return decision.status

        written = await self._context.statuses.write(key, change, uid=uid)
        self._may_explain.discard(key)
        if written is None or decision is None:
            return None
        if self._context.configuration.gate(ELASTIC_JOBS):
            await self._finish_replaced(written)
        for note in decision.notes:
            for about in concerned(written) if note.about_job else (Reference.of(written),):
                self._context.recorder.event(about, note.type, note.reason, note.message)
        if decision.deactivate:
            await self._deactivate(written)
        if decision.delete:
            await self._delete(written)
        if decision.delete_job:
            await self._delete_job(written)
        if decision.release:
            await self._release(written)
        return None if decision.revisit is None else Result(after=decision.revisit)

    def _decide(self, workload: JsonObject, status: Status) -> WorkloadDecision:
        return workload_decision.decide(
            self._facts(workload), status, now=self._context.clock.now(), random=self._context.random
        )

    def _news(self, about: tuple[Key, str]) -> News:
        key, uid = about
        workload = self._context.statuses.current(key)
        if workload is None or workload["metadata"].get("uid") != uid:
            return News.NOTHING
        status = self._context.statuses.read(workload)
        decided = self._decide(workload, status).status
        if decided is status or not changes.only_explains_waiting(status, decided):
            return News.NOTHING
        shown = Status.of(workload)
        return admission_writes.news(shown, self._context.statuses.shown_as(decided, shown))

    async def _explain(self, about: tuple[Key, str]) -> None:
        """Have the next reconcile write why a workload waits."""
        key, _ = about
        self._may_explain.add(key)
        self.controller.enqueue(key)

    async def _finish_replaced(self, newer: JsonObject) -> None:
        """Finish the slice whose quota a newer one of the same job has taken over (`docs/spec/engine.md §3.11`)."""
        metadata = newer["metadata"]
        name = (metadata.get("annotations") or {}).get(WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION)
        if not name or not Status.of(newer).is_true(WorkloadCondition.QUOTA_RESERVED):
            return
        key = Key(metadata["namespace"], name.removeprefix(f"{metadata['namespace']}/"))
        older = self._context.statuses.current(key)
        if older is None or _job_uid(older) != _job_uid(newer):
            return
        message = slice_replaced(uid=metadata["uid"], job_uid=_job_uid(newer))
        now = self._context.clock.now()
        await self._context.statuses.write(
            key,
            lambda status: changes.finish(
                status, reason=FinishedReason.WORKLOAD_SLICE_REPLACED, message=message, now=now
            ),
            uid=older["metadata"]["uid"],
        )

    def _facts(self, workload: JsonObject) -> WorkloadFacts:
        metadata, spec = workload["metadata"], workload["spec"]
        key = Key(metadata["namespace"], metadata["name"])
        queue_name = spec.get("queueName") or ""
        local_queue = self._facts_of(self._local_queues, Key(key.namespace, queue_name)) if queue_name else None
        admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
        cluster_name = admission.get("clusterQueue") or (local_queue.cluster_queue if local_queue is not None else "")
        cluster_queue = self._facts_of(self._cluster_queues, Key("", cluster_name)) if cluster_name else None
        if cluster_queue is not None and not self._engine().cluster_queue_state(cluster_name).active:
            cluster_queue = replace(cluster_queue, active=False)
        return WorkloadFacts(
            key=key,
            uid=metadata["uid"],
            created=parse_time(metadata["creationTimestamp"]),
            active=spec.get("active") is not False,
            deleting="deletionTimestamp" in metadata,
            owned=bool(metadata.get("ownerReferences")),
            owner_gone=self._owner_gone(workload),
            runs_on_workers_only=self._runs_on_workers_only(workload),
            may_run_elsewhere=self._context.statuses.may_run_elsewhere(workload),
            queue_name=queue_name,
            gated_by=gates_of(workload),
            maximum_execution_seconds=spec.get("maximumExecutionTimeSeconds"),
            local_queue=local_queue,
            cluster_queue=cluster_queue,
            cluster_queue_name=cluster_name,
            pods_ready=self._pods_ready,
            retention_seconds=self._retention,
            deactivated_retention_seconds=self._deactivated_retention,
            bypassed=self._engine().bypassed(key),
            claims_problem=self._engine().claims_problem(key),
            claims_beyond=self._engine().claims_beyond(key),
        )

    def _facts_of(self, view: View, key: Key) -> AdmissionQueueFacts | None:
        """The facts of a queue, read once for each version of it: every Workload of the queue asks for them."""
        row = view.get(key)
        known = self._queue_facts.get((view.resource, key))
        if row is None:
            if known is not None:
                del self._queue_facts[view.resource, key]
            return None
        if known is None or known[0] is not row:
            known = self._queue_facts[view.resource, key] = (row, AdmissionQueueFacts.of(view.parse(row)))
        return known[1]

    def _runs_on_workers_only(self, workload: JsonObject) -> bool:
        """Whether its job is of an external framework, and no controller runs it on this cluster."""
        owner = controller_of(workload) if self._registry.external else None
        kind = None if owner is None else self._registry.sent_kind(owner["apiVersion"], owner["kind"])
        if owner is None or kind not in self._registry.external:
            return False
        assert kind is not None
        key = Key(workload["metadata"]["namespace"], owner["name"])
        job = self._context.caches.view(kind.resource).object(key)
        is_it = job is not None and job["metadata"]["uid"] == owner["uid"]
        return job is not None and is_it and kind.managed_by(job) == MULTIKUEUE_MANAGED_BY

    def _owner_gone(self, workload: JsonObject) -> bool:
        """Whether it belonged to a job that is gone, and nothing else will remove it."""
        metadata = workload["metadata"]
        owners, labels = metadata.get("ownerReferences") or (), metadata.get("labels") or {}
        # One that a hub has sent has the uid of the job there, and gets its owner here after it is admitted.
        was_owned = bool(owners) or (JOB_UID_LABEL in labels and ORIGIN_LABEL not in labels)
        if not was_owned or (owners and "deletionTimestamp" not in metadata):
            return False
        for owner in owners:
            integration = self._registry.sent_kind(owner["apiVersion"], owner["kind"])
            if integration is None:
                return False  # a kind that is not watched: unknown whether it is gone
            job = self._context.caches.view(integration.resource).get(Key(metadata["namespace"], owner["name"]))
            if job is not None and job.uid == owner["uid"]:
                return False
        return True

    async def _look_for_owner(self, workload: JsonObject) -> None:
        """Ask the server for a job that seems to be gone: the caches of jobs may lag behind that of Workloads.

        Not for the members of a group, which may be hundreds.
        """
        owners: list[JsonObject] = workload["metadata"].get("ownerReferences") or []
        if len(owners) != 1 or not self._owner_gone(workload):
            return
        integration = self._registry.sent_kind(owners[0]["apiVersion"], owners[0]["kind"])
        if integration is not None:
            key = Key(workload["metadata"]["namespace"], owners[0]["name"])
            await self._context.caches.view(integration.resource).refresh(self._context.client, key)

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
        self._workloads.on_write(answer)

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
        self._workloads.on_write(answer)

    async def _delete(self, workload: JsonObject) -> None:
        metadata = workload["metadata"]
        try:
            await self._context.client.delete(
                WORKLOADS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except NotFound:
            return

    async def _release(self, workload: JsonObject) -> None:
        """Remove our finalizer from a Workload without a job, so that its deletion does not hang."""
        metadata = workload["metadata"]
        finalizers: list[str] = metadata.get("finalizers") or []
        key = str(Key(metadata["namespace"], metadata["name"]))
        views = (self._context.caches.view(integration.resource) for integration in self._registry)
        if RESOURCE_IN_USE_FINALIZER not in finalizers or any(view.indexed(PREBUILT_INDEX, key) for view in views):
            return  # a job that names it removes it once its pods have ended
        await release_workload(self._context, workload)

    async def _delete_job(self, workload: JsonObject) -> None:
        """Delete the job, and its Workload with it; a Workload without a job is deleted itself."""
        metadata = workload["metadata"]
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
        if owner is None:
            await self._delete(workload)
            return
        integration = self._registry.for_kind(owner["apiVersion"], owner["kind"])
        if integration is None:
            return  # of a kind that another controller manages
        try:
            await self._context.client.delete(
                integration.resource,
                owner["name"],
                namespace=metadata["namespace"],
                uid=owner["uid"],
                propagation="Background",
            )
        except NotFound:
            return
        job = Reference(owner["apiVersion"], owner["kind"], owner["name"], metadata["namespace"], owner["uid"])
        self._context.recorder.event(job, "Normal", "Deleted", "Deleted job: deactivation retention period expired")


def _job_uid(workload: JsonObject) -> str:
    return str((workload["metadata"].get("labels") or {}).get(JOB_UID_LABEL, ""))


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _counts_only(view: View, change: Change) -> bool:
    """Whether only the figures in the status of a queue changed."""
    if change.old is None or change.new is None:
        return False
    return _gist(view, change.old) == _gist(view, change.new)


def _gist(view: View, row: Row) -> tuple[int, bool, bool]:
    entries = (view.parse(row).get("status") or {}).get("conditions") or ()
    return row.generation, row.deleting, conditions.is_true(conditions_of(entries), ACTIVE_CONDITION)
