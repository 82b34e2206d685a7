# SPDX-License-Identifier: Apache-2.0
"""What a run decided, as the document that `docs/reference/simulate.md` describes.

Owns the names and the order of its fields. Promises that the same input gives the same document, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from multikueue.api.objects import JsonObject
from multikueue.core.keys import Key
from multikueue.engine import resources
from multikueue.engine.decisions import Decision
from multikueue.engine.resources import Usage
from multikueue.simulation.run import Run
from multikueue.simulation.world import World


def document(world: World, run: Run) -> JsonObject:
    """The whole run: what each cycle decided, and how queues and cohorts stand after the last one."""
    shown: JsonObject = {
        "cycles": [
            {"cycle": number, "decisions": [_decision(decision) for decision in cycle.decisions]}
            for number, cycle in enumerate(run.cycles, start=1)
        ],
        "clusterQueues": {name: _cluster_queue(world, name) for name in sorted(world.cluster_queues)},
        "cohorts": {name: _cohort(world, name) for name in world.cohorts},
        "notQueued": [_not_queued(world, key, run) for key in sorted(_outside(world))],
    }
    if run.stops:
        shown["stopped"] = [
            {"workload": str(stop.workload), "reason": str(stop.reason), "message": stop.message} for stop in run.stops
        ]
    return shown


def _decision(decision: Decision) -> JsonObject:
    return {
        "workload": str(decision.workload),
        "clusterQueue": decision.cluster_queue,
        "outcome": decision.outcome.value,
        "reason": str(decision.reason or ""),
        "message": decision.message,
        "borrows": decision.borrows,
        "borrowingLevel": decision.borrowing_level,
        "podSets": [
            {
                "name": pod_set.name,
                "count": pod_set.count,
                "flavors": dict(sorted(pod_set.flavors.items())),
                "resourceUsage": resources.texts(pod_set.resource_usage),
            }
            for pod_set in decision.pod_sets
        ],
        "lastTriedFlavorIndex": [dict(sorted(tried.items())) for tried in decision.last_tried_flavor_index],
        "victims": [
            {"workload": str(victim.workload), "reason": str(victim.reason), "rule": victim.rule}
            for victim in decision.victims
        ],
    }


def _cluster_queue(world: World, name: str) -> JsonObject:
    state = world.engine.cluster_queue_state(name)
    waiting = world.engine.pending(name)
    return {
        "active": state.active,
        "reason": str(state.reason),
        "message": state.message,
        "usage": amounts(state.reservation),
        "borrowed": amounts(state.borrowed_reservation, zeros=False),
        "reserving": state.reserving,
        "admitted": state.admitted,
        "pending": [str(position.workload) for position in waiting if not position.parked],
        "inadmissible": [str(position.workload) for position in waiting if position.parked],
        "weightedShare": state.weighted_share or 0,
    }


def _cohort(world: World, name: str) -> JsonObject:
    state = world.engine.cohort_state(name)
    shown: JsonObject = {
        "subtreeQuota": amounts(state.subtree_quota),
        "usage": amounts(state.usage),
        "weightedShare": state.weighted_share or 0,
    }
    return shown | ({"inCycle": True} if state.in_cycle else {})


def amounts(usage: Usage, *, zeros: bool = True) -> dict[str, dict[str, str]]:
    """Amounts by flavor and resource, as text."""
    shown: dict[str, dict[str, str]] = {}
    for (flavor, resource), amount in sorted(usage.items()):
        if amount or zeros:
            shown.setdefault(flavor, {})[resource] = resources.text(resource, amount)
    return shown


def _outside(world: World) -> list[Key]:
    """Workloads that wait and are in no queue."""
    queued = {position.workload for name in world.cluster_queues for position in world.engine.pending(name)}
    return [
        key for key, value in world.workloads.items() if key not in queued and not value.reserved and not value.finished
    ]


def _not_queued(world: World, key: Key, run: Run) -> Mapping[str, str]:
    explanation = world.engine.explain(key, run.now)
    return {"workload": str(key), "reason": str(explanation.reason or ""), "message": explanation.message}
