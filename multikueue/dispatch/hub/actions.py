# SPDX-License-Identifier: Apache-2.0
"""The result of `plan`: the rule that applied and the actions it requires.

The executor of a plan must keep one order: sync the job's status, then write the Workload's status (where the API
server may still reject a second winner), then write to the mailboxes. Two guarantees depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import Intent
from multikueue.dispatch.hub.facts import GateOpening, Round


class Rule(Enum):
    """The rules in the order in which they are tried, numbered as in `docs/spec/multikueue.md §1.5`."""

    GONE = "0 the workload was deleted"
    NOT_DISPATCHED = "0 the workload has no MultiKueue check"
    CANNOT_BE_REMOTE = "0 the owner cannot be run remotely"
    FINISHED_OR_NO_QUOTA = "2 finished locally, or no quota"
    REMOTE_FINISHED = "3 finished on the worker"
    REMOTE_OUT_OF_SYNC = "3 out of sync on the worker"
    REMOTE_EVICTED = "4 evicted on the worker"
    STOPPING = "4 evicted here, still holding quota"
    WAITS_FOR_EVICTION = "4 the check is Retry or Rejected"
    LOST = "6a the chosen cluster cannot be reached"
    HELD = "6a the chosen cluster cannot be reached, and it is unsafe to start elsewhere"
    NO_LONGER_THERE = "6a the chosen cluster no longer has it"
    REFUSED = "6a the chosen cluster refused what it was granted"
    DRAINED = "6a the chosen cluster is being drained"
    PODS_NOT_STARTED = "6a its pods do not start on the chosen cluster"
    FORBIDDEN = "6a a dispatch policy forbids the chosen cluster, which has no assignment yet"
    GRANTED = "6b granted to the chosen cluster"
    GRANT = "6b one of the clusters that reserved is chosen"
    GRANT_AT_ONCE = "6b the best cluster with free capacity is chosen without a reservation"
    TAKE_OVER = "6b the cluster that runs the job by its former slice is chosen"
    DELIVER = "6b the assignment of the chosen cluster is not written yet"
    NOT_YET = "8 other checks first"
    NOMINATE = "8 clusters are nominated"
    PROVISION = "8 clusters are asked to provision capacity"
    PROVISIONING_FAILED = "8 no cluster could provision capacity"


@dataclass(frozen=True, slots=True)
class Assign:
    """Create or update the assignment of this epoch in the cluster's mailbox.

    Intent Run only once the cluster is the Workload's clusterName: this keeps a job from running twice.
    """

    cluster: str
    intent: Intent = Intent.RESERVE


@dataclass(frozen=True, slots=True)
class SetIntent:
    """Change the intent of the cluster's assignment."""

    cluster: str
    intent: Intent


@dataclass(frozen=True, slots=True)
class SetGate:
    """Set the preemption gate of the cluster's assignment."""

    cluster: str


@dataclass(frozen=True, slots=True)
class RemoveAssignment:
    """Delete the assignment; the agent then deletes the objects it created for it."""

    cluster: str


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """Write the job status that the cluster reported into the user's job."""

    cluster: str


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """Record on the hub why the Job failed, as the cluster reported it: once, however often it is planned."""

    cluster: str


@dataclass(frozen=True, slots=True)
class DeclareStopped:
    """Write into the user's job that no pod runs: the cluster will not report it, and the quota is held until then."""


Action = Assign | SetIntent | SetGate | RemoveAssignment | SyncStatus | RecordFailure | DeclareStopped


@dataclass(frozen=True, slots=True)
class CheckUpdate:
    """The desired state and message of the check."""

    state: CheckState
    message: str


@dataclass(frozen=True, slots=True)
class DelegatedUpdate:
    """The desired state and message of a provisioning check that was delegated."""

    check: str
    state: CheckState
    message: str
    requeue_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The reason and message of the Workload's Finished condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StartUpdate:
    """The reason and message of the Workload's condition PodsStarted=False; an empty reason removes the condition."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ChangeUpdate:
    """As `StartUpdate`, of the condition ChangeForwarded=False."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """An event about the Workload."""

    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Why one cluster does not run the workload yet."""

    cluster: str
    reason: str

    def __str__(self) -> str:
        return f"{self.cluster}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPlan:
    """The actions to take now; None leaves a field of the status unchanged."""

    rule: Rule
    actions: tuple[Action, ...] = ()
    check: CheckUpdate | None = None
    delegated: tuple[DelegatedUpdate, ...] = ()
    cluster_name: str | None = None
    nominated: tuple[str, ...] | None = None
    finish: Finish | None = None
    pods_started: StartUpdate | None = None
    change_forwarded: ChangeUpdate | None = None
    evict: str = ""
    """Why a workload without a MultiKueue check is evicted."""
    avoid: str = ""
    """A cluster not to be nominated for `avoid_for`."""
    avoid_for: timedelta = timedelta()
    requeue_after: float | None = None
    events: tuple[PlannedEvent, ...] = ()
    waiting: tuple[WaitingReason, ...] = ()
    verdicts: tuple[str, ...] = ()
    """The results of filters and scores, to be recorded."""
    round: Round | None = None
    """The round that begins; stored in the Workload before anything else is written."""
    gate_opening: GateOpening | None = None
    """The turn to preempt that begins; stored in the same way."""
    held_back: bool = False
    """Whether it is planned again when a cluster has free capacity."""

    @property
    def grants(self) -> bool:
        """Whether a cluster is told to run the workload."""
        return any(isinstance(action, Assign | SetIntent) and action.intent is Intent.RUN for action in self.actions)

    @property
    def writes_status(self) -> bool:
        """Whether the Workload's status is to be written."""
        return (
            self.check is not None
            or bool(self.delegated)
            or self.cluster_name is not None
            or self.nominated is not None
            or self.finish is not None
            or self.pods_started is not None
            or self.change_forwarded is not None
            or bool(self.evict)
        )
