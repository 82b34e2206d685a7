# SPDX-License-Identifier: Apache-2.0
"""What `plan` answers: the rule that applied and what is to be done.

Owns frozen values. Who carries a plan out keeps one order, which two guarantees hang on: mirror the job's status,
then write the Workload's status (where the API server may still refuse a second winner), then tell clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import Intent
from multikueue.federation.facts import GateOpening, Round


class Rule(Enum):
    """The rules in the order in which they are tried; the numbers are those of `docs/spec/multikueue.md §1.5`."""

    GONE = "0 the workload is gone"
    NOT_DISPATCHED = "0 the workload has no MultiKueue check"
    CANNOT_BE_REMOTE = "0 the owner cannot be run remotely"
    FINISHED_OR_NO_QUOTA = "2 finished locally, or no quota"
    REMOTE_FINISHED = "3 finished on the worker"
    REMOTE_OUT_OF_SYNC = "3 out of sync on the worker"
    REMOTE_EVICTED = "4 evicted on the worker"
    STOPPING = "4 evicted here, still holding quota"
    WAITS_FOR_EVICTION = "4 the check says Retry or Rejected"
    LOST = "6a the chosen cluster cannot be reached"
    HELD = "6a the chosen cluster cannot be reached, and to start elsewhere would do harm"
    NO_LONGER_THERE = "6a the chosen cluster has it no longer"
    REFUSED = "6a the chosen cluster refused what it was granted"
    DRAINED = "6a the chosen cluster is being drained"
    GRANTED = "6b runs on the chosen cluster"
    GRANT = "6b one reserver is chosen"
    GRANT_AT_ONCE = "6b the one cluster with room is chosen without asking"
    DELIVER = "6b the chosen cluster has not been told yet"
    NOT_YET = "8 other checks first"
    NOMINATE = "8 clusters are nominated"


@dataclass(frozen=True, slots=True)
class Assign:
    """Put the assignment of this epoch into the cluster's mailbox, or bring it up to date.

    With intent Run only once the cluster is the Workload's clusterName: that is what keeps a job from running twice.
    """

    cluster: str
    intent: Intent = Intent.RESERVE


@dataclass(frozen=True, slots=True)
class SetIntent:
    """Change what the cluster is to do with the assignment it has."""

    cluster: str
    intent: Intent


@dataclass(frozen=True, slots=True)
class SetGate:
    """Tell the cluster where the preemption gate of the copy it has is to be."""

    cluster: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the assignment away; the agent then removes what it made for it."""

    cluster: str


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Copy the job status that the cluster reported into the user's job."""

    cluster: str


@dataclass(frozen=True, slots=True)
class DeclareStopped:
    """Write into the user's job that nothing runs: the cluster will never say it, and quota waits for it."""


Action = Assign | SetIntent | SetGate | Remove | MirrorStatus | DeclareStopped


@dataclass(frozen=True, slots=True)
class CheckUpdate:
    """The state and message the check is to have."""

    state: CheckState
    message: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The reason and message of the Workload's Finished condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """An event about the Workload."""

    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why one cluster does not run the workload yet."""

    cluster: str
    reason: str

    def __str__(self) -> str:
        return f"{self.cluster}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done now; None leaves a field of the status as it is."""

    rule: Rule
    actions: tuple[Action, ...] = ()
    check: CheckUpdate | None = None
    cluster_name: str | None = None
    nominated: tuple[str, ...] | None = None
    finish: Finish | None = None
    evict: str = ""
    """Why a workload without the check, which could say Retry, loses its admission."""
    avoid: str = ""
    """A cluster to be passed over, for `avoid_for`."""
    avoid_for: timedelta = timedelta()
    requeue_after: float | None = None
    events: tuple[PlannedEvent, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    verdicts: tuple[str, ...] = ()
    """What filters and scores said, for the record."""
    round: Round | None = None
    """The round that begins, to be kept in the Workload before anything else is written."""
    gate_opening: GateOpening | None = None
    """The turn to preempt that begins, to be kept likewise."""
    held_back: bool = False
    """Whether it is to be looked at again when a cluster has room."""

    @property
    def writes_status(self) -> bool:
        """Whether the Workload's status is to be written."""
        return (
            self.check is not None
            or self.cluster_name is not None
            or self.nominated is not None
            or self.finish is not None
            or bool(self.evict)
        )
