# SPDX-License-Identifier: Apache-2.0
"""What a job and its Workload need next: the generic job rules in their order.

Owns `docs/spec/kueue-api.md §4.2` as one pure function of facts and time. Promises that deciding again after its steps
were carried out decides nothing, and that quota is only released when the job has no active pods. How a kind of job
is read belongs to its integration; dispatch to workers is not decided here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from manager.controllers import job_matching, job_progress
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
    RESOURCE_IN_USE_FINALIZER,
    WORKLOAD_PRIORITY_CLASS_GROUP,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason, JobEvent, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE, truncate_message
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.capabilities import GroupedKind, PodHoldingKind
from multikueue.jobs.framework.pod_set_differences import summary
from multikueue.jobs.framework.protocol import InjectionConflict, JobWrite
from multikueue.jobs.framework.slices import SlicePlan, plan_slices, took_over
from multikueue.jobs.framework.traits import Hold
from multikueue.jobs.framework.workloads import Priority, changes_to_follow

OUT_OF_SYNC_MESSAGE: Final = "The prebuilt workload is out of sync with its user job"
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
            ReleaseWorkload(workload)
            for workload in facts.workloads
            if _held(workload) and job_matching.owns(facts, workload)
        )
    if isinstance(integration, PodHoldingKind) and integration.is_empty(job) and not integration.is_active(job):
        # Scaled to zero: the next size gets another Workload.
        steps: list[Step] = [DeleteWorkload(other) for other in facts.workloads if not job_matching.is_deleting(other)]
        return (
            *steps,
            *(ReleaseWorkload(other) for other in facts.workloads if job_matching.is_deleting(other) and _held(other)),
        )
    # 4. Exactly one Workload.
    slices = plan_slices(facts.sizes, facts.workloads) if facts.elastic else None
    in_sync = False
    if slices is None:
        workload, extra, in_sync = job_matching.workload_of(facts)
    else:
        workload, extra = slices.current, list(slices.obsolete)
    steps = [DeleteWorkload(other) for other in extra if not job_matching.is_deleting(other)]
    steps += [ReleaseWorkload(other) for other in extra if job_matching.is_deleting(other) and _held(other)]
    if slices is not None:
        steps += [ReleaseWorkload(other) for other in slices.replaced if _held(other)]
    upkeep = integration.upkeep(job, workload) if isinstance(integration, GroupedKind) else ()
    if upkeep:
        return (*steps, *(WriteJob(each.write, each.reason, each.message) for each in upkeep))
    if workload is None:
        return (*steps, *_without_workload(facts))
    status = Status.of(workload)
    if facts.prebuilt and not job_matching.owns(facts, workload) and _awaits_members(facts):
        return tuple(steps)
    refusal = job_matching.refusal(facts, workload, status)
    if refusal:
        # Its pods are not those of that Workload, so nothing of the Workload goes into the job.
        stop = integration.stop(job, ())
        steps.append(WarnOwner("WorkloadRefused", refusal))
        return tuple(steps) if stop is None else (*steps, WriteJob(stop, "Stopped", refusal))
    if facts.is_group and not job_matching.is_finished(workload) and facts.uids - job_matching.owner_uids(workload):
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
    if job_matching.is_deleting(workload):
        stops = _stop(facts, workload, "Workload is deleted")
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
    if not in_sync and not job_matching.in_sync(facts, workload, status):
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
    steps += job_progress.reclaim(facts, workload, status)
    # 11. Whether its pods are ready.
    if facts.tracks_pods and not (slices is not None and slices.pending is not None):
        # While it is to grow, the pods that wait for quota are not ready.
        steps += job_progress.pods_ready(facts, workload, status, now)
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


def _awaits_members(facts: ManagedJobFacts) -> bool:
    """Whether a group waits for members, of which none runs yet: a hub of Kueue's sends them one by one."""
    integration, job = facts.integration, facts.job
    if not isinstance(integration, GroupedKind) or integration.is_active(job):
        return False
    return bool(integration.incomplete(job))


def _adopt(facts: ManagedJobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    if not job_matching.owns(facts, workload):
        return (OwnWorkload(workload),)
    if job_matching.is_finished(workload) or job_matching.updates_taken_back(facts, workload, status):
        return ()
    found = job_matching.differences(facts, workload, status)
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


def _resync(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> tuple[Step, ...]:
    # A job that runs, or is still stopping, carries what admission added; that must be removed before it is compared.
    why = "No matching Workload; restoring pod templates according to existent Workload"
    evicted = status.condition(WorkloadCondition.EVICTED)
    if evicted is not None and evicted.status == TRUE and status.is_true(WorkloadCondition.QUOTA_RESERVED):
        why = evicted.message  # the eviction has cleared the updates of checks that the job was started with
    stops = _stop(facts, workload, why)
    if stops:
        return stops
    reserved = status.is_true(WorkloadCondition.QUOTA_RESERVED)
    if facts.integration.is_active(facts.job) and not (reserved and facts.shows_remote_jobs(workload)):
        return ()  # what runs on a worker is stopped by the deletion, and holds its quota until it has stopped
    return (DeleteWorkload(workload),) if reserved else (UpdateWorkload(workload),)


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
    anew = (
        (WriteReclaimable(workload, ()),)
        if facts.shows_remote_jobs(workload) and job_progress.reclaimable(workload)
        else ()
    )
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
    """Whether members have to be replaced; a group without them is not queued. Its reason is that of an eviction."""
    missing = kind.replacements(job, workload)
    old = status.condition(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS)
    evicted = status.condition(WorkloadCondition.EVICTED)
    why = evicted.reason if evicted is not None and evicted.status == TRUE else _PODS_FAILED
    waits = old is not None and old.status == TRUE
    if (waits and old is not None and old.reason == why) if missing else not waits:
        return ()

    def change(seen: Status) -> Status:
        return changes.with_condition(
            seen,
            WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS,
            value=TRUE if missing else FALSE,
            reason=why if missing else _PODS_READY,
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


def _held(workload: JsonObject) -> bool:
    return RESOURCE_IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ())
