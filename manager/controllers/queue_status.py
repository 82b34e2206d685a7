# SPDX-License-Identifier: Apache-2.0
"""The status of a ClusterQueue, a LocalQueue or a Cohort (`docs/spec/engine.md §8`).

Pure functions from the engine's figures and the current object to the new status. Conditions of other writers are kept,
every flavor and resource of the queue is listed, also at 0, and an unchanged status is returned equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime

from manager.workload.conditions import condition_wire, conditions_of
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.core import conditions
from multikueue.core.conditions import FALSE, TRUE, Condition
from multikueue.core.quantity import Quantity
from multikueue.core.timestamps import format_time
from multikueue.engine.decisions import ClusterQueueState, CohortState, LocalQueueState
from multikueue.engine.resources import MAX_INT64, FlavorResource, Usage, text


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
    kept = {name: value for name, value in old.items() if name != "fairSharing"}
    sharing = _admission_fair_sharing(state)
    return {
        **kept,
        "conditions": _conditions(queue, active=state.active, reason=str(state.reason), message=state.message, now=now),
        "flavorsReservation": _flavors(flavors, state.reservation, None),
        "flavorsUsage": _flavors(flavors, state.usage, None),
        "pendingWorkloads": state.pending,
        "reservingWorkloads": state.reserving,
        "admittedWorkloads": state.admitted,
        **({} if sharing is None else {"fairSharing": sharing}),
    }


def _admission_fair_sharing(state: LocalQueueState) -> JsonObject | None:
    """The state from which a new leader resumes, and the share that orders; None where usage does not order."""
    if state.weighted_share is None:
        return None
    # Rounded up, so that a small usage is not shown as none.
    share = MAX_INT64 if math.isinf(state.weighted_share) else min(MAX_INT64, math.ceil(state.weighted_share))
    if state.consumed is None or state.consumed_at is None:
        return {"weightedShare": share}
    consumed = {name: str(Quantity.of_milli(math.ceil(value * 1000))) for name, value in sorted(state.consumed.items())}
    recorded = {"consumedResources": consumed, "lastUpdate": format_time(state.consumed_at)}
    return {"weightedShare": share, "admissionFairSharingStatus": recorded}


def cohort_status(cohort: JsonObject, state: CohortState, *, now: datetime) -> JsonObject:
    """status of a Cohort (§8.3): the share with fair sharing, and Active from the first time that it was not."""
    old: JsonObject = cohort.get("status") or {}
    new: JsonObject = {name: value for name, value in old.items() if name != "fairSharing"}
    if state.weighted_share is not None:
        new["fairSharing"] = {"weightedShare": state.weighted_share}
    reported = conditions.find(conditions_of(list(old.get("conditions") or ())), ACTIVE_CONDITION) is not None
    if reported or not state.active:
        new["conditions"] = _conditions(
            cohort, active=state.active, reason=str(state.reason), message=state.message, now=now
        )
    return new


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
    return [*(other for other in entries if other["type"] != ACTIVE_CONDITION), condition_wire(found)]


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
