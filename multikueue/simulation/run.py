# SPDX-License-Identifier: Apache-2.0
"""Cycles in virtual time.

Owns what happens before and between cycles: stopped queues give back what they hold; a reservation is taken as written;
a victim gives its quota back at once and queues again, or stays marked. Promises an end: a run stops when a cycle
changed nothing, or when it goes round in circles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from multikueue.api.reasons import EvictedReason
from multikueue.core.keys import Key
from multikueue.engine import lifecycle
from multikueue.engine.decisions import Cycle, Decision, Outcome, Victim
from multikueue.simulation import stops as stopped
from multikueue.simulation.refusals import Refusal
from multikueue.simulation.world import World

# Apart, so that of two reservations the later one is known; small, so that no back-off ends because of it.
_BETWEEN_CYCLES: Final = timedelta(milliseconds=1)
_ENOUGH: Final = 3
"""Times that the same workloads hold the same quota after an eviction: the order of reservations may differ once."""


class Evict(StrEnum):
    """What becomes of a victim before the next cycle."""

    INSTANT = "instant"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Run:
    """The cycles that found something to look at, and the moment after the last one.

    `endless` are the workloads that evict each other in turn, where a run was ended because of them.
    """

    cycles: tuple[Cycle, ...]
    now: datetime
    stops: tuple[Refusal, ...] = ()
    endless: tuple[Key, ...] = ()


def run(world: World, *, now: datetime, cycles: int | None = None, evict: Evict = Evict.INSTANT) -> Run:
    """Run `cycles` cycles, or until one changes nothing."""
    stops = stopped.apply(world, now=now) if evict is Evict.INSTANT else ()
    taken: list[Cycle] = []
    circles = _Circles()
    while len(taken) != cycles and world.engine.has_heads(now):
        cycle = world.engine.cycle(now)
        taken.append(cycle)
        settled = _settle(world, cycle, now=now, evict=evict)
        now += _BETWEEN_CYCLES
        if cycles is not None:
            continue
        if settled:
            circles.forget_scans()
            endless = circles.evictions(world, cycle)
            if endless:
                return Run(tuple(taken), now, stops, endless)
        elif _parked_some(world, cycle):
            circles.forget_scans()
        elif not cycle.scan_progress or circles.scan(cycle):
            break
    return Run(tuple(taken), now, stops)


class _Circles:
    """What keeps a run from coming to an end."""

    def __init__(self) -> None:
        self._scans: set[object] = set()
        self._visits: dict[int, int] = {}
        self._evicted: list[Key] = []

    def forget_scans(self) -> None:
        """Something changed."""
        self._scans.clear()

    def scan(self, cycle: Cycle) -> bool:
        """Whether the scan of flavors goes round in circles: what was seen before will come again."""
        seen = tuple(_found(decision) for decision in cycle.decisions)
        if seen in self._scans:
            return True
        self._scans.add(seen)
        return False

    def evictions(self, world: World, cycle: Cycle) -> tuple[Key, ...]:
        """Who evicts each other for ever: the same workloads held the same quota often enough before."""
        victims = _victims(cycle)
        if not victims:
            return ()
        self._evicted.extend(victim.workload for victim in victims)
        standing = hash(frozenset(_holding(world)))
        self._visits[standing] = self._visits.get(standing, 0) + 1
        return tuple(sorted(set(self._evicted))) if self._visits[standing] == _ENOUGH else ()


def _holding(world: World) -> Iterator[tuple[object, ...]]:
    for key, value in world.workloads.items():
        if value.reserved and value.admission is not None:
            assigned = value.admission.pod_sets
            yield key, *((pod_set.count, *sorted(pod_set.flavors.items())) for pod_set in assigned)


def _victims(cycle: Cycle) -> list[Victim]:
    return [victim for decision in cycle.decisions for victim in decision.victims]


def _found(decision: Decision) -> tuple[object, ...]:
    tried = tuple(tuple(sorted(index.items())) for index in decision.last_tried_flavor_index)
    return decision.workload, decision.outcome, decision.message, tried


def _parked_some(world: World, cycle: Cycle) -> bool:
    """Whether a head or its equals wait for a flush now, so that the next in the queue will be looked at."""
    waiting = world.engine.waiting.pending
    heads = (waiting.get(decision.workload) for decision in cycle.decisions)
    return bool(cycle.bypassed) or any(head and head.queue and head.queue.is_parked(head) for head in heads)


def _settle(world: World, cycle: Cycle, *, now: datetime, evict: Evict) -> bool:
    """Carry out a cycle's decisions; whether there were any."""
    changed = False
    for decision in cycle.decisions:
        if decision.outcome is Outcome.RESERVED:
            changed = True
            world.engine.admission_written(decision.workload, now)
            world.workloads[decision.workload] = lifecycle.reserved(world.workloads[decision.workload], decision, now)
            world.engine.upsert_workload(world.workloads[decision.workload], now)
    for victim in _victims(cycle):
        if victim.evicted and evict is Evict.NEVER:
            continue
        changed = True
        value = world.workloads[victim.workload]
        if not value.evicted:
            value = lifecycle.evicted(value, EvictedReason.PREEMPTED, victim.message, now, preempted=victim.reason)
        if evict is Evict.INSTANT:
            value = lifecycle.released(value, now)
        world.workloads[victim.workload] = value
        world.engine.upsert_workload(value, now)
    if changed and evict is Evict.INSTANT:
        world.engine.flush(now)
    return changed
