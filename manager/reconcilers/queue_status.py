# SPDX-License-Identifier: Apache-2.0
"""What the status of a ClusterQueue, a LocalQueue or a Cohort shows.

Owns `docs/spec/engine.md §8` as pure functions from the engine's figures and the object as it stands to the status
wanted. Promises to keep conditions of others, to list every flavor and resource of the queue also at 0, and to hand
back an equal status when nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from manager.workload_status import conditions_of
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.core import conditions
from multikueue.core.conditions import FALSE, TRUE, Condition
from multikueue.core.timestamps import format_time
from multikueue.engine.decisions import ClusterQueueState, CohortState, LocalQueueState
from multikueue.engine.resources import FlavorResource, Usage, text


def cluster_queue_status(queue: JsonObject, state: ClusterQueueState, *, now: datetime) -> JsonObject:
    """status of a ClusterQueue (§8.1)."""
    old: JsonObject = queue.get("status") or {}
    new: JsonObject = {
        **old,
        "conditions": _conditions(queue, active=state.active, reason=str(state.reason), message=state.message, now=now),
        "flavorsReservation": _flavors(queue, state.reservation, state.borrowed_reservation),
        "flavorsUsage": _flavors(queue, state.usage, state.borrowed),
        "pendingWorkloads": state.pending,
        "reservingWorkloads": state.reserving,
        "admittedWorkloads": state.admitted,
    }
    if state.weighted_share is not None:
        new["fairSharing"] = {"weightedShare": state.weighted_share}
    else:
        new.pop("fairSharing", None)
    return new


def local_queue_status(
    queue: JsonObject, cluster_queue: JsonObject | None, state: LocalQueueState, *, now: datetime
) -> JsonObject:
    """status of a LocalQueue (§8.2); flavors are those of its ClusterQueue, none without it."""
    old: JsonObject = queue.get("status") or {}
    flavors = cluster_queue or {}
    return {
        **old,
        "conditions": _conditions(queue, active=state.active, reason=str(state.reason), message=state.message, now=now),
        "flavorsReservation": _flavors(flavors, state.reservation, None),
        "flavorsUsage": _flavors(flavors, state.usage, None),
        "pendingWorkloads": state.pending,
        "reservingWorkloads": state.reserving,
        "admittedWorkloads": state.admitted,
    }


def cohort_status(cohort: JsonObject, state: CohortState) -> JsonObject:
    """status of a Cohort (§8.3): the share with fair sharing, nothing otherwise."""
    old: JsonObject = cohort.get("status") or {}
    if state.weighted_share is None:
        return {name: value for name, value in old.items() if name != "fairSharing"}
    return {**old, "fairSharing": {"weightedShare": state.weighted_share}}


def _conditions(queue: JsonObject, *, active: bool, reason: str, message: str, now: datetime) -> list[JsonObject]:
    entries: list[JsonObject] = list((queue.get("status") or {}).get("conditions") or ())
    old = conditions_of(entries)
    wanted = Condition(
        type=ACTIVE_CONDITION,
        status=TRUE if active else FALSE,
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=queue["metadata"].get("generation"),
    )
    changed = conditions.set_condition(old, wanted)
    if changed is old:
        return entries
    found = conditions.find(changed, ACTIVE_CONDITION)
    assert found is not None
    entry = {
        "type": found.type,
        "status": found.status,
        "reason": found.reason,
        "message": found.message,
        "lastTransitionTime": format_time(found.last_transition_time),
        **({} if found.observed_generation is None else {"observedGeneration": found.observed_generation}),
    }
    return [*(other for other in entries if other["type"] != ACTIVE_CONDITION), entry]


def _flavors(queue: JsonObject, used: Usage, borrowed: Usage | None) -> list[JsonObject]:
    return [
        {"name": flavor, "resources": [_resource(flavor, name, used, borrowed) for name in sorted(resources)]}
        for flavor, resources in flavor_resources(queue)
    ]


def _resource(flavor: str, name: str, used: Usage, borrowed: Usage | None) -> JsonObject:
    of = FlavorResource(flavor, name)
    shown: JsonObject = {"name": name, "total": text(name, used.get(of, 0))}
    if borrowed is not None:
        shown["borrowed"] = text(name, borrowed.get(of, 0))
    return shown


def flavor_resources(queue: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    """Each flavor of a ClusterQueue object in its order, with the resources it has quota of."""
    spec = queue.get("spec")
    groups = spec.get("resourceGroups") if isinstance(spec, dict) else None
    for group in groups or ():
        for flavor in group.get("flavors") or ():
            yield flavor["name"], [resource["name"] for resource in flavor.get("resources") or ()]
