# SPDX-License-Identifier: Apache-2.0
"""What the model keeps of workloads, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from multikueue.api.reasons import PreemptedReason, QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine.decisions import Outcome
from multikueue.engine.resources import FlavorResource
from multikueue.engine.workloads import Workload
from tests.support.reference_engine.tree import Use

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = range(5)
NAMES = {
    0: QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED,
    1: QuotaReservedReason.WAITING_FOR_QUOTA,
    2: QuotaReservedReason.EXCEEDS_MAX_QUOTA,
    3: QuotaReservedReason.NO_MATCHING_FLAVOR,
}


@dataclass
class Held:
    """A reservation."""

    queue: str
    usage: Use
    since: datetime
    number: int
    evicted: bool
    assumed: bool = True


@dataclass
class Item:
    """A workload and where it is."""

    value: Workload
    held: Held | None = None
    waits: bool = False
    inadmissible: bool = False
    backing_off: bool = False
    tried: tuple[dict[str, int], ...] = ()
    tried_generation: int = 0
    tried_cycle: int = 0
    cycles: int = 0
    """For how many cycles the same scan has gone on since the last flush."""
    flushed: int = 0
    """How many flushes there had been then."""
    evaluated: int | None = None
    victims: frozenset[Key] = frozenset()
    preempted_for: tuple[int, ...] = ()
    preempted_on: tuple[dict[str, str], ...] = ()

    @property
    def unfinished(self) -> bool:
        """Whether some flavor was not tried."""
        return any(index != -1 for pod_set in self.tried for index in pod_set.values())

    @property
    def reservation(self) -> Held:
        """The one that it has."""
        assert self.held is not None, f"{self.value.key} holds no quota"
        return self.held


@dataclass
class Verdict:
    """What is compared of a decision."""

    workload: Key
    queue: str
    outcome: Outcome
    reason: QuotaReservedReason
    message: str
    level: int = 0
    pod_sets: tuple[tuple[str, int, tuple[tuple[str, str], ...]], ...] = ()
    tried: tuple[tuple[tuple[str, int], ...], ...] = ()
    victims: tuple[tuple[Key, PreemptedReason], ...] = ()


@dataclass
class Target:
    item: Item
    reason: PreemptedReason


@dataclass
class Found:
    """What an assignment search found."""

    pod_sets: list[dict[str, Any]] = field(default_factory=list)
    level: int = 0
    targets: list[Target] = field(default_factory=list)
    deferred: bool = False

    def usage(self) -> Use:
        total: Use = {}
        for pod_set in self.pod_sets:
            for name, choice in pod_set["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                total[fr] = total.get(fr, 0) + pod_set["requests"][name]
        return {fr: value for fr, value in total.items() if value}

    def assigned(self) -> Use:
        total: Use = {}
        for pod_set in self.pod_sets:
            for name, choice in pod_set["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                total[fr] = total.get(fr, 0) + pod_set["requests"][name]
        return total

    def flavors(self) -> tuple[dict[str, str], ...]:
        return tuple({name: choice["flavor"] for name, choice in p["choices"].items()} for p in self.pod_sets)

    def contested(self) -> list[FlavorResource]:
        found = []
        for pod_set in self.pod_sets:
            for name, choice in pod_set["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                if choice["mode"] not in (NO_FIT, FIT) and fr not in found:
                    found.append(fr)
        return found

    @staticmethod
    def coarse(pod_set: dict[str, Any]) -> int:
        if not pod_set["reasons"]:
            return FIT
        modes = [choice["mode"] for choice in pod_set["choices"].values()]
        return min((mode if mode in (NO_FIT, FIT) else PREEMPT for mode in modes), default=NO_FIT)

    def mode(self) -> int:
        return min((self.coarse(pod_set) for pod_set in self.pod_sets), default=NO_FIT)

    def message(self) -> str:
        return "; ".join(
            f"couldn't assign flavors to pod set {p['name']}: {', '.join(sorted(p['reasons']))}"
            for p in self.pod_sets
            if p["reasons"]
        )

    def no_fit_reason(self) -> QuotaReservedReason:
        return NAMES[max((p["severity"] for p in self.pod_sets if self.coarse(p) == NO_FIT), default=3)]
