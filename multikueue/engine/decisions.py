# SPDX-License-Identifier: Apache-2.0
"""What a cycle decided.

Owns the frozen values that the manager writes, `mkctl simulate` prints and tests compare. Their texts are those of
`docs/spec/engine.md §3.9`, §4.7 and §9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from multikueue.api.reasons import (
    ClusterQueueReason,
    CohortReason,
    LocalQueueReason,
    PreemptedReason,
    QuotaReservedReason,
)
from multikueue.core.keys import Key
from multikueue.engine.resources import Usage
from multikueue.engine.workloads import AssignedDomains


class Outcome(StrEnum):
    """The result for a head in a cycle."""

    RESERVED = "Reserved"
    PREEMPTING = "Preempting"
    PENDING = "Pending"
    INADMISSIBLE = "Inadmissible"
    SKIPPED = "Skipped"


class RequeueReason(StrEnum):
    """Why a head was requeued; decides whether it is retried at once (`docs/spec/engine.md §1.6`)."""

    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"
    PREEMPTION_GATED = "PreemptionGated"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    NO_FIT = "NoFit"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    GENERIC = "Generic"

    @property
    def lacks_quota(self) -> bool:
        """Whether there was none for the head, neither free nor by preemption."""
        return self in (RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetFlavors:
    """What a pod set gets; usage holds the total of each resource that has a flavor.

    `topology` are the domains of its pods; with `delayed_topology` they are found later.
    """

    name: str
    count: int
    flavors: Mapping[str, str]
    resource_usage: Mapping[str, int]
    topology: AssignedDomains | None = None
    delayed_topology: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A workload to evict; `message` is that of its Evicted and Preempted conditions.

    `evicted` victims were evicted by an earlier cycle: they count, and need no write. `rule` tells a user which rule
    chose the victim. `priorities` is the text that events add about both priorities.
    """

    workload: Key
    uid: str
    cluster_queue: str
    reason: PreemptedReason
    message: str = ""
    evicted: bool = False
    priority: int = 0
    priorities: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a cycle decided about one head, with the texts for its status.

    `reason` and `message` are those of QuotaReserved; without a reason the status is not written. `resource_requests`
    are the totals of each pod set, for status.resourceRequests of a pending workload. `replaced_slice` has given its
    quota to this workload and is to be finished.
    """

    workload: Key
    uid: str
    cluster_queue: str
    outcome: Outcome
    reason: QuotaReservedReason | None
    message: str
    requeue_reason: RequeueReason | None = None
    borrows: bool = False
    borrowing_level: int = 0
    pod_sets: tuple[PodSetFlavors, ...] = ()
    last_tried_flavor_index: tuple[Mapping[str, int], ...] = ()
    victims: tuple[Victim, ...] = ()
    admission_checks: tuple[str, ...] = ()
    resource_requests: tuple[tuple[str, Mapping[str, int]], ...] = ()
    flavors_considered: str = ""
    blocked_on_preemption_gates: bool = False
    replaced_slice: Key | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDecision:
    """The places of a workload that holds quota already, by pod set; or why it has none (`docs/spec/engine.md §1.12`).

    With `evict`, the text of the eviction, there is no place for pods of the `unhealthy_nodes`.
    """

    workload: Key
    uid: str
    cluster_queue: str
    unhealthy_nodes: tuple[str, ...] = ()
    topologies: tuple[tuple[str, AssignedDomains], ...] = ()
    problem: str = ""
    evict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bypassed:
    """A pending workload that became inadmissible with an equal one, unevaluated (`docs/spec/engine.md §7.12`).

    Reported once per reason, not at every cycle that skips the workload.
    """

    workload: Key
    cluster_queue: str
    reason: QuotaReservedReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One cycle; after `success` the loop runs the next cycle at once (`docs/spec/engine.md §1.11`)."""

    number: int
    decisions: tuple[Decision, ...]
    success: bool
    bypassed: tuple[Bypassed, ...] = ()
    scan_progress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueState:
    """The figures of a ClusterQueue's status (`docs/spec/engine.md §8.1`); `message` is that of Active."""

    name: str
    active: bool
    reason: ClusterQueueReason | str
    message: str
    reservation: Usage = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    borrowed_reservation: Usage = field(default_factory=dict)
    borrowed: Usage = field(default_factory=dict)
    pending: int = 0
    inadmissible: int = 0
    reserving: int = 0
    admitted: int = 0
    weighted_share: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueState:
    """The figures of a LocalQueue's status (`docs/spec/engine.md §8.2`)."""

    key: Key
    active: bool
    reason: LocalQueueReason
    message: str
    reservation: Usage = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    consumed: Mapping[str, float] | None = None
    consumed_at: datetime | None = None
    weighted_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortState:
    """A cohort's figures, and whether it is part of its tree (`docs/spec/engine.md §8.3`)."""

    name: str
    subtree_quota: Usage = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    weighted_share: int | None = None
    active: bool = True
    reason: CohortReason = CohortReason.READY
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPosition:
    """A pending workload and its position, counted from 0; an `inadmissible` one waits for a flush."""

    workload: Key
    local_queue: Key
    priority: int
    created: datetime
    position_in_cluster_queue: int
    position_in_local_queue: int
    inadmissible: bool
