# SPDX-License-Identifier: Apache-2.0
"""What a job and its Workload need next: the generic job rules in their order.

Owns `docs/spec/kueue-api.md §4.2` as one pure function of facts and time. Promises that deciding again after its steps
were carried out decides nothing, and that quota is only released when the job has no active pods. How a kind of job
is read belongs to its integration; dispatch to workers is not decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from manager.controllers.job_facts import ManagedJobFacts
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
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.constants import (
    PREBUILT_WORKLOAD_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    WORKLOAD_PRIORITY_CLASS_GROUP,
    CheckState,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason, JobEvent, PodsReadyReason, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE, truncate_message
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.capabilities import GroupedKind, PodHoldingKind
from multikueue.jobs.framework.pod_set_differences import summary
from multikueue.jobs.framework.protocol import InjectionConflict, JobWrite, Reclaimable
from multikueue.jobs.framework.slices import SlicePlan, plan_slices, took_over, was_replaced
from multikueue.jobs.framework.traits import Hold
from multikueue.jobs.framework.workloads import Priority, changes_to_follow

OUT_OF_SYNC_MESSAGE: Final = "The prebuilt workload is out of sync with its user job"
_READY_MESSAGE: Final = "All pods reached readiness and the workload is running"
START_MESSAGE: Final = "Not all pods are ready or succeeded"
_RECOVERY_MESSAGE: Final = "At least one pod has failed, waiting for recovery"
_HINT: Final = f"name another Workload in {PREBUILT_WORKLOAD_LABEL}, or remove it"
_PODS_FAILED: Final = "PodsFailed"
_PODS_READY: Final = "PodsReady"
_STOPPED_FOR: Final = frozenset({FinishedReason.OUT_OF_SYNC, FinishedReason.FAILED_TO_START})


def decide(facts: ManagedJobFacts, *, now: datetime) -> tuple[Step, ...]:
    """The steps to take now, in order; each leads to a change that brings the job here again."""
    job, integration = facts.job, facts.integration
    # 1. The Workload of a deleted job goes with it. A pod that is deleted runs on for a while.
    if "deletionTimestamp" in job["metadata"] and integration.traits.hold is not Hold.GATE:
        if integration.traits.holds_pods and integration.is_active(job):
            return ()
        # A Workload that the job only names is not its to release.
        return tuple(
            ReleaseWorkload(workload) for workload in facts.workloads if _held(workload) and _owns(facts, workload)
        )
    if isinstance(integration, PodHoldingKind) and integration.is_empty(job) and not integration.is_active(job):
        # Scaled to zero: the next size gets another Workload.
        steps: list[Step] = [DeleteWorkload(other) for other in facts.workloads if not _deleting(other)]
        return (*steps, *(ReleaseWorkload(other) for other in facts.workloads if _deleting(other) and _held(other)))
    # 4. Exactly one Workload.
    slices = plan_slices(facts.sizes, facts.workloads) if facts.elastic else None
    in_sync = False
    if slices is None:
        workload, extra, in_sync = _matching(facts)
    else:
        workload, extra = slices.current, list(slices.obsolete)
    steps = [DeleteWorkload(other) for other in extra if not _deleting(other)]
    steps += [ReleaseWorkload(other) for other in extra if _deleting(other) and _held(other)]
    if slices is not None:
        steps += [ReleaseWorkload(other) for other in slices.replaced if _held(other)]
    upkeep = integration.upkeep(job, workload) if isinstance(integration, GroupedKind) else ()
    if upkeep:
        return (*steps, *(WriteJob(each.write, each.reason, each.message) for each in upkeep))
    if workload is None:
        return (*steps, *_without_workload(facts))
    status = Status.of(workload)
    refusal = _refusal(facts, workload, status)
    if refusal:
        # Its pods are not those of that Workload, so nothing of the Workload goes into the job.
        stop = integration.stop(job, ())
        steps.append(WarnOwner("WorkloadRefused", refusal))
        return tuple(steps) if stop is None else (*steps, WriteJob(stop, "Stopped", refusal))
    if facts.is_group and not _finished(workload) and facts.uids - _owner_uids(workload):
        return (*steps, OwnWorkload(workload))
    if facts.prebuilt:
        adopted = _adopt(facts, workload, status, now)
        if adopted:
            return (*steps, *adopted)
    # 5. Finished.
    finished = status.condition(WorkloadCondition.FINISHED)
    if finished is not None and finished.status == TRUE:
        # The pods of a group have ended with it: one that runs now was added since, and has no quota.
        if facts.is_group or (finished.reason in _STOPPED_FOR and integration.finished(job) is None):
            steps += _stop(facts, workload, finished.message)
        if _held(workload):
            steps.append(ReleaseWorkload(workload))
        return tuple(steps)
    # 6. The Workload is being deleted: the job stops first, so that no pod runs on quota that is no longer counted.
    if _deleting(workload):
        stops = _stop(facts, workload, "The workload is deleted")
        if stops:
            return (*steps, *stops)
        if not integration.is_active(job) and _held(workload):
            # The next Workload of this job may be sent to another cluster.
            steps.append(LookAgain() if facts.may_run_elsewhere(workload) else ReleaseWorkload(workload))
        return tuple(steps)
    # 8. The job came to its end.
    end = integration.finished(job)
    if end is not None:
        message = end.message
        steps.append(
            WriteStatus(
                workload,
                lambda seen: changes.finish(seen, reason=end.reason, message=message, now=now),
                event="FinishedWorkload",
                message=f"Workload '{workload['metadata']['namespace']}/{workload['metadata']['name']}' is declared"
                " finished",
            )
        )
        return tuple(steps)
    # 4 (continued). The job changed while nothing was reserved for it.
    if not in_sync and not _in_sync(facts, workload, status):
        steps += _resync(facts, workload, status)
        return tuple(steps)
    if slices is not None:
        steps += _resize(facts, slices, workload)
        if slices.pending is not None and facts.priority is not None:
            steps += _prioritize(facts.priority, slices.pending)
    if facts.priority is not None and not facts.prebuilt:
        steps += _prioritize(facts.priority, workload)
    if not facts.prebuilt:
        steps += _follow(facts, workload, status)
    # 10. Pods that need no quota any more.
    steps += _reclaim(facts, workload, status)
    # 11. Whether its pods are ready.
    if facts.tracks_pods and not (slices is not None and slices.pending is not None):
        # While it is to grow, the pods that wait for quota are not ready.
        steps += _pods_ready(facts, workload, status, now)
    if isinstance(integration, GroupedKind):
        steps += _replacements(integration, job, workload, status, now)
    # 12. Evicted: stop, and give the quota back once no pod is active.
    if status.is_true(WorkloadCondition.EVICTED):
        return (*steps, *_evicted(facts, workload, status, now))
    admitted = status.is_true(WorkloadCondition.ADMITTED)
    # 13. Admitted: start, unless it runs on a worker cluster and would run here as well.
    waits = integration.waits(job) if isinstance(integration, GroupedKind) else integration.is_suspended(job)
    if admitted and facts.held_here(workload):
        if not integration.is_suspended(job) and integration.finished(job) is None:
            steps += _stop(facts, workload, "It runs on a worker cluster")
        return tuple(steps)
    if admitted and isinstance(integration, PodHoldingKind) and (kept := integration.held_back(job)):
        steps.append(WarnOwner(JobEvent.POD_NOT_STARTED, kept))
    if admitted and waits:
        return (*steps, *_start(facts, workload, now))
    # 14. Running without admission: stop. A slice that took over waits for its checks, and the quota is reserved.
    if not admitted and not integration.is_suspended(job) and not (facts.elastic and took_over(workload)):
        steps += _stop(facts, workload, "Not admitted by cluster queue")
    return tuple(steps)


def _matching(facts: ManagedJobFacts) -> tuple[JsonObject | None, list[JsonObject], bool]:
    """The Workload that belongs to the job, those that do not, and whether it is known to be in sync."""
    if facts.prebuilt:
        return (facts.workloads[0] if facts.workloads else None), [], False
    # Former slices, of a job that was elastic before the feature was switched off, are not of its end.
    living = [workload for workload in facts.workloads if not _deleting(workload) and not was_replaced(workload)]
    for workload in living:
        finished = _finished(workload)
        if finished or _in_sync(facts, workload, Status.of(workload)):
            return workload, [other for other in facts.workloads if other is not workload], not finished
    # None matches: the oldest is updated, or awaited while it is being deleted.
    chosen = living[0] if living else (facts.workloads[0] if facts.workloads else None)
    return chosen, [other for other in living if other is not chosen], False


def _in_sync(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> bool:
    if facts.prebuilt:
        return _updates_taken_back(facts, workload, status) or not _differences(facts, workload, status)
    if status.admission is None and workload["spec"].get("queueName") != facts.integration.queue_name(facts.job):
        return False
    if status.admission is not None:
        workload = facts.sized(workload)
    try:
        if facts.integration.matches(facts.job, workload):
            return True
    except BadInput:
        if status.admission is None:
            raise
        return False  # it cannot be queued as it is now; first it releases what it holds
    if status.admission is None:
        return False
    # It was started, or is being stopped, with what admission added.
    try:
        return facts.integration.matches(facts.job, workload, facts.infos(workload))
    except InjectionConflict:  # checks changed their updates since; what was injected is unknown
        return True


def _differences(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> tuple[str, ...]:
    """The fields in which a Workload created by another client differs from the job; empty when it matches."""
    job, integration = facts.job, facts.integration
    queue, wanted = workload["spec"].get("queueName") or "", integration.queue_name(job)
    if status.admission is None:
        kind = integration.resource.kind
        named = f"queueName: {kind} has {wanted or 'none'}, Workload has {queue or 'none'}"
        other = () if queue == wanted else (named,)
        return (*other, *integration.differences(job, workload))
    try:
        if not integration.differences(job, workload):
            return ()
        # It was started, or is being stopped, with what admission added.
        return integration.differences(job, workload, facts.infos(workload))
    except BadInput as error:
        return (str(error),)  # it cannot be queued as it is now
    except InjectionConflict:  # checks changed their updates since; what was injected is unknown
        return ()


def _without_workload(facts: ManagedJobFacts) -> tuple[Step, ...]:
    job, integration = facts.job, facts.integration
    if integration.finished(job) is not None:
        return ()
    if not integration.is_suspended(job):
        stop = integration.stop(job, ())
        return () if stop is None else (WriteJob(stop, "Stopped", "No matching Workload; stopped"),)
    # 9. Only a suspended job gets a Workload; a prebuilt one is created by its user.
    if facts.prebuilt or integration.is_active(job):
        return ()
    if isinstance(integration, GroupedKind) and integration.incomplete(job):
        return ()
    return (CreateWorkload(),)


def _refusal(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> str:
    """Why the Workload cannot be the job's; empty when the job owns it or may become its owner.

    A Workload has one owner, so that the quota that is reserved for it is used once.
    """
    if _owns(facts, workload):
        return ""
    job, metadata = facts.job["metadata"], workload["metadata"]
    named = f"Workload {metadata['namespace']}/{metadata['name']}"
    other = _controller(workload)
    if other is not None and other.get("uid") not in facts.uids:
        return (
            f"{named} belongs to {excerpt(other.get('kind'))} {excerpt(other.get('name'))}, and a Workload has one"
            f" owner: {_HINT}"
        )
    if not facts.prebuilt:
        return ""
    if _finished(workload):
        return f"{named} is finished and cannot be used by {job['name']}: {_HINT}"
    if _deleting(workload):
        return f"{named} is being deleted and cannot be used by {job['name']}: {_HINT}"
    found = _differences(facts, workload, status)
    if found:
        return f"{named} differs from {job['name']} in its pods or its queue: {summary(found)}: {_HINT}"
    return ""


def _owns(facts: ManagedJobFacts, workload: JsonObject) -> bool:
    controller = _controller(workload)
    if controller is not None:
        return controller.get("uid") in facts.uids
    return not facts.uids.isdisjoint(_owner_uids(workload))


def _owner_uids(workload: JsonObject) -> frozenset[str]:
    return frozenset(owner.get("uid", "") for owner in workload["metadata"].get("ownerReferences") or ())


def _controller(workload: JsonObject) -> JsonObject | None:
    owners: Sequence[JsonObject] = workload["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _adopt(facts: ManagedJobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    if not _owns(facts, workload):
        return (OwnWorkload(workload),)
    if _finished(workload) or _updates_taken_back(facts, workload, status):
        return ()
    found = _differences(facts, workload, status)
    if not found:
        return ()
    message = truncate_message(f"{OUT_OF_SYNC_MESSAGE}: {summary(found)}")
    return (
        WarnOwner(FinishedReason.OUT_OF_SYNC, message),
        WriteStatus(
            workload,
            lambda seen: changes.finish(seen, reason=FinishedReason.OUT_OF_SYNC, message=message, now=now),
        ),
    )


def _updates_taken_back(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> bool:
    """Whether the job may still have what checks added to it, although the Workload does not list it any more.

    An eviction clears the updates of checks before the job has stopped, and a check may clear them with its verdict,
    before the eviction. The job is compared once it has stopped, with its template restored.
    """
    if status.admission is None:
        return False
    if status.is_true(WorkloadCondition.EVICTED):
        return bool(_stop(facts, workload, "")) or facts.integration.is_active(facts.job)
    return any(check.state in (CheckState.RETRY, CheckState.REJECTED) for check in status.checks)


def _resync(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> tuple[Step, ...]:
    # A job that runs, or is still stopping, carries what admission added; that must be removed before it is compared.
    why = "No matching Workload; restoring pod templates according to existent Workload"
    evicted = status.condition(WorkloadCondition.EVICTED)
    if evicted is not None and evicted.status == TRUE and status.is_true(WorkloadCondition.QUOTA_RESERVED):
        why = evicted.message  # the eviction has cleared the updates of checks that the job was started with
    stops = _stop(facts, workload, why)
    if stops or facts.integration.is_active(facts.job):
        return stops
    if status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return (DeleteWorkload(workload),)
    return (UpdateWorkload(workload),)


def _resize(facts: ManagedJobFacts, slices: SlicePlan, workload: JsonObject) -> tuple[Step, ...]:
    """The job is elastic, and may have another size than the slice by which it runs."""
    if slices.grows:
        return (CreateWorkload(replaces=workload),)
    other = workload if slices.shrinks else slices.pending if slices.resized else None
    return () if other is None else (ResizeWorkload(other, tuple(facts.sized(other)["spec"]["podSets"])),)


def _prioritize(wanted: Priority, workload: JsonObject) -> tuple[Step, ...]:
    return (SetPriority(workload, wanted),) if _reprioritized(wanted, workload, Status.of(workload)) else ()


def _reprioritized(wanted: Priority, workload: JsonObject, status: Status) -> bool:
    """Whether the Workload's class is to change; while quota is held only to another WorkloadPriorityClass."""
    reference: JsonObject = workload["spec"].get("priorityClassRef") or {}
    if reference.get("name", "") == wanted.name and reference.get("group", "") == wanted.group:
        return False  # the workload reconciler follows a new value of the same class
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return True
    return wanted.group == WORKLOAD_PRIORITY_CLASS_GROUP == reference.get("group")


def _evicted(facts: ManagedJobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    evicted = status.condition(WorkloadCondition.EVICTED)
    assert evicted is not None
    stops = _stop(facts, workload, evicted.message)
    if stops:
        return stops
    if facts.integration.is_active(facts.job) or not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return ()
    if facts.may_run_elsewhere(workload):
        return (LookAgain(),)
    # On the next cluster it starts anew, with all its pods.
    anew = (WriteReclaimable(workload, ()),) if facts.shows_remote_jobs(workload) and _reclaimable(workload) else ()
    return (*anew, WriteStatus(workload, lambda seen: changes.complete_eviction(seen, now=now)))


def _start(facts: ManagedJobFacts, workload: JsonObject, now: datetime) -> tuple[Step, ...]:
    queue = workload["status"]["admission"]["clusterQueue"]
    try:
        write = facts.integration.start(facts.job, facts.infos(facts.sized(workload)))
    except InjectionConflict as conflict:
        message = str(conflict)
        return (
            WriteStatus(
                workload,
                lambda seen: changes.finish(seen, reason=FinishedReason.FAILED_TO_START, message=message, now=now),
                event="FailedToStart",
                message=message,
            ),
        )
    if write == JobWrite():
        return ()
    return (WriteJob(write, "Started", f"Admitted by clusterQueue {queue}"),)


def _stop(facts: ManagedJobFacts, workload: JsonObject, why: str) -> tuple[Step, ...]:
    stop = facts.integration.stop(facts.job, facts.sized(workload)["spec"].get("podSets") or ())
    return () if stop is None else (WriteJob(stop, "Stopped", why),)


def _replacements(
    kind: GroupedKind, job: JsonObject, workload: JsonObject, status: Status, now: datetime
) -> tuple[Step, ...]:
    """Whether members have to be replaced; a group without them is not queued."""
    missing = kind.replacements(job, workload)
    old = status.condition(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS)
    if bool(missing) == (old is not None and old.status == TRUE) or (old is None and not missing):
        return ()

    def change(seen: Status) -> Status:
        return changes.with_condition(
            seen,
            WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS,
            value=TRUE if missing else FALSE,
            reason=_PODS_FAILED if missing else _PODS_READY,
            message=missing or "All pods of the group exist",
            now=now,
        )

    return (WriteStatus(workload, change),)


def _follow(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> tuple[Step, ...]:
    try:
        patch = changes_to_follow(facts.job, workload, admitted=status.is_true(WorkloadCondition.ADMITTED))
    except BadInput as error:
        return (WarnOwner("ErrWorkloadCompose", str(error)),)
    return () if patch is None else (FollowJob(workload, patch),)


def _reclaim(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> tuple[Step, ...]:
    if not facts.reclaims:
        return ()
    job: JsonObject | None = facts.job
    if facts.shows_remote_jobs(workload):
        if status.is_true(WorkloadCondition.EVICTED) and status.is_true(WorkloadCondition.QUOTA_RESERVED):
            return ()  # what still runs there needs no more than before
        job = facts.remote_job(workload)
        if job is None and status.cluster_name:
            return ()  # nothing is known of it
    try:
        found = () if job is None else facts.integration.reclaimable(job)
    except BadInput as error:
        return (WarnOwner("JobStatusInvalid", str(error)),)
    shown, wanted = _reclaimable(workload), {item.name: item.count for item in found}
    if status.is_true(WorkloadCondition.QUOTA_RESERVED) and not facts.elastic:
        # Others may have this quota by now: a job that is restarted as a whole gets none of it back.
        wanted = {name: max(shown.get(name, 0), wanted.get(name, 0)) for name in shown | wanted}
    if wanted == shown:
        return ()
    return (WriteReclaimable(workload, tuple(Reclaimable(name=name, count=wanted[name]) for name in wanted)),)


def _reclaimable(workload: JsonObject) -> dict[str, int]:
    return {entry["name"]: entry["count"] for entry in (workload.get("status") or {}).get("reclaimablePods") or ()}


def _pods_ready(facts: ManagedJobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    held_here = facts.held_here(workload)  # its status is that of the remote job
    runs = status.is_true(WorkloadCondition.ADMITTED) and (held_here or not facts.integration.is_suspended(facts.job))
    # What had succeeded on a former cluster is not ready on this one.
    remote = facts.remote_job(workload) if facts.shows_remote_jobs(workload) else None
    ready = runs and facts.integration.pods_ready(remote or facts.job)
    old = status.condition(WorkloadCondition.PODS_READY)
    if old is None and not runs:
        return ()  # nothing has run yet, so there is nothing to wait for
    recovering = old is not None and old.status == FALSE and old.reason == PodsReadyReason.WAIT_FOR_RECOVERY
    if ready:
        if old is not None and old.status == TRUE:
            return ()
        reason, message = PodsReadyReason.RECOVERED if recovering else PodsReadyReason.STARTED, _READY_MESSAGE
    elif runs and (recovering or (old is not None and old.status == TRUE)):
        reason, message = PodsReadyReason.WAIT_FOR_RECOVERY, _RECOVERY_MESSAGE
    else:
        reason, message = PodsReadyReason.WAIT_FOR_START, START_MESSAGE
    changed = changes.pods_ready(status, ready=ready, reason=reason, message=message, now=now)
    if changed is status:
        return ()
    return (
        WriteStatus(
            workload,
            lambda seen: changes.pods_ready(seen, ready=ready, reason=reason, message=message, now=now),
        ),
    )


def _held(workload: JsonObject) -> bool:
    return RESOURCE_IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ())


def _deleting(workload: JsonObject) -> bool:
    return "deletionTimestamp" in workload["metadata"]


def _finished(workload: JsonObject) -> bool:
    return Status.of(workload).is_true(WorkloadCondition.FINISHED)
