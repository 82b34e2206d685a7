# SPDX-License-Identifier: Apache-2.0
"""The state machine of one assignment on the worker: the next action of its agent, and the status it reports.

`step` is a function of the assignment, the Job on this cluster, the capacity in the ledger and the last reported
status. A Job is only created for intent Run; a Job of an older epoch is gone before a newer one is created; an object
that this agent did not create is never changed; a final status stays, and so does a job that was reported as stopped.
`worker_agent` executes the action and reports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.hub.facts import RemoteEnd
from multikueue.dispatch.protocol.job_problems import JobFailure, StartProblem
from multikueue.dispatch.protocol.phases import JOB_GONE, PhaseEvent, advance

NO_CAPACITY: Final = "NoCapacity"
QUEUE_MISSING: Final = "LocalQueueNotFound"
DEPENDENCY_MISSING: Final = "DependencyNotFound"
DEPENDENCY_CONFLICT: Final = "DependencyConflict"
DEPENDENCY_NOT_SENT: Final = "DependencyNotSent"
NAME_CONFLICT: Final = "NameConflict"
NEWER_JOB: Final = "NewerCopy"
REMOVING_OLD_JOB: Final = "RemovingOldCopy"
LEASE_EXPIRED: Final = "LeaseExpired"
JOB_SUSPENDED: Final = "JobSuspended"
FORBIDDEN_BY_POLICY: Final = "ForbiddenByPolicy"
PROVISIONING_FAILED: Final = "ProvisioningFailed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"
_REMOVED: Final = "The job was deleted on the worker cluster"


class JobAction(StrEnum):
    """An action on the Job of this cluster."""

    CREATE = "Create"
    SUSPEND = "Suspend"
    DELETE = "Delete"
    ADOPT = "Adopt"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFacts:
    """The desired assignment. `may_run` is false if it is fenced and the lease has expired.

    `halt` is why it is to be stopped: the cluster's own queueing engine did, or its capacity is gone.
    """

    name: str
    epoch: int
    intent: Intent
    may_run: bool = True
    halt: Obstacle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteJobFacts:
    """The Job of that name on this cluster. `ours`: it was created for this assignment of this manager."""

    uid: str
    ours: bool
    adoptable: bool = False
    """It was created for another management cluster, and this assignment takes it over (ADR 0010)."""
    former: bool = False
    """It was created for the Workload of a former Job of that name, which is gone."""
    epoch: int = 0
    deleting: bool = False
    suspended: bool = False
    active: bool = True
    """Whether pods may run: a suspended Job is active until its controller reports otherwise."""
    end: RemoteEnd | None = None
    status: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStatus:
    """The status of an assignment, as its agent reports it."""

    epoch: int = 0
    phase: AssignmentPhase = AssignmentPhase.PENDING
    reason: str = ""
    message: str = ""
    job_uid: str = ""
    job_status: JsonObject | None = None
    end: RemoteEnd | None = None
    blocked_since: datetime | None = None
    """Since when only its preemption gate keeps it from preempting here; only while it is Pending."""
    start_problem: StartProblem | None = None
    """Why no pod of its job has started; only while it is Running."""
    refused_change: StartProblem | None = None
    """Why a change of its job is not made there; only while it is Running."""
    failure: JobFailure | None = None
    """The failed containers of a job that failed, once they were read; only with phase Finished."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the cluster cannot take it now: the reason and message of Refused."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningProgress:
    """How far the capacity is that the assignment asks to provision; `failure` is why there will be none."""

    provisioned: bool = False
    message: str = ""
    failure: Obstacle | None = None


@dataclass(frozen=True, slots=True)
class AssignmentStep:
    """The next action, if any, and the status to report."""

    status: ReportedStatus
    action: JobAction | None = None

    @property
    def keeps_capacity(self) -> bool:
        """Whether the ledger keeps the reservation."""
        return self.status.phase in (AssignmentPhase.RESERVED, AssignmentPhase.PROVISIONED, AssignmentPhase.RUNNING)


def wants_capacity(assignment: AssignmentFacts, reported: ReportedStatus) -> bool:
    """Whether `step` needs a reservation: not with a final status, nor for intent Evict."""
    final = reported.epoch == assignment.epoch and reported.phase in (AssignmentPhase.FINISHED, AssignmentPhase.EVICTED)
    return assignment.intent is not Intent.EVICT and not final


def may_start(assignment: AssignmentFacts, reported: ReportedStatus) -> bool:
    """Whether `step` may reserve, provision or create something for an assignment without a job."""
    if not wants_capacity(assignment, reported):
        return False
    if reported.epoch != assignment.epoch:
        return True
    refused = reported.phase is AssignmentPhase.REFUSED and assignment.intent is not Intent.RESERVE
    return not (refused or reported.job_uid or reported.phase is AssignmentPhase.RUNNING)


def step(
    assignment: AssignmentFacts,
    job: RemoteJobFacts | None,
    *,
    reported: ReportedStatus,
    shortage: str = "",
    obstacle: Obstacle | None = None,
    patient: bool = True,
    blocked_since: datetime | None = None,
    provisioning: ProvisioningProgress | None = None,
) -> AssignmentStep:
    """The next step. `shortage` is why there is no capacity, empty if it is reserved.

    `provisioning` is None for an assignment without provisioning checks. With them the capacity is provisioned before
    the job is created, whatever the ledger has.

    `blocked_since`: since when only its preemption gate keeps it from preempting. `patient`: whether an assignment that
    was granted without a reservation may still wait for capacity.
    """
    if reported.epoch != assignment.epoch:
        reported = ReportedStatus(epoch=assignment.epoch)
    if reported.phase is AssignmentPhase.FINISHED:
        return AssignmentStep(reported)
    if reported.phase is AssignmentPhase.EVICTED:
        # The hub may have dispatched it elsewhere: the job stays stopped, whoever resumed it.
        resumed = job is not None and job.ours and job.epoch == assignment.epoch and job.end is None
        return AssignmentStep(reported, _stopping(job) if job is not None and resumed else None)
    if job is not None:
        blocked = _blocked(assignment, job, reported)
        if blocked is not None:
            return blocked
    if assignment.intent is Intent.EVICT:
        return _stop(job, reported, reason="", message="")
    if job is not None:
        if not assignment.may_run:
            return _stop(job, reported, reason=LEASE_EXPIRED, message="the lease of fenced work expired")
        if assignment.halt is not None:
            return _stop(job, reported, reason=assignment.halt.reason, message=assignment.halt.message)
        if job.suspended:
            # By a user there, or by us for a lease that is valid again: nothing would resume it.
            return _stop(job, reported, reason=JOB_SUSPENDED, message="the job was suspended on the worker cluster")
        return AssignmentStep(_about(job, reported, PhaseEvent.JOB_RUNS if job.end is None else PhaseEvent.JOB_ENDED))
    if reported.job_uid or reported.phase is AssignmentPhase.RUNNING:
        if assignment.halt is not None:
            return _stop(None, reported, reason=assignment.halt.reason, message=assignment.halt.message)
        return _vanished(reported)
    granted = assignment.intent is Intent.RUN
    if (granted or assignment.intent is Intent.PROVISION) and reported.phase is AssignmentPhase.REFUSED:
        # A refused grant is never started: the hub may have dispatched it elsewhere by now. For the same reason nothing
        # is provisioned later: another cluster may have been asked.
        return AssignmentStep(reported)
    if obstacle is not None:
        return AssignmentStep(_status(reported, PhaseEvent.REFUSED, reason=obstacle.reason, message=obstacle.message))
    if provisioning is not None:
        return _provision(assignment, reported, provisioning)
    if granted and assignment.may_run and (reported.phase is AssignmentPhase.RESERVED or not shortage):
        # A reservation is kept even if capacity has shrunk since; the scheduler decides.
        return AssignmentStep(reported, JobAction.CREATE)
    if granted and shortage and not patient:
        return AssignmentStep(_status(reported, PhaseEvent.REFUSED, reason=NO_CAPACITY, message=shortage))
    if shortage:
        status = _status(reported, PhaseEvent.NO_CAPACITY, reason=NO_CAPACITY, message=shortage)
        return AssignmentStep(replace(status, blocked_since=blocked_since))
    return AssignmentStep(_status(reported, PhaseEvent.CAPACITY_HELD))


def _provision(
    assignment: AssignmentFacts, reported: ReportedStatus, provisioning: ProvisioningProgress
) -> AssignmentStep:
    """The step of an assignment with provisioning checks and without a job."""
    failure = provisioning.failure
    if failure is not None:
        return AssignmentStep(_status(reported, PhaseEvent.REFUSED, reason=failure.reason, message=failure.message))
    if not provisioning.provisioned:
        return AssignmentStep(_status(reported, PhaseEvent.CAPACITY_REQUESTED, message=provisioning.message))
    if assignment.intent is Intent.RUN and assignment.may_run:
        return AssignmentStep(reported, JobAction.CREATE)
    return AssignmentStep(_status(reported, PhaseEvent.CAPACITY_PROVISIONED, message=provisioning.message))


def remove(job: RemoteJobFacts) -> JobAction | None:
    """The action on a Job of ours whose assignment was deleted."""
    return None if job.deleting else JobAction.DELETE


def _blocked(assignment: AssignmentFacts, job: RemoteJobFacts, reported: ReportedStatus) -> AssignmentStep | None:
    """The step if a Job of that name is not the one of this epoch."""
    if job.adoptable:
        if assignment.intent is Intent.RESERVE:
            # It runs and has its capacity; it is not changed until the hub has decided.
            return AssignmentStep(_status(reported, PhaseEvent.CAPACITY_HELD))
        return AssignmentStep(reported, JobAction.ADOPT)
    if reported.phase is AssignmentPhase.RUNNING and not (job.ours and job.epoch == assignment.epoch):
        return _vanished(reported)  # ours was deleted and replaced by another one
    if job.former:
        # Its assignment is about to be removed: the hub has one Job of a name at a time.
        return AssignmentStep(
            _status(
                reported,
                PhaseEvent.NO_CAPACITY,
                reason=REMOVING_OLD_JOB,
                message="removing the job of a former Job of that name",
            )
        )
    if not job.ours:
        message = "A job of that name exists that does not belong to this assignment"
        return AssignmentStep(_status(reported, PhaseEvent.REFUSED, reason=NAME_CONFLICT, message=message))
    if job.epoch > assignment.epoch:
        # The hub was restored from a backup: the assignment of this Job is gone, and this one is of an older epoch.
        message = f"The existing job is of epoch {job.epoch}, newer than {assignment.epoch}"
        return AssignmentStep(_status(reported, PhaseEvent.REFUSED, reason=NEWER_JOB, message=message), remove(job))
    if job.epoch < assignment.epoch:
        status = _status(
            reported, PhaseEvent.NO_CAPACITY, reason=REMOVING_OLD_JOB, message=f"removing the job of epoch {job.epoch}"
        )
        return AssignmentStep(status, remove(job))
    return None


def _vanished(reported: ReportedStatus) -> AssignmentStep:
    return AssignmentStep(_status(reported, PhaseEvent.JOB_VANISHED, reason=JOB_GONE, message=_REMOVED))


def _stop(job: RemoteJobFacts | None, reported: ReportedStatus, *, reason: str, message: str) -> AssignmentStep:
    if job is None and reported.job_uid:
        # The last reported status may be of running pods, so it is not its final one.
        return AssignmentStep(_status(reported, PhaseEvent.JOB_STOPPED, reason=JOB_GONE, message=_REMOVED))
    if job is None:
        return AssignmentStep(_status(reported, PhaseEvent.JOB_STOPPED, reason=reason, message=message))
    if job.end is not None:
        return AssignmentStep(_about(job, reported, PhaseEvent.JOB_ENDED))
    if job.suspended and not job.active:
        return AssignmentStep(_about(job, reported, PhaseEvent.JOB_STOPPED, reason=reason, message=message))
    return AssignmentStep(_about(job, reported, PhaseEvent.JOB_RUNS), _stopping(job))


def _stopping(job: RemoteJobFacts) -> JobAction | None:
    return None if job.suspended or job.deleting else JobAction.SUSPEND


def _about(
    job: RemoteJobFacts, reported: ReportedStatus, event: PhaseEvent, *, reason: str = "", message: str = ""
) -> ReportedStatus:
    return ReportedStatus(
        epoch=reported.epoch,
        phase=advance(reported.phase, event),
        reason=reason,
        message=message,
        job_uid=job.uid,
        job_status=job.status,
        end=job.end,
    )


def _status(reported: ReportedStatus, event: PhaseEvent, *, reason: str = "", message: str = "") -> ReportedStatus:
    # The last status of the job stays: there may be no later one.
    return ReportedStatus(
        epoch=reported.epoch,
        phase=advance(reported.phase, event),
        reason=reason,
        message=message,
        job_uid=reported.job_uid,
        job_status=reported.job_status,
        end=reported.end,
    )
