# SPDX-License-Identifier: Apache-2.0
"""Cycles in virtual time.

Owns what happens before and between cycles: stopped queues release the quota that they hold (`docs/spec/engine.md
§7.6`); a reservation counts as written; a victim releases its quota at once and is requeued, or stays marked. A run
ends when a cycle changes nothing, or when cycles repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from multikueue.api.constants import StopPolicy
from multikueue.api.reasons import EvictedReason
from multikueue.core.keys import Key
from multikueue.engine import lifecycle, workload_conditions
from multikueue.engine.decisions import Cycle, Decision, Outcome, Victim
from multikueue.engine.workloads import Workload
from multikueue.simulation.jobs import Refusal
from multikueue.simulation.simulated_cluster import SimulatedCluster

# Orders reservations in time; too small for any back-off to end because of it.
_BETWEEN_CYCLES: Final = timedelta(milliseconds=1)
_ENOUGH: Final = 3
"""Times that the same workloads hold the same quota after an eviction: the order of reservations may differ once."""


class Evict(StrEnum):
    """What happens to a victim before the next cycle."""

    INSTANT = "instant"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """The cycles that had heads, and the time after the last one.

    `endless` are the workloads that evict each other in turn, if the run ended because of them.
    """

    cycles: tuple[Cycle, ...]
    now: datetime
    stops: tuple[Refusal, ...] = ()
    endless: tuple[Key, ...] = ()


def run(
    cluster: SimulatedCluster, *, now: datetime, cycles: int | None = None, evict: Evict = Evict.INSTANT
) -> SimulationRun:
    """Run `cycles` cycles, or until one changes nothing."""
    stops = _apply_stop_policies(cluster, now=now) if evict is Evict.INSTANT else ()
    taken: list[Cycle] = []
    loops = _LoopDetector()
    while len(taken) != cycles and cluster.engine.has_heads(now):
        cycle = cluster.engine.cycle(now)
        taken.append(cycle)
        settled = _settle(cluster, cycle, now=now, evict=evict)
        now += _BETWEEN_CYCLES
        if cycles is not None:
            continue
        if settled:
            loops.reset_scans()
            endless = loops.evictions(cluster, cycle)
            if endless:
                return SimulationRun(tuple(taken), now, stops, endless)
        elif _made_inadmissible(cluster, cycle):
            loops.reset_scans()
        elif not cycle.scan_progress or loops.scan(cycle):
            break
    return SimulationRun(tuple(taken), now, stops)


class _LoopDetector:
    """Detects runs that would not end."""

    def __init__(self) -> None:
        self._scans: set[object] = set()
        self._visits: dict[int, int] = {}
        self._evicted: list[Key] = []

    def reset_scans(self) -> None:
        """Something changed."""
        self._scans.clear()

    def scan(self, cycle: Cycle) -> bool:
        """Whether the scan of flavors repeats."""
        seen = tuple(_found(decision) for decision in cycle.decisions)
        if seen in self._scans:
            return True
        self._scans.add(seen)
        return False

    def evictions(self, cluster: SimulatedCluster, cycle: Cycle) -> tuple[Key, ...]:
        """The workloads that evict each other for ever: the same ones held the same quota often enough."""
        victims = _victims(cycle)
        if not victims:
            return ()
        self._evicted.extend(victim.workload for victim in victims)
        holders = hash(frozenset(_holding(cluster)))
        self._visits[holders] = self._visits.get(holders, 0) + 1
        return tuple(sorted(set(self._evicted))) if self._visits[holders] == _ENOUGH else ()


def _holding(cluster: SimulatedCluster) -> Iterator[tuple[object, ...]]:
    for key, value in cluster.workloads.items():
        if value.reserved and value.admission is not None:
            assigned = value.admission.pod_sets
            yield key, *((pod_set.count, *sorted(pod_set.flavors.items())) for pod_set in assigned)


def _victims(cycle: Cycle) -> list[Victim]:
    return [victim for decision in cycle.decisions for victim in decision.victims]


def _found(decision: Decision) -> tuple[object, ...]:
    tried = tuple(tuple(sorted(index.items())) for index in decision.last_tried_flavor_index)
    return decision.workload, decision.outcome, decision.message, tried


def _made_inadmissible(cluster: SimulatedCluster, cycle: Cycle) -> bool:
    """Whether a head or its equals wait for a flush now, so that the next in the queue will be evaluated."""
    waiting = cluster.engine.waiting.pending
    heads = (waiting.get(decision.workload) for decision in cycle.decisions)
    return bool(cycle.bypassed) or any(head and head.queue and head.queue.is_inadmissible(head) for head in heads)


def _settle(cluster: SimulatedCluster, cycle: Cycle, *, now: datetime, evict: Evict) -> bool:
    """Apply a cycle's decisions; whether there were any."""
    changed = False
    for decision in cycle.decisions:
        if decision.outcome is Outcome.RESERVED:
            changed = True
            cluster.engine.admission_written(decision.workload, now)
            cluster.workloads[decision.workload] = lifecycle.reserved(
                cluster.workloads[decision.workload], decision, now
            )
            cluster.engine.upsert_workload(cluster.workloads[decision.workload], now)
            if decision.replaced_slice is not None:
                older = lifecycle.replaced(
                    cluster.workloads[decision.replaced_slice], cluster.workloads[decision.workload], now
                )
                cluster.workloads[decision.replaced_slice] = older
                cluster.engine.upsert_workload(older, now)
    for victim in _victims(cycle):
        if victim.evicted and evict is Evict.NEVER:
            continue
        changed = True
        value = cluster.workloads[victim.workload]
        if not value.evicted:
            value = lifecycle.evicted(value, EvictedReason.PREEMPTED, victim.message, now, preempted=victim.reason)
        if evict is Evict.INSTANT:
            value = lifecycle.released(value, now)
        cluster.workloads[victim.workload] = value
        cluster.engine.upsert_workload(value, now)
    if changed and evict is Evict.INSTANT:
        cluster.engine.flush(now)
    return changed


def _apply_stop_policies(cluster: SimulatedCluster, *, now: datetime) -> tuple[Refusal, ...]:
    """Release the quota that stopped queues hold; returns what was released, in order of name.

    Hold takes the reservation of workloads that are not admitted yet, HoldAndDrain also evicts running ones.
    """
    stops = []
    for key, value in sorted(cluster.workloads.items()):
        if not value.reserved or value.finished or value.admission is None:
            continue
        changed = _drained(cluster, value, now) or _held(cluster, value, now)
        if changed is not None:
            cluster.workloads[key], stop = changed
            cluster.engine.upsert_workload(cluster.workloads[key], now)
            stops.append(stop)
    if stops:
        cluster.engine.flush(now)
    return tuple(stops)


def _policies(cluster: SimulatedCluster, value: Workload) -> tuple[StopPolicy, StopPolicy]:
    """The stop policies of the ClusterQueue and of the LocalQueue."""
    assert value.admission is not None
    cluster_queue = cluster.engine.cluster_queues.get(value.admission.cluster_queue)
    local = cluster.engine.waiting.local_queues.get(Key(value.key.namespace, value.queue_name))
    cluster_policy = (
        cluster_queue.value.stop_policy
        if cluster_queue is not None and cluster_queue.value is not None
        else StopPolicy.NONE
    )
    return cluster_policy, local.stop_policy if local is not None else StopPolicy.NONE


def _drained(cluster: SimulatedCluster, value: Workload, now: datetime) -> tuple[Workload, Refusal] | None:
    cluster_queue, local_queue = _policies(cluster, value)
    cause = workload_conditions.drained(cluster_queue=cluster_queue, local_queue=local_queue)
    if cause is None or not value.admitted:
        return None
    reason, message = cause
    evicted = lifecycle.evicted(value, reason, message, now)
    return lifecycle.released(evicted, now), Refusal(value.key, reason, message)


def _held(cluster: SimulatedCluster, value: Workload, now: datetime) -> tuple[Workload, Refusal] | None:
    if value.admitted or value.admission is None:
        return None
    cluster_queue, local_queue = _policies(cluster, value)
    if local_queue != StopPolicy.NONE:
        reason, message = workload_conditions.queue_stopped("LocalQueue", value.queue_name)
    elif cluster_queue != StopPolicy.NONE:
        reason, message = workload_conditions.queue_stopped("ClusterQueue", value.admission.cluster_queue)
    else:
        return None
    lost = workload_conditions.quota_not_reserved(value.conditions, reason=reason, message=message, now=now)
    return replace(value, admission=None, conditions=lost), Refusal(value.key, reason, message)
