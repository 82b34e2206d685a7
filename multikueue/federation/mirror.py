# SPDX-License-Identifier: Apache-2.0
"""The worker's side of one assignment: what its agent does next, and what it says.

Owns the decision `step`, a function of the assignment, the Job on this cluster, the room in the ledger and what was
said before. Promises that a Job is only created for intent Run, that an older copy is gone before a newer one is made,
that nothing which is not ours is touched, and that a final word stays. Doing and saying are `worker_agent`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.federation.facts import RemoteEnd
from multikueue.federation.phases import JOB_GONE, PhaseEvent, advance

NO_ROOM: Final = "NoRoom"
NAME_CONFLICT: Final = "NameConflict"
NEWER_COPY: Final = "NewerCopy"
REMOVING_OLD_COPY: Final = "RemovingOldCopy"
LEASE_EXPIRED: Final = "LeaseExpired"
SUSPENDED_THERE: Final = "JobSuspended"
_REMOVED: Final = "The job was removed on the worker cluster"


class JobAction(StrEnum):
    """What is to be done to the Job of this cluster."""

    CREATE = "Create"
    SUSPEND = "Suspend"
    DELETE = "Delete"
    ADOPT = "Adopt"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFacts:
    """The wish. `may_run` is false when fenced work has no valid lease any more.

    `halt` says why the cluster's own queueing engine has stopped it, if it has.
    """

    name: str
    epoch: int
    intent: Intent
    may_run: bool = True
    halt: Obstacle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The Job of that name on this cluster. `ours`: it was made for this very assignment by this manager."""

    uid: str
    ours: bool
    adoptable: bool = False
    """It is the one of another management cluster that this assignment is to go on with (ADR 0010)."""
    epoch: int = 0
    deleting: bool = False
    suspended: bool = False
    live: bool = True
    """Whether pods run, or may run: a suspended Job is live until its controller says otherwise."""
    end: RemoteEnd | None = None
    status: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What is said about an assignment, and what was said before."""

    epoch: int = 0
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    job_uid: str = ""
    job_status: JsonObject | None = None
    end: RemoteEnd | None = None
    blocked_since: datetime | None = None
    """Since when nothing but its preemption gate keeps it from preempting others here; only while it is Pending."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the cluster cannot take it at all, as it is now: a reason and a message of Refused."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Step:
    """The one thing to do, if any, and what to say."""

    word: Word
    action: JobAction | None = None

    @property
    def keeps_room(self) -> bool:
        """Whether the ledger goes on holding room."""
        return self.word.phase in (Phase.RESERVED, Phase.RUNNING)


def wants_room(assignment: AssignmentFacts, said: Word) -> bool:
    """Whether the ledger is to be asked before `step`: not for a word that is final, nor for work that is to stop."""
    final = said.epoch == assignment.epoch and said.phase in (Phase.FINISHED, Phase.EVICTED)
    return assignment.intent is not Intent.EVICT and not final


def step(
    assignment: AssignmentFacts,
    job: JobFacts | None,
    *,
    said: Word,
    shortage: str = "",
    obstacle: Obstacle | None = None,
    patient: bool = True,
    blocked_since: datetime | None = None,
) -> Step:
    """The next step. `shortage` says why there is no room, and is empty when room is held.

    `blocked_since` is since when only its preemption gate keeps it from making that room. `patient` says whether what
    was granted without asking may still wait for room here.
    """
    if said.epoch != assignment.epoch:
        said = Word(epoch=assignment.epoch)
    if said.phase in (Phase.FINISHED, Phase.EVICTED):
        return Step(said)
    if job is not None:
        blocked = _blocked(assignment, job, said)
        if blocked is not None:
            return blocked
    if assignment.intent is Intent.EVICT:
        return _stop(job, said, reason="", message="")
    if job is not None:
        if not assignment.may_run:
            return _stop(job, said, reason=LEASE_EXPIRED, message="the lease of fenced work ran out")
        if assignment.halt is not None:
            return _stop(job, said, reason=assignment.halt.reason, message=assignment.halt.message)
        if job.suspended:
            # By somebody there, or by us for a lease that has come back since: nobody would ever resume it.
            return _stop(job, said, reason=SUSPENDED_THERE, message="the job was suspended on the worker cluster")
        return Step(_about(job, said, PhaseEvent.JOB_RUNS if job.end is None else PhaseEvent.JOB_ENDED))
    if said.job_uid or said.phase is Phase.RUNNING:
        return _vanished(said)
    granted = assignment.intent is Intent.RUN
    if granted and said.phase is Phase.REFUSED:
        # The hub may have sent it elsewhere by now: what was refused of a grant is never started after all.
        return Step(said)
    if obstacle is not None:
        return Step(_say(said, PhaseEvent.REFUSED, reason=obstacle.reason, message=obstacle.message))
    if granted and assignment.may_run and (said.phase is Phase.RESERVED or not shortage):
        # Promised is promised: the room was there then, and the scheduler has the last word anyway.
        return Step(said, JobAction.CREATE)
    if granted and shortage and not patient:
        return Step(_say(said, PhaseEvent.REFUSED, reason=NO_ROOM, message=shortage))
    if shortage:
        word = _say(said, PhaseEvent.NO_ROOM, reason=NO_ROOM, message=shortage)
        return Step(replace(word, blocked_since=blocked_since))
    return Step(_say(said, PhaseEvent.ROOM_HELD))


def remove(job: JobFacts) -> JobAction | None:
    """What happens to a Job of ours whose assignment is gone."""
    return None if job.deleting else JobAction.DELETE


def _blocked(assignment: AssignmentFacts, job: JobFacts, said: Word) -> Step | None:
    """A Job of that name that is not the one of this epoch."""
    if job.adoptable:
        if assignment.intent is Intent.RESERVE:
            # What runs has its room; it stays as it is until the hub has decided.
            return Step(_say(said, PhaseEvent.ROOM_HELD))
        return Step(said, JobAction.ADOPT)
    if said.phase is Phase.RUNNING and not (job.ours and job.epoch == assignment.epoch):
        return _vanished(said)  # ours was removed, and somebody made another in its place
    if not job.ours:
        message = "A job of that name is there that does not belong to this assignment"
        return Step(_say(said, PhaseEvent.REFUSED, reason=NAME_CONFLICT, message=message))
    if job.epoch > assignment.epoch:
        # The hub was put back in time and has forgotten this copy: its assignment is gone, though another stands here.
        message = f"The job there is of epoch {job.epoch}, newer than {assignment.epoch}"
        return Step(_say(said, PhaseEvent.REFUSED, reason=NEWER_COPY, message=message), remove(job))
    if job.epoch < assignment.epoch:
        word = _say(said, PhaseEvent.NO_ROOM, reason=REMOVING_OLD_COPY, message=f"of epoch {job.epoch}")
        return Step(word, remove(job))
    return None


def _vanished(said: Word) -> Step:
    return Step(_say(said, PhaseEvent.JOB_VANISHED, reason=JOB_GONE, message=_REMOVED))


def _stop(job: JobFacts | None, said: Word, *, reason: str, message: str) -> Step:
    if job is None and said.job_uid:
        # What was reported of it last may be that its pods run: not to be taken for how it ended.
        return Step(_say(said, PhaseEvent.JOB_STOPPED, reason=JOB_GONE, message=_REMOVED))
    if job is None:
        return Step(_say(said, PhaseEvent.JOB_STOPPED, reason=reason, message=message))
    if job.end is not None:
        return Step(_about(job, said, PhaseEvent.JOB_ENDED))
    if job.suspended and not job.live:
        return Step(_about(job, said, PhaseEvent.JOB_STOPPED, reason=reason, message=message))
    act = None if job.suspended or job.deleting else JobAction.SUSPEND
    return Step(_about(job, said, PhaseEvent.JOB_RUNS), act)


def _about(job: JobFacts, said: Word, event: PhaseEvent, *, reason: str = "", message: str = "") -> Word:
    return Word(
        epoch=said.epoch,
        phase=advance(said.phase, event),
        reason=reason,
        message=message,
        job_uid=job.uid,
        job_status=job.status,
        end=job.end,
    )


def _say(said: Word, event: PhaseEvent, *, reason: str = "", message: str = "") -> Word:
    # What was reported of the job stays in the word: it may be the last that anybody hears of it.
    return Word(
        epoch=said.epoch,
        phase=advance(said.phase, event),
        reason=reason,
        message=message,
        job_uid=said.job_uid,
        job_status=said.job_status,
        end=said.end,
    )
