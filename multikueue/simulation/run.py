# SPDX-License-Identifier: Apache-2.0
"""Cycles in virtual time.

Owns what happens before and between cycles: stopped queues give back what they hold; a reservation is taken as written;
a victim gives its quota back at once and queues again, or stays marked. Promises an end: a run stops when a cycle
changed nothing, and a bound ends a run whose workloads evict each other in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from multikueue.api.reasons import EvictedReason
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.engine import lifecycle
from multikueue.engine.decisions import Cycle, Decision, Outcome, Victim
from multikueue.simulation import stops as stopped
from multikueue.simulation.stops import Stop
from multikueue.simulation.world import World

# Apart, so that of two reservations the later one is known; small, so that no back-off ends because of it.
_BETWEEN_CYCLES: Final = timedelta(milliseconds=1)
_CYCLES_PER_WORKLOAD: Final = 50


class Evict(StrEnum):
    """What becomes of a victim before the next cycle."""

    INSTANT = "instant"
    NEVER = "never"


class NoEnd(MultikueueError):
    """Workloads evict each other in turn, for ever."""


@dataclass(frozen=True, slots=True)
class Run:
    """The cycles that found something to look at, and the moment after the last one."""

    cycles: tuple[Cycle, ...]
    now: datetime
    stops: tuple[Stop, ...] = ()


def run(world: World, *, now: datetime, cycles: int | None = None, evict: Evict = Evict.INSTANT) -> Run:
    """Run `cycles` cycles, or until one changes nothing. Raises `NoEnd`."""
    stops = stopped.apply(world, now=now) if evict is Evict.INSTANT else ()
    taken: list[Cycle] = []
    standing: set[object] = set()  # how cycles ended since the last reservation or eviction
    limit = cycles if cycles is not None else _CYCLES_PER_WORKLOAD * (len(world.workloads) + 10)
    while len(taken) < limit and world.engine.has_heads(now):
        before = _parked(world)
        cycle = world.engine.cycle(now)
        taken.append(cycle)
        if _settle(world, cycle, now=now, evict=evict):
            standing.clear()
        elif cycles is None:
            after = _parked(world)
            # A scan of flavors may go round in circles: what was seen before will come again.
            seen = (tuple(after.items()), tuple(_found(decision) for decision in cycle.decisions))
            if (not cycle.scan_progress and after == before) or seen in standing:
                return Run(tuple(taken), now, stops)
            standing.add(seen)
        now += _BETWEEN_CYCLES
    if cycles is None and len(taken) == limit:
        names = ", ".join(sorted({str(victim.workload) for cycle in taken[-20:] for victim in _victims(cycle)}))
        raise NoEnd(f"no end after {limit} cycles: these evict each other in turn: {names}")
    return Run(tuple(taken), now, stops)


def _victims(cycle: Cycle) -> list[Victim]:
    return [victim for decision in cycle.decisions for victim in decision.victims]


def _found(decision: Decision) -> tuple[object, ...]:
    tried = tuple(tuple(sorted(index.items())) for index in decision.last_tried_flavor_index)
    return decision.workload, decision.outcome, decision.message, tried


def _parked(world: World) -> dict[str, frozenset[Key]]:
    """What waits for a flush, by queue: a head that was parked lets the next one be looked at."""
    return {
        name: frozenset(position.workload for position in world.engine.pending(name) if position.parked)
        for name in world.cluster_queues
    }


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
