# SPDX-License-Identifier: Apache-2.0
"""The result of a run as the document of `docs/reference/simulate.md`; equal input gives equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multikueue.api.objects import JsonObject
from multikueue.core.keys import Key
from multikueue.engine import resources
from multikueue.engine.decisions import Cycle, Decision, PendingPosition
from multikueue.engine.resources import Usage
from multikueue.simulation.run import SimulationRun
from multikueue.simulation.simulated_cluster import SimulatedCluster


def document(cluster: SimulatedCluster, run: SimulationRun) -> JsonObject:
    """The whole run: the decisions of each cycle, and queues and cohorts after the last one."""
    waiting = {name: cluster.engine.pending(name) for name in sorted(cluster.cluster_queues)}
    shown: JsonObject = {
        "cycles": [_cycle(number, cycle) for number, cycle in enumerate(run.cycles, start=1)],
        "clusterQueues": {name: _cluster_queue(cluster, name, positions) for name, positions in waiting.items()},
        "cohorts": {name: _cohort(cluster, name) for name in cluster.cohorts},
        "notQueued": [_not_queued(cluster, key, run) for key in sorted(_not_considered(cluster, waiting))],
        "endless": [str(key) for key in run.endless],
    }
    if run.stops:
        stops = [{"workload": str(stop.workload), "reason": stop.reason, "message": stop.message} for stop in run.stops]
        shown["stopped"] = stops
    return shown


def _cycle(number: int, cycle: Cycle) -> JsonObject:
    return {
        "cycle": number,
        "decisions": [_decision(decision) for decision in cycle.decisions],
        "bypassed": [
            {
                "workload": str(passed.workload),
                "clusterQueue": passed.cluster_queue,
                "reason": str(passed.reason),
                "message": passed.message,
            }
            for passed in cycle.bypassed
        ],
    }


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


def _cluster_queue(cluster: SimulatedCluster, name: str, waiting: Sequence[PendingPosition]) -> JsonObject:
    state = cluster.engine.cluster_queue_state(name)
    return {
        "active": state.active,
        "reason": str(state.reason),
        "message": state.message,
        "nominal": _nominal(cluster, name),
        "usage": amounts(state.reservation),
        "borrowed": amounts(state.borrowed_reservation, zeros=False),
        "reserving": state.reserving,
        "admitted": state.admitted,
        "pending": [str(position.workload) for position in waiting if not position.inadmissible],
        "inadmissible": [str(position.workload) for position in waiting if position.inadmissible],
        "weightedShare": state.weighted_share or 0,
    }


def _nominal(cluster: SimulatedCluster, name: str) -> dict[str, dict[str, str]]:
    value = cluster.engine.cluster_queues[name].value
    groups = value.resource_groups if value is not None else ()
    return {
        flavor.name: {resource: resources.text(resource, quota.nominal) for resource, quota in flavor.quotas.items()}
        for group in groups
        for flavor in group.flavors
    }


def _cohort(cluster: SimulatedCluster, name: str) -> JsonObject:
    state = cluster.engine.cohort_state(name)
    shown: JsonObject = {
        "subtreeQuota": amounts(state.subtree_quota),
        "usage": amounts(state.usage),
        "weightedShare": state.weighted_share or 0,
    }
    return shown | ({"inactive": f"{state.reason}: {state.message}"} if not state.active else {})


def amounts(usage: Usage, *, zeros: bool = True) -> dict[str, dict[str, str]]:
    """Amounts by flavor and resource, as text."""
    shown: dict[str, dict[str, str]] = {}
    for (flavor, resource), amount in sorted(usage.items()):
        if amount or zeros:
            shown.setdefault(flavor, {})[resource] = resources.text(resource, amount)
    return shown


def _not_considered(cluster: SimulatedCluster, waiting: Mapping[str, Sequence[PendingPosition]]) -> set[Key]:
    """Workloads that no cycle evaluates: they are in no queue, or in one that is not active."""
    queued = {position.workload for positions in waiting.values() for position in positions}
    outside = {
        key
        for key, value in cluster.workloads.items()
        if key not in queued and not value.reserved and not value.finished
    }
    for name, positions in waiting.items():
        if positions and not cluster.engine.cluster_queue_state(name).active:
            outside.update(position.workload for position in positions)
    return outside | cluster.refused.keys()


def _not_queued(cluster: SimulatedCluster, key: Key, run: SimulationRun) -> JsonObject:
    explanation = cluster.explain(key, run.now)
    return {"workload": str(key), "reason": str(explanation.reason or ""), "message": explanation.message}
