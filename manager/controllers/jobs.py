# SPDX-License-Identifier: Apache-2.0
"""The job reconciler of one integration: facts from the caches, one decision, its steps carried out.

Owns which changes concern which job, and which jobs are ours at all. The rules are `job_decision`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from manager.cache.ancestors import MAX_DEPTH, Ancestry, ancestry
from manager.cache.indexes import PREBUILT_INDEX
from manager.cache.queue_targets import QueueTargetWarnings
from manager.context import ManagerContext
from manager.controllers import job_decision
from manager.controllers.check_messages import CheckMessages
from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_keys import JobKeys
from manager.controllers.job_runtimes import JobRuntimes
from manager.controllers.job_steps import (
    CreateWorkload,
    DeleteWorkload,
    FollowJob,
    LookAgain,
    OwnWorkload,
    ReleaseWorkload,
    ResizeWorkload,
    SetPriority,
    Step,
    UpdateWorkload,
    WarnOwner,
    WriteJob,
    WriteReclaimable,
    WriteStatus,
)
from manager.controllers.job_workloads import JobWorkloads, WorkloadRefused
from manager.controllers.queue_hints import QueueHints
from manager.controllers.suspended_jobs import SuspendedJobs
from manager.controllers.workload_removal import release_workload, remove_orphan
from manager.owners.owner_quota import OwnerQuota, coverage, is_admitted, workloads_of
from manager.scheduler.pending_writes import PendingWrites
from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    MULTIKUEUE_CONTROLLER,
)
from multikueue.api.featuregates import ELASTIC_JOBS
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import JobEvent
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.backoff import Backoff
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.jobs.framework.capabilities import GroupedKind, PodSetsKind
from multikueue.jobs.framework.pod_templates import pod_set_infos
from multikueue.jobs.framework.protocol import JobIntegration, JobWrite, PodSetInfo
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.slices import gated, is_elastic, oldest_first
from multikueue.jobs.framework.traits import Hold
from multikueue.jobs.framework.workloads import (
    UnknownPriorityClass,
    UnknownWorkloadPriorityClass,
    name_for,
    prebuilt_name,
    slice_name,
)
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import NotFound
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.events import Reference

_log = logging.getLogger(__name__)

_NOT_CONFIRMED = (
    f"annotation {ADOPTS_ANNOTATION} is ignored: its form is not CLUSTER MANAGER-UID JOB-UID EPOCH, or it was written"
    " past the manager's webhook; use `mkctl cluster recover`"
)
_LOOK_AGAIN_SECONDS = 1.0
_REFUSED = Backoff(base=1.0, factor=2.0, cap=300.0, jitter=0.2)  # the server will most likely refuse it again


class JobReconciler:
    """Keeps each job of one kind and its Workload in step."""

    def __init__(
        self,
        context: ManagerContext,
        integration: JobIntegration,
        *,
        registry: JobRegistry,
        manages_namespace: Callable[[str], bool],
        hints: QueueHints,
        pending_writes: PendingWrites,
        tracks_pods: bool,
        workers: int = 5,
    ) -> None:
        self._context = context
        self._integration = integration
        self._registry = registry
        self._manages_namespace = manages_namespace
        self._hints = hints
        self._tracks_pods = tracks_pods
        self._refusals: dict[Key, int] = {}
        """How often in a row the API server refused the Workload of a job."""
        self._runtimes = JobRuntimes(context, integration)
        self._made = JobWorkloads(context, integration, self._runtimes)
        self._keys = JobKeys(context.caches, integration)
        self._checks = CheckMessages()
        self._suspended = SuspendedJobs(context, integration, pending_writes)
        self._targets = QueueTargetWarnings(context.caches, context.recorder)
        self._jobs = context.caches.view(integration.resource)
        self._workloads = context.caches.view(WORKLOADS)
        self._without_class: set[Key] = set()
        traits = integration.traits
        # Only a kind whose pods are its own is compared: of others, the jobs that they own are.
        compared = traits.owns_only_pods and traits.hold is Hold.SUSPEND
        self._quota = OwnerQuota(context.caches, integration, registry) if compared else None
        self.controller: Controller[Key] = Controller(
            integration.framework,
            self.reconcile,
            workers=workers,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=integration.resource,
        )

    async def attach(self) -> None:
        """Follow the jobs, and Workloads on behalf of their jobs; the lease can be renewed in between."""
        caches = self._context.caches
        if self._quota is not None:
            await self._quota.attach(self.controller.enqueue)
        await caches.replay(self._integration.resource, self._job_changed)
        await caches.replay(WORKLOADS, self._workload_changed)
        if self._integration.traits.holds_pods:
            await caches.replay(PODS, self._pod_changed)
        self._runtimes.follow(self.controller.enqueue)
        attached = False

        def namespace_changed(change: Change) -> None:
            # Namespaces that exist already need no second reconcile: their jobs have just been enqueued.
            if attached and (change.old is None or _labels(change.old) != _labels(change.row)):
                self._namespace_changed(change.key.name)

        self._context.caches.subscribe(NAMESPACES, namespace_changed)
        attached = True
        for resource in (WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES):
            self._context.caches.subscribe(resource, self._class_changed)

    def _namespace_changed(self, namespace: str) -> None:
        """A job may be seen before its namespace, whose labels decide whether it is managed."""
        for row in self._jobs.rows():
            if row.key.namespace == namespace:
                self._enqueue(row)

    def _job_changed(self, change: Change) -> None:
        self._enqueue(change.row)

    def _enqueue(self, row: Row) -> None:
        for key in self._keys.of_object(row):
            self.controller.enqueue(key)

    def _pod_changed(self, change: Change) -> None:
        key = self._keys.of_pod(change.row.object())
        if key is not None:
            self.controller.enqueue(key)

    def _class_changed(self, change: Change) -> None:
        waiting, self._without_class = self._without_class, set()
        for key in waiting:
            self.controller.enqueue(key)

    def _workload_changed(self, change: Change) -> None:
        for key in self._keys.of_workload(self._workloads.parse(change.row)):
            self.controller.enqueue(key)
        for key in self._jobs.indexed(PREBUILT_INDEX, str(change.key)):
            row = self._jobs.get(key)
            if row is None:
                self.controller.enqueue(key)
            else:
                self._enqueue(row)

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile one job, one replica of it, or one group of objects."""
        self._without_class.discard(key)
        job = self._keys.job(key)
        owned = self._keys.workloads(key)
        uids = self._uids(job)
        for workload in owned:
            owners = _owner_uids(workload)  # none of a group's Workload that its user has just created
            if owners and uids.isdisjoint(owners) and not self._keys.running_pods(key, owners):
                await remove_orphan(self._context, workload, self._integration.resource)
        if job is None or not self._is_ours(job):
            self._refusals.pop(key, None)
        if job is None:
            await self._stop_left_behind(key)
            return None
        if not self._is_ours(job):
            if not self._integration.queue_name(job):
                self._hints.job(job, finished=self._integration.finished(job) is not None)
            return None
        above = ancestry(
            job,
            self._registry,
            self._context.caches,
            kind=self._integration.resource,
            manage_unqueued=self._context.configuration.manage_jobs_without_queue_name,
        )
        if above.too_deep:
            message = f"It has more than {MAX_DEPTH} owners above it, of which no more are followed"
            self._event(job, "Warning", JobEvent.JOB_NESTING_TOO_DEEP, message)
        if above.is_managed and not self._is_queued_apart(above):
            return await self._left_to_owner(key, job, above, owned)
        if self._integration.traits.has_managed_by and self._integration.finished(job) is None:
            self._targets.check(
                job, queue=self._integration.queue_name(job), managed_by=self._integration.managed_by(job)
            )
        prebuilt = prebuilt_name(job, self._integration)
        elastic = not prebuilt and self._is_elastic(job)
        workloads = [workload for workload in owned if not uids.isdisjoint(_owner_uids(workload))]
        if prebuilt:
            found = self._context.statuses.current(Key(key.namespace, prebuilt))
            others = [workload for workload in workloads if workload["metadata"]["name"] != prebuilt]
            workloads = others if found is None else [found, *others]
        else:
            name = (slice_name if elastic else name_for)(job, self._integration)
            made = self._context.statuses.current(Key(key.namespace, name))
            if made is not None and all(made["metadata"]["uid"] != other["metadata"]["uid"] for other in workloads):
                workloads.append(made)  # whoever owns it: no second one can have its name
            workloads = oldest_first(workloads)
        if not self._runtimes.are_known(job):
            return Result(after=_LOOK_AGAIN_SECONDS)
        job = self._counted(self._runtimes.described(job, workloads), workloads)
        for obj in (job, *workloads):
            if self._context.seals.ignored_adoption(obj):
                self._context.recorder.event(Reference.of(obj), "Warning", "AdoptionIgnored", _NOT_CONFIRMED)
        facts = ManagedJobFacts(
            job=job,
            integration=self._integration,
            workloads=workloads,
            prebuilt=prebuilt,
            tracks_pods=self._tracks_pods,
            reclaims=self._context.configuration.gate("ReclaimablePods"),
            infos=self._infos,
            priority=self._made.priority_now(job),
            elastic=elastic,
            runs_on_workers=self._runs_on_workers,
            may_run_elsewhere=self._context.statuses.may_run_elsewhere,
            remote_status=self._context.statuses.remote_status,
        )
        for workload in workloads:
            if said := self._checks.new(workload):
                self._event(job, "Normal", JobEvent.UPDATED_ADMISSION_CHECK, said)
        result = await self._take_steps(key, job, facts)
        shown = self._suspended.check(key)
        pauses = [each.after for each in (result, shown) if each is not None and each.after is not None]
        return Result(after=min(pauses)) if pauses else None

    def _counted(self, job: JsonObject, workloads: Sequence[JsonObject]) -> JsonObject:
        """A group with its members counted in the pod sets of its Workload, which may have names by Kueue."""
        kind = self._integration
        if workloads and isinstance(kind, GroupedKind) and isinstance(kind, PodSetsKind):
            return kind.with_pod_sets(job, workloads[-1]["spec"].get("podSets") or ())
        return job

    async def _stop_left_behind(self, key: Key) -> None:
        """Stop pods that outlive their job: their Workload is kept while they run, and nothing else would stop them."""
        left = self._keys.left_behind(key)
        stop = None if left is None else self._integration.stop(left, ())
        if left is not None and stop is not None:
            _log.info("stopping pods that outlived their job kind=%s key=%s", self._integration.resource.kind, key)
            await self._write_job(left, stop)

    def _is_queued_apart(self, above: Ancestry) -> bool:
        """Whether an object with an owner is queued by itself nevertheless.

        The webhook labels only pods that it gates for a Workload of their own, or for an owner that starts them. Owners
        can be added later, by users and by controllers that adopt pods.
        """
        return self._integration.traits.needs_managed_label and above.holder is None

    async def _left_to_owner(
        self, key: Key, job: JsonObject, above: Ancestry, owned: list[JsonObject]
    ) -> Result | None:
        """A job of an owner that is queued: it has no Workload, and is held while that owner is not admitted.

        Kueue makes the pods of a LeaderWorkerSet owners of its Workload as well, which stays.
        """
        for workload in owned:
            if "deletionTimestamp" not in workload["metadata"] and not _is_of(workload, above):
                await self._made.delete(job, workload)
        if above.integration is None or above.key is None:
            return None
        if self._integration.traits.hold is not Hold.SUSPEND or self._integration.is_suspended(job):
            return None
        if self._integration.finished(job) is not None:
            return None
        why, ends = self._uncovered(job, above, above.integration.resource, above.key)
        if not why:
            return None if ends is None else Result(after=ends)
        stop = self._integration.stop(job, ())
        if stop is not None:
            await self._write_job(job, stop)
            self._event(job, "Normal", JobEvent.STOPPED, why)
        return None

    def _uncovered(self, job: JsonObject, above: Ancestry, resource: Resource, key: Key) -> tuple[str, float | None]:
        """Why the quota of the owner does not cover a job; else empty, and for how many seconds it covers it."""
        kind, name = resource.kind, key.name
        workloads = workloads_of(self._context.caches, resource, key)
        if self._quota is None:
            return (
                "" if any(is_admitted(each) for each in workloads) else f"{kind} {name}, its owner, is not admitted"
            ), None
        found = coverage(workloads, now=self._context.clock.now())
        if not found.workloads:
            lack = found.lack
            return f"{kind} {name}, its owner, {lack}", None
        beyond = self._quota.excess(job, above, found.workloads)
        return (
            f"{kind} {name}, its owner, has less quota than its jobs request: {beyond}" if beyond else ""
        ), found.ends

    def _uids(self, job: JsonObject | None) -> frozenset[str]:
        if job is None:
            return frozenset()
        members = self._integration.members(job) if isinstance(self._integration, GroupedKind) else (job,)
        return frozenset(each["metadata"]["uid"] for each in members)

    def _runs_on_workers(self, workload: JsonObject) -> bool:
        """Whether one of its checks is MultiKueue's."""
        checks = self._context.caches.view(ADMISSION_CHECKS)
        for entry in (workload.get("status") or {}).get("admissionChecks") or ():
            check = checks.object(Key("", entry["name"])) or {}
            if (check.get("spec") or {}).get("controllerName") == MULTIKUEUE_CONTROLLER:
                return True
        return bool((workload.get("status") or {}).get("clusterName"))

    async def _take_steps(self, key: Key, job: JsonObject, facts: ManagedJobFacts) -> Result | None:
        result: Result | None = None
        try:
            steps = job_decision.decide(facts, now=self._context.clock.now())
            for step in steps:
                result = await self._carry_out(step, job) or result
        except WorkloadRefused as error:
            return self._refused(key, job, str(error))
        except UnknownPriorityClass as error:
            is_own = isinstance(error, UnknownWorkloadPriorityClass)
            reason = JobEvent.WORKLOAD_PRIORITY_CLASS_NOT_FOUND if is_own else JobEvent.ERR_WORKLOAD_COMPOSE
            self._event(job, "Warning", reason, str(error))
            self._without_class.add(key)
            return None
        except BadInput as error:
            _log.error("cannot queue job kind=%s key=%s error=%s", self._integration.resource.kind, key, error)
            self._event(job, "Warning", "ErrWorkloadCompose", str(error))
            return None
        self._refusals.pop(key, None)
        return result

    def _refused(self, key: Key, job: JsonObject, why: str) -> Result:
        """Record an event for the owner and retry with growing pauses: a policy that rejects it may change."""
        times = self._refusals[key] = self._refusals.get(key, 0) + 1
        seconds = _REFUSED.delay(times, self._context.random)
        _log.warning(
            "Workload of job refused kind=%s key=%s retry_after=%.1f error=%s",
            self._integration.resource.kind,
            key,
            seconds,
            why,
        )
        self._event(job, "Warning", JobEvent.ERR_WORKLOAD_COMPOSE, why)
        return Result(after=seconds)

    def _is_ours(self, job: JsonObject) -> bool:
        metadata = job["metadata"]
        if not self._manages_namespace(metadata["namespace"]):
            return False
        labels = metadata.get("labels") or {}
        if self._integration.traits.needs_managed_label and labels.get(MANAGED_LABEL) != MANAGED_LABEL_VALUE:
            return False
        return bool(
            self._integration.queue_name(job)
            or prebuilt_name(job, self._integration)
            or self._context.configuration.manage_jobs_without_queue_name
        )

    def _is_elastic(self, job: JsonObject) -> bool:
        """Whether it has slices; one that became elastic while the feature was off waits without a Workload."""
        gate = self._context.configuration.gate(ELASTIC_JOBS)
        return gate and self._integration.traits.resizable and is_elastic(job)

    def _infos(self, workload: JsonObject) -> tuple[PodSetInfo, ...]:
        flavors = self._context.caches.view(RESOURCE_FLAVORS)
        admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
        names = {
            name
            for assignment in admission.get("podSetAssignments") or ()
            for name in (assignment.get("flavors") or {}).values()
        }
        found = {name: flavors.object(Key("", name)) for name in names}
        infos = pod_set_infos(workload, {name: flavor for name, flavor in found.items() if flavor is not None})
        # On a worker the job has no more pods than were admitted.
        return gated(infos) if is_elastic(workload) and not self._runs_on_workers(workload) else infos

    async def _carry_out(self, step: Step, job: JsonObject) -> Result | None:
        match step:
            case CreateWorkload(older):
                await self._made.create(job, older)
            case UpdateWorkload(workload):
                await self._made.update(job, workload)
            case ResizeWorkload(workload, pod_sets):
                await self._made.resize(job, workload, pod_sets)
            case SetPriority(workload, wanted):
                await self._made.prioritize(job, workload, wanted)
            case FollowJob(workload, patch):
                await self._made.follow(job, workload, patch)
            case DeleteWorkload(workload):
                await self._made.delete(job, workload)
            case OwnWorkload(workload):
                await self._made.own(job, workload)
            case ReleaseWorkload(workload):
                await release_workload(self._context, workload)
            case WriteJob(write, event, message):
                await self._write_job(job, write)
                if event:
                    self._event(job, "Normal", event, message)
            case WriteStatus(workload, change, event, message):
                metadata = workload["metadata"]
                key = Key(metadata["namespace"], metadata["name"])
                written = await self._context.statuses.write(key, change, uid=metadata["uid"])
                if event and written is not None:
                    self._event(job, "Normal", event, message)
            case WriteReclaimable(workload, pods):
                await self._made.reclaim(
                    workload, {"reclaimablePods": [{"name": pod.name, "count": pod.count} for pod in pods]}
                )
            case WarnOwner(reason, message):
                self._event(job, "Warning", reason, message)
            case LookAgain():
                return Result(after=_LOOK_AGAIN_SECONDS)
        return None

    async def _write_job(self, job: JsonObject, write: JobWrite) -> None:
        """Carry out a write, and those to other members of its group. Raises `Conflict`."""
        for each in (write, *write.also):
            resource = each.resource or self._integration.resource
            metadata = (each.target or job)["metadata"]
            name, namespace = metadata["name"], metadata["namespace"]
            try:
                if each.delete:
                    await self._context.client.delete(resource, name, namespace=namespace, uid=metadata["uid"])
                    continue
                answer = await self._context.client.patch(
                    resource,
                    name,
                    each.body,
                    namespace=namespace,
                    subresource=each.subresource or None,
                    # A precondition: if the user has changed the job since, it is decided again.
                    resource_version=metadata["resourceVersion"],
                )
            except NotFound:
                if each.target is None:
                    raise
                continue  # a member that is gone already
            self._context.caches.view(resource).on_write(answer)

    def _event(self, job: JsonObject, kind: str, reason: str, message: str) -> None:
        self._made.event(job, kind, reason, message)


def _labels(row: Row) -> JsonObject:
    return row.object()["metadata"].get("labels") or {}


def _is_of(workload: JsonObject, above: Ancestry) -> bool:
    """Whether a Workload is that of the owner above, too."""
    if above.integration is None or above.key is None:
        return False
    wanted = above.integration.resource.kind, above.key.name
    owners = workload["metadata"].get("ownerReferences") or ()
    return any((each.get("kind"), each.get("name")) == wanted for each in owners)


def _owner_uids(workload: JsonObject) -> list[str]:
    return [owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()]
