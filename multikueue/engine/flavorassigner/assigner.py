# SPDX-License-Identifier: Apache-2.0
"""The search for flavors (`docs/spec/engine.md §3.3` to §3.6).

Owns the order in which pod sets, resources and flavors are tried, when the search stops, and the reasons it reports.
Reads the tree and never changes it; the `Oracle` says whether preemption would help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from multikueue.api.constants import FungibilityPolicy, FungibilityPreference, PreemptionPolicy
from multikueue.engine import resources
from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue, Group
from multikueue.engine.cache.tree import Cell
from multikueue.engine.flavorassigner.assignment import Assignment, Attempt, Choice, Mode, PodSetResult, Severity
from multikueue.engine.requests import PodSetRequests
from multikueue.engine.resources import PODS, Requests
from multikueue.engine.settings import QuotaCheck, Settings
from multikueue.engine.values import Fungibility
from multikueue.engine.workloads import PodSet


class Oracle(Protocol):
    """Says whether preemption could free capacity for one flavor resource."""

    def simulate(self, cell: Cell, amount: int) -> tuple[Mode, int]:
        """NO_CANDIDATES, PREEMPT or RECLAIM, and the borrowing level that would remain."""


class Pins(NamedTuple):
    """The flavors nominated before, by pod set and resource; a recomputation uses no others."""

    flavors: Sequence[Mapping[str, str]]

    def allow(self, members: Sequence[int], resource: str, flavor: str) -> bool:
        """Whether any of the pod sets was nominated with that flavor."""
        return any(
            position < len(self.flavors) and self.flavors[position].get(resource) == flavor for position in members
        )


class FlavorLookup(Protocol):
    """What flavor choice reads in addition to quota."""

    def flavor_mismatch(
        self, cluster_queue: CachedClusterQueue, flavor: str, pod_set: PodSet, covered: frozenset[str]
    ) -> str:
        """Why the pods cannot run on the flavor; empty if they can."""

    def has_topology(self, flavor: str) -> bool:
        """Whether pods of the flavor are placed by a topology."""


class FlavorAssigner:
    """Assigns flavors to one workload of one queue."""

    def __init__(
        self,
        cluster_queue: CachedClusterQueue,
        *,
        pod_sets: Sequence[PodSet],
        settings: Settings,
        cache: FlavorLookup,
        oracle: Oracle,
        tried: Sequence[Mapping[str, int]] = (),
        pins: Pins | None = None,
        required: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        value = cluster_queue.value
        assert value is not None, f"{cluster_queue.name}: flavors need a ClusterQueue object"
        self._cluster_queue = cluster_queue
        self._pod_sets = pod_sets
        self._settings = settings
        self._cache = cache
        self._oracle = oracle
        self._tried = tried
        self._pins = pins
        self._required = required or {}
        self._fungibility: Fungibility = value.fungibility
        self._by_mode = value.fungibility.preference != FungibilityPreference.PREEMPTION_OVER_BORROWING
        policy = value.preemption
        self._preempts_while_borrowing = policy.may_borrow or (
            settings.fair_sharing and policy.reclaim_within_cohort != PreemptionPolicy.NEVER
        )
        self._ignores_undeclared = (
            settings.quota_check is QuotaCheck.IGNORE_UNDECLARED and settings.gates.quota_check_strategy
        )

    def assign(self, requests: Sequence[PodSetRequests]) -> Assignment:
        """Flavors for the pod sets with these counts."""
        assignment = Assignment()
        for members in _groups(self._pod_sets):
            totals = [self._with_pods(requests[position]) for position in members]
            if not self._assign_group(assignment, members, [requests[position] for position in members], totals):
                break
        return assignment

    def _with_pods(self, counted: PodSetRequests) -> Requests:
        if not self._cluster_queue.covers_pods:
            return counted.total
        return {**counted.total, PODS: counted.count}

    def _assign_group(
        self,
        assignment: Assignment,
        members: Sequence[int],
        counted: Sequence[PodSetRequests],
        totals: Sequence[Requests],
    ) -> bool:
        total = totals[0] if len(totals) == 1 else _sum(totals)
        chosen: dict[str, Choice] = {}
        reasons: list[str] = []
        attempts: list[Attempt] = []
        severity = Severity.NO_MATCHING_FLAVOR
        failed = False
        for resource in _order(tuple(total)):
            group = self._cluster_queue.group_of.get(resource)
            if group is None:
                if total[resource] == 0 or self._ignores_undeclared:
                    continue
                failed, reasons = True, [f"resource {resource} unavailable in ClusterQueue"]
                break
            if resource in chosen:
                continue
            group_attempts, best = self._choose(group, resource, total, members, assignment.usage)
            attempts.extend(group_attempts)
            if best is None:
                failed = True
                reasons = [reason for attempt in group_attempts for reason in attempt.reasons]
                severity = min((attempt.severity for attempt in group_attempts), default=Severity.NO_MATCHING_FLAVOR)
                break
            chosen.update(best.choices)
            if best.mode is not Mode.FIT:
                reasons.extend(reason for attempt in group_attempts for reason in attempt.reasons)
        for position, requests, wanted in zip(members, counted, totals, strict=True):
            choices = {} if failed else {name: choice for name, choice in chosen.items() if name in wanted}
            if not choices and len(members) > 1 and not failed and self._settings.gates.topology:
                # It uses no quota, and its pods are placed with those of the others.
                choices = {name: choice for name, choice in chosen.items() if self._cache.has_topology(choice.flavor)}
            assignment.pod_sets.append(
                PodSetResult(
                    name=self._pod_sets[position].name,
                    count=requests.count,
                    requests=wanted,
                    choices=choices,
                    reasons=reasons,
                    attempts=attempts,
                    severity=severity,
                )
            )
            for name, choice in choices.items():
                assignment.usage[choice.cell] = assignment.usage.get(choice.cell, 0) + wanted.get(name, 0)
        if failed:
            return False
        assignment.level = max([assignment.level, *(choice.level for choice in chosen.values())])
        return True

    def _choose(
        self,
        group: Group,
        resource: str,
        total: Requests,
        members: Sequence[int],
        used: Mapping[Cell, int],
    ) -> tuple[list[Attempt], Attempt | None]:
        wanted = [name for name in total if name in group.covered]
        names = tuple(wanted)
        options = group.options
        last = len(options) - 1
        first = self._first(members[0], resource, last)
        attempts: list[Attempt] = []
        best: Attempt | None = None
        position = first
        for position in range(first, len(options)):
            option = options[position]
            reason = self._unusable(option.flavor, group, resource, members)
            if reason:
                attempts.append(Attempt(option.flavor, names, Mode.NO_FIT, 0, [reason], Severity.NO_MATCHING_FLAVOR))
                continue
            attempt = Attempt(option.flavor, names, Mode.FIT, 0, [], Severity.TOPOLOGY_PLACEMENT_FAILED)
            for name in wanted:
                cell = option.cells[name]
                mode, level = self._check(cell, used.get(cell, 0), total[name], attempt)
                attempt.choices[name] = Choice(option.flavor, cell, mode, level)
                if self._preferred(attempt.mode, attempt.level, mode, level):
                    attempt.mode, attempt.level = mode, level
            attempts.append(attempt)
            if self._stops(attempt):
                best = attempt
                break
            if best is None:
                best = attempt if attempt.mode is not Mode.NO_FIT else None
            elif self._better(attempt, best):
                best = attempt
        if best is not None and self._settings.gates.flavor_fungibility:
            tried = -1 if position == last else position
            for choice in best.choices.values():
                choice.tried = tried
        return attempts, best

    def _first(self, member: int, resource: str, last: int) -> int:
        if not self._settings.gates.flavor_fungibility or member >= len(self._tried):
            return 0
        first = self._tried[member].get(resource, -1) + 1
        # Flavors may have been removed in the meantime: docs/spec/engine.md §12 row 3.
        return first if first <= last else 0

    def _unusable(self, flavor: str, group: Group, resource: str, members: Sequence[int]) -> str:
        if self._pins is not None and not self._pins.allow(members, resource, flavor):
            return f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
        for member in members:
            pod_set = self._pod_sets[member]
            original = self._required.get(pod_set.name, {}).get(resource)
            if original is not None and original != flavor:
                return f"could not assign {flavor} flavor since the original workload is assigned: {original}"
            reason = self._cache.flavor_mismatch(self._cluster_queue, flavor, pod_set, group.covered)
            if reason:
                return reason
        return ""

    def _check(self, cell: Cell, used: int, wanted: int, attempt: Attempt) -> tuple[Mode, int]:
        """The quota check of §3.5."""
        value = used + wanted
        flavor, resource = cell.key
        if value > cell.potential:
            attempt.reasons.append(
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests"
                f" ({resources.text(resource, used)}) + current podset request ({resources.text(resource, wanted)})"
                f" > maximum capacity ({resources.text(resource, cell.potential)})"
            )
            attempt.severity = max(attempt.severity, Severity.EXCEEDS_MAX_QUOTA)
            return Mode.NO_FIT, 0
        level, may_reclaim = quota.level(cell, value)
        available = max(0, quota.available(cell))
        if value <= available:
            return Mode.FIT, level
        attempt.reasons.append(
            f"insufficient unused quota for {resource} in flavor {flavor},"
            f" {resources.text(resource, value - available)} more needed"
        )
        if cell.nominal >= value or may_reclaim or self._preempts_while_borrowing:
            return self._oracle.simulate(cell, value)
        attempt.severity = max(attempt.severity, Severity.WAITING_FOR_QUOTA)
        return Mode.NO_FIT, level

    def _preferred(self, mode: Mode, level: int, other_mode: Mode, other_level: int) -> bool:
        """Whether the first result for a flavor is preferred to the second."""
        if mode is Mode.NO_FIT:
            return False
        if other_mode is Mode.NO_FIT:
            return True
        if not self._settings.gates.flavor_fungibility:
            return mode > other_mode
        if (mode is Mode.NO_CANDIDATES) is not (other_mode is Mode.NO_CANDIDATES):
            return other_mode is Mode.NO_CANDIDATES
        if self._by_mode:
            return mode > other_mode or (mode == other_mode and level < other_level)
        return level < other_level or (level == other_level and mode > other_mode)

    def _better(self, attempt: Attempt, best: Attempt) -> bool:
        return self._preferred(attempt.mode, attempt.level, best.mode, best.level)

    def _stops(self, attempt: Attempt) -> bool:
        """Whether the search ends with this flavor."""
        if not self._settings.gates.flavor_fungibility:
            return attempt.mode is Mode.FIT
        if attempt.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
            return False
        if attempt.mode is not Mode.FIT and self._fungibility.when_can_preempt == FungibilityPolicy.TRY_NEXT_FLAVOR:
            return False
        return not (attempt.level > 0 and self._fungibility.when_can_borrow == FungibilityPolicy.TRY_NEXT_FLAVOR)


def _groups(pod_sets: Sequence[PodSet]) -> list[list[int]]:
    """Positions of pod sets that must get the same flavors, in order of first appearance."""
    if len(pod_sets) == 1:
        return [[0]]
    groups: list[list[int]] = []
    named: dict[str, list[int]] = {}
    for position, pod_set in enumerate(pod_sets):
        name = pod_set.topology.group if pod_set.topology is not None else ""
        if name and name in named:
            named[name].append(position)
            continue
        groups.append([position])
        if name:
            named[name] = groups[-1]
    return groups


def _sum(totals: Sequence[Requests]) -> dict[str, int]:
    total: dict[str, int] = {}
    for requests in totals:
        for name, value in requests.items():
            total[name] = resources.clamp(total.get(name, 0) + value)
    return total


@lru_cache(maxsize=4096)
def _order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(resources.in_evaluation_order(names))
