# SPDX-License-Identifier: Apache-2.0
"""The result of the search for flavors for one workload.

Owns the flavor of each resource, its mode, what it would borrow, and the reasons of every flavor that was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from multikueue.api.reasons import QuotaReservedReason
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell
from multikueue.engine.resources import FlavorResource, Requests
from multikueue.engine.topology.capacity import Places
from multikueue.engine.topology.placer import PodSetPlacement


class Mode(IntEnum):
    """Whether and how a flavor's quota can be had, worst first (`docs/spec/engine.md §3.5`)."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class AssignmentMode(IntEnum):
    """The same for a whole workload; DEFERRED fits once victims of this cycle are gone."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED = 2
    FIT = 3


class Severity(IntEnum):
    """Reasons of NoFit by how useful they are to a user (`docs/spec/engine.md §9.2`)."""

    TOPOLOGY_PLACEMENT_FAILED = 0
    WAITING_FOR_QUOTA = 1
    EXCEEDS_MAX_QUOTA = 2
    NO_MATCHING_FLAVOR = 3


REASON_OF: Mapping[Severity, QuotaReservedReason] = {
    Severity.TOPOLOGY_PLACEMENT_FAILED: QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED,
    Severity.WAITING_FOR_QUOTA: QuotaReservedReason.WAITING_FOR_QUOTA,
    Severity.EXCEEDS_MAX_QUOTA: QuotaReservedReason.EXCEEDS_MAX_QUOTA,
    Severity.NO_MATCHING_FLAVOR: QuotaReservedReason.NO_MATCHING_FLAVOR,
}


@dataclass(slots=True)
class Choice:
    """The flavor of one resource; `tried` is the index of the last flavor tried, -1 if it was the last one."""

    flavor: str
    cell: Cell
    mode: Mode
    level: int
    tried: int = -1


@dataclass(slots=True)
class Attempt:
    """One flavor that was tried for the resources of one group."""

    flavor: str
    resources: tuple[str, ...]
    mode: Mode
    level: int
    reasons: list[str]
    severity: Severity
    choices: dict[str, Choice] = field(default_factory=dict)


@dataclass(slots=True)
class PodSetResult:
    """The result for one pod set; `requests` are its totals, with `pods` if the queue counts them."""

    name: str
    count: int
    requests: Requests
    choices: dict[str, Choice]
    reasons: list[str]
    attempts: list[Attempt]
    error: str = ""
    severity: Severity = Severity.NO_MATCHING_FLAVOR
    forced: AssignmentMode | None = None
    placement: PodSetPlacement | None = None
    """Where its pods are to be, if it is placed by a topology."""
    delayed: bool = False
    """Whether that is decided after the admission checks, or by a worker cluster."""

    @property
    def mode(self) -> AssignmentMode:
        """The mode of the whole pod set."""
        if self.error:
            return AssignmentMode.NO_FIT
        if self.forced is not None:
            return self.forced
        if not self.reasons:
            return AssignmentMode.FIT
        return min((assignment_mode(choice.mode) for choice in self.choices.values()), default=AssignmentMode.NO_FIT)


@dataclass(slots=True)
class Assignment:
    """The result for a workload; pod sets after one without flavors are missing."""

    pod_sets: list[PodSetResult] = field(default_factory=list)
    usage: dict[Cell, int] = field(default_factory=dict)
    level: int = 0
    deferred: bool = False

    @property
    def mode(self) -> AssignmentMode:
        """The mode of the whole workload."""
        if self.deferred:
            return AssignmentMode.DEFERRED
        return min((pod_set.mode for pod_set in self.pod_sets), default=AssignmentMode.NO_FIT)

    def amounts(self) -> Amounts:
        """The amount that it takes of each cell."""
        return [(cell, amount) for cell, amount in self.usage.items() if amount]

    def places(self) -> Places:
        """The places that it takes of topologies."""
        return tuple(place for each in self.pod_sets if each.placement is not None for place in each.placement.places)

    def contested(self) -> list[Cell]:
        """The cells that need preemption."""
        cells: dict[Cell, None] = {}
        for pod_set in self.pod_sets:
            # Where quota is free and no place is, those that have the flavor are evicted for their places.
            lacks_places = pod_set.forced is AssignmentMode.PREEMPT
            for choice in pod_set.choices.values():
                if lacks_places or assignment_mode(choice.mode) is AssignmentMode.PREEMPT:
                    cells[choice.cell] = None
        return list(cells)

    def lacking(self) -> Iterator[FlavorResource]:
        """What did not fit, in each flavor that was tried."""
        for pod_set in self.pod_sets:
            for attempt in pod_set.attempts:
                for choice in attempt.choices.values():
                    if choice.mode is not Mode.FIT:
                        yield choice.cell.key

    def tried(self) -> tuple[Mapping[str, int], ...]:
        """Where the scan stopped, by pod set and resource."""
        return tuple(
            {resource: choice.tried for resource, choice in pod_set.choices.items()} for pod_set in self.pod_sets
        )

    def no_fit_reason(self) -> QuotaReservedReason:
        """The most relevant reason over all pod sets without flavors."""
        worst = [pod_set.severity for pod_set in self.pod_sets if pod_set.mode is AssignmentMode.NO_FIT]
        return REASON_OF[max(worst, default=Severity.NO_MATCHING_FLAVOR)]


_MODES = (
    AssignmentMode.NO_FIT,
    AssignmentMode.PREEMPT,
    AssignmentMode.PREEMPT,
    AssignmentMode.PREEMPT,
    AssignmentMode.FIT,
)


def assignment_mode(mode: Mode) -> AssignmentMode:
    """The coarse mode of a fine one."""
    return _MODES[mode]
