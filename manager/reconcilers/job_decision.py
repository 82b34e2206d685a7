# SPDX-License-Identifier: Apache-2.0
"""What a job and its Workload need next: the generic job rules in their order.

Owns `docs/spec/kueue-api.md §4.2` as one pure function of facts and time. Promises that deciding again after its steps
were carried out decides nothing, and that quota is only given back when the job has no active pods. What a kind's
job looks like is the integration's business; dispatch to workers is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from manager import workload_changes
from manager.workload_status import Change, Status
from multikueue.api.constants import RESOURCE_IN_USE_FINALIZER, WORKLOAD_PRIORITY_CLASS_GROUP
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason, PodsReadyReason, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE
from multikueue.integrations.protocol import (
    InjectionConflict,
    JobIntegration,
    JobWrite,
    PodSetInfo,
    Reclaimable,
)
from multikueue.integrations.workloads import Priority

OUT_OF_SYNC_MESSAGE: Final = "The prebuilt workload is out of sync with its user job"
_READY_MESSAGE: Final = "All pods reached readiness and the workload is running"
START_MESSAGE: Final = "Not all pods are ready or succeeded"
_RECOVERY_MESSAGE: Final = "At least one pod has failed, waiting for recovery"
_STOPPED_FOR: Final = frozenset({FinishedReason.OUT_OF_SYNC, FinishedReason.FAILED_TO_START})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job that is ours to manage, and the Workloads that may stand for it.

    `workloads` are those it owns, oldest first, or the prebuilt one it names, when that exists. `infos` computes what
    the admission of a Workload adds to the job. `tracks_pods` is on with waitForPodsReady. `priority` is what the job
    asks for now; None when that cannot be told.
    """

    job: JsonObject
    integration: JobIntegration
    workloads: Sequence[JsonObject]
    prebuilt: str = ""
    tracks_pods: bool = False
    infos: Callable[[JsonObject], tuple[PodSetInfo, ...]]
    priority: Priority | None = None
    stands: Callable[[JsonObject], bool] = lambda workload: False
    """Whether a Workload may run on another cluster still, whatever the status of the job here says."""


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Make the Workload of the job."""


@dataclass(frozen=True, slots=True)
class UpdateWorkload:
    """Bring the unreserved Workload's spec to what the job says now."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class SetPriority:
    """The job names another priority class now."""

    workload: JsonObject
    priority: Priority


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """A Workload that stands for nothing."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class OwnWorkload:
    """Make the job the owner of its prebuilt Workload."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class ReleaseWorkload:
    """Let go of the finalizer."""

    workload: JsonObject


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Start or stop the job; the event says which and why."""

    write: JobWrite
    event: str
    message: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Change the Workload's status; with an event about the job when it has a name."""

    workload: JsonObject
    change: Change
    event: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class WriteReclaimable:
    """Say how many pods need their quota no more."""

    workload: JsonObject
    pods: tuple[Reclaimable, ...]


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nothing can be done yet, and nothing here may change when it can."""


Step = (
    CreateWorkload
    | UpdateWorkload
    | SetPriority
    | DeleteWorkload
    | OwnWorkload
    | ReleaseWorkload
    | WriteJob
    | WriteStatus
    | WriteReclaimable
    | LookAgain
)


def decide(facts: JobFacts, *, now: datetime) -> tuple[Step, ...]:
    """The steps to take now, in order; each leads to a change that brings the job here again."""
    job, integration = facts.job, facts.integration
    # 1. A job that is going takes its Workload along.
    if "deletionTimestamp" in job["metadata"]:
        return tuple(ReleaseWorkload(workload) for workload in facts.workloads if _held(workload))
    # 4. Exactly one Workload.
    workload, extra = _matching(facts)
    steps: list[Step] = [DeleteWorkload(other) for other in extra if not _deleting(other)]
    steps += [ReleaseWorkload(other) for other in extra if _deleting(other) and _held(other)]
    if workload is None:
        return (*steps, *_without_workload(facts))
    status = Status.of(workload)
    if facts.prebuilt:
        adopted = _adopt(facts, workload, status, now)
        if adopted:
            return (*steps, *adopted)
    # 5. Finished.
    finished = status.condition(WorkloadCondition.FINISHED)
    if finished is not None and finished.status == TRUE:
        if finished.reason in _STOPPED_FOR and integration.finished(job) is None:
            steps += _stop(facts, workload, finished.message)
        if _held(workload):
            steps.append(ReleaseWorkload(workload))
        return tuple(steps)
    # 6. The Workload is being deleted: the job stops first, so that its quota is free when nobody accounts for it.
    if _deleting(workload):
        stops = _stop(facts, workload, "The workload is deleted")
        if stops:
            return (*steps, *stops)
        if not integration.is_active(job) and _held(workload):
            # The next Workload of this job may be sent to another cluster.
            steps.append(LookAgain() if facts.stands(workload) else ReleaseWorkload(workload))
        return tuple(steps)
    # 8. The job came to its end.
    end = integration.finished(job)
    if end is not None:
        message = end.message
        steps.append(
            WriteStatus(
                workload,
                lambda seen: workload_changes.finish(seen, reason=end.reason, message=message, now=now),
                event="FinishedWorkload",
                message=f"Workload '{workload['metadata']['namespace']}/{workload['metadata']['name']}' is declared"
                " finished",
            )
        )
        return tuple(steps)
    # 4 (continued). The job changed while nothing was reserved for it.
    if not _in_sync(facts, workload, status):
        steps += _resync(facts, workload, status)
        return tuple(steps)
    if facts.priority is not None and not facts.prebuilt and _reprioritized(facts.priority, workload, status):
        steps.append(SetPriority(workload, facts.priority))
    # 10. Pods that need no quota any more.
    reclaimable = _reclaimable(facts, workload)
    if reclaimable is not None:
        steps.append(WriteReclaimable(workload, reclaimable))
    # 11. Whether its pods are ready.
    if facts.tracks_pods:
        steps += _pods_ready(facts, workload, status, now)
    # 12. Evicted: stop, and give the quota back once no pod is active.
    if status.is_true(WorkloadCondition.EVICTED):
        return (*steps, *_evicted(facts, workload, status, now))
    admitted = status.is_true(WorkloadCondition.ADMITTED)
    # 13. Admitted: start.
    if admitted and integration.is_suspended(job):
        return (*steps, *_start(facts, workload, now))
    # 14. Running without admission: stop.
    if not admitted and not integration.is_suspended(job):
        steps += _stop(facts, workload, "Not admitted by cluster queue")
    return tuple(steps)


def _matching(facts: JobFacts) -> tuple[JsonObject | None, list[JsonObject]]:
    """The Workload that stands for the job, and those that do not."""
    if facts.prebuilt:
        return (facts.workloads[0] if facts.workloads else None), []
    living = [workload for workload in facts.workloads if not _deleting(workload)]
    for workload in living:
        if _finished(workload) or _in_sync(facts, workload, Status.of(workload)):
            return workload, [other for other in facts.workloads if other is not workload]
    # None matches: the oldest is brought in line, or waited for when it is on its way out.
    chosen = living[0] if living else (facts.workloads[0] if facts.workloads else None)
    return chosen, [other for other in living if other is not chosen]


def _in_sync(facts: JobFacts, workload: JsonObject, status: Status) -> bool:
    if status.admission is None and workload["spec"].get("queueName") != facts.integration.queue_name(facts.job):
        return False
    if facts.integration.matches(facts.job, workload):
        return True
    if status.admission is None:
        return False
    # It was started, or is being stopped, with what admission added.
    try:
        return facts.integration.matches(facts.job, workload, facts.infos(workload))
    except InjectionConflict:  # checks changed their updates since; what was injected cannot be known any more
        return True


def _without_workload(facts: JobFacts) -> tuple[Step, ...]:
    job, integration = facts.job, facts.integration
    if integration.finished(job) is not None:
        return ()
    if not integration.is_suspended(job):
        stop = integration.stop(job, ())
        return () if stop is None else (WriteJob(stop, "Stopped", "No matching Workload; stopped"),)
    # 9. Only a job at rest gets a Workload; a prebuilt one is somebody else's to make.
    if facts.prebuilt or integration.is_active(job):
        return ()
    return (CreateWorkload(),)


def _adopt(facts: JobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    uid = facts.job["metadata"]["uid"]
    owners = workload["metadata"].get("ownerReferences") or ()
    if not any(owner.get("uid") == uid for owner in owners):
        if any(owner.get("controller") for owner in owners):
            return ()  # it stands for another job; ours stays suspended until that one is gone
        return (OwnWorkload(workload),)
    if _finished(workload) or _in_sync(facts, workload, status):
        return ()
    return (
        WriteStatus(
            workload,
            lambda seen: workload_changes.finish(
                seen, reason=FinishedReason.OUT_OF_SYNC, message=OUT_OF_SYNC_MESSAGE, now=now
            ),
        ),
    )


def _resync(facts: JobFacts, workload: JsonObject, status: Status) -> tuple[Step, ...]:
    # A job that runs, or is still stopping, carries what admission added; that must go before it is compared again.
    stops = _stop(facts, workload, "No matching Workload; restoring pod templates according to existent Workload")
    if stops or facts.integration.is_active(facts.job):
        return stops
    if status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return (DeleteWorkload(workload),)
    return (UpdateWorkload(workload),)


def _reprioritized(wanted: Priority, workload: JsonObject, status: Status) -> bool:
    """Whether the Workload's class is to change; while quota is held only to another WorkloadPriorityClass."""
    reference: JsonObject = workload["spec"].get("priorityClassRef") or {}
    if reference.get("name", "") == wanted.name and reference.get("group", "") == wanted.group:
        return False  # a new value of the same class is followed by the workload reconciler
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return True
    return wanted.group == WORKLOAD_PRIORITY_CLASS_GROUP == reference.get("group")


def _evicted(facts: JobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    evicted = status.condition(WorkloadCondition.EVICTED)
    assert evicted is not None
    stops = _stop(facts, workload, evicted.message)
    if stops:
        return stops
    if facts.integration.is_active(facts.job) or not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return ()
    if facts.stands(workload):
        return (LookAgain(),)
    return (WriteStatus(workload, lambda seen: workload_changes.complete_eviction(seen, now=now)),)


def _start(facts: JobFacts, workload: JsonObject, now: datetime) -> tuple[Step, ...]:
    queue = workload["status"]["admission"]["clusterQueue"]
    try:
        write = facts.integration.start(facts.job, facts.infos(workload))
    except InjectionConflict as conflict:
        message = str(conflict)
        return (
            WriteStatus(
                workload,
                lambda seen: workload_changes.finish(
                    seen, reason=FinishedReason.FAILED_TO_START, message=message, now=now
                ),
                event="FailedToStart",
                message=message,
            ),
        )
    return (WriteJob(write, "Started", f"Admitted by clusterQueue {queue}"),)


def _stop(facts: JobFacts, workload: JsonObject, why: str) -> tuple[Step, ...]:
    stop = facts.integration.stop(facts.job, workload["spec"].get("podSets") or ())
    return () if stop is None else (WriteJob(stop, "Stopped", why),)


def _reclaimable(facts: JobFacts, workload: JsonObject) -> tuple[Reclaimable, ...] | None:
    wanted = facts.integration.reclaimable(facts.job)
    shown = {entry["name"]: entry["count"] for entry in (workload.get("status") or {}).get("reclaimablePods") or ()}
    return None if {item.name: item.count for item in wanted} == shown else tuple(wanted)


def _pods_ready(facts: JobFacts, workload: JsonObject, status: Status, now: datetime) -> tuple[Step, ...]:
    runs = status.is_true(WorkloadCondition.ADMITTED) and not facts.integration.is_suspended(facts.job)
    ready = runs and facts.integration.pods_ready(facts.job)
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
    changed = workload_changes.pods_ready(status, ready=ready, reason=reason, message=message, now=now)
    if changed is status:
        return ()
    return (
        WriteStatus(
            workload,
            lambda seen: workload_changes.pods_ready(seen, ready=ready, reason=reason, message=message, now=now),
        ),
    )


def _held(workload: JsonObject) -> bool:
    return RESOURCE_IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ())


def _deleting(workload: JsonObject) -> bool:
    return "deletionTimestamp" in workload["metadata"]


def _finished(workload: JsonObject) -> bool:
    return Status.of(workload).is_true(WorkloadCondition.FINISHED)
