# SPDX-License-Identifier: Apache-2.0
"""The status of a Deployment: counts over its ReplicaSets, and whether it is available and progresses. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from devcluster.controllers import app_conditions
from devcluster.controllers.replica_set_sync import REPLICA_FAILURE
from devcluster.controllers.revision_sets import RevisionSet
from devcluster.controllers.rollout_sizes import RolloutLimits
from multikueue.api.objects import JsonObject
from multikueue.core.timestamps import format_time, parse_time

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
PAUSED: Final = "DeploymentPaused"
RESUMED: Final = "DeploymentResumed"
COMPLETE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
_NO_DEADLINE: Final = 2**31 - 1


def deadline_of(deployment: JsonObject) -> int | None:
    """The seconds without progress after which a rollout has failed; None for no deadline."""
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds is None or seconds == _NO_DEADLINE else int(seconds)


def pause_condition(deployment: JsonObject, conditions: list[JsonObject], *, now: datetime) -> list[JsonObject]:
    """The conditions after the Deployment was paused or resumed. A rollout that timed out stays timed out."""
    if deadline_of(deployment) is None:
        return conditions
    found = app_conditions.find(conditions, PROGRESSING)
    reason = found.get("reason") if found is not None else None
    if reason == TIMED_OUT:
        return conditions
    paused = bool(deployment["spec"].get("paused"))
    if paused and reason != PAUSED:
        return progressing(conditions, "Unknown", PAUSED, "Deployment is paused", now=now)
    if not paused and reason == PAUSED:
        return progressing(conditions, "Unknown", RESUMED, "Deployment is resumed", now=now)
    return conditions


def progressing(
    conditions: list[JsonObject], status: str, reason: str, message: str, *, now: datetime
) -> list[JsonObject]:
    """The conditions with this condition Progressing."""
    return app_conditions.with_condition(
        conditions, PROGRESSING, status, reason=reason, message=message, now=now, updates=True
    )


def counts_of(
    deployment: JsonObject,
    current: RevisionSet | None,
    sets: Sequence[RevisionSet],
    *,
    conditions: list[JsonObject],
    limits: RolloutLimits,
    now: datetime,
) -> JsonObject:
    """The status with its counts and the condition Available."""
    available = sum(each.count("availableReplicas") for each in sets)
    enough = available >= limits.least
    status = app_conditions.with_condition(
        conditions,
        AVAILABLE,
        "True" if enough else "False",
        reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        message="Deployment has minimum availability." if enough else "Deployment does not have minimum availability.",
        now=now,
        updates=True,
    )
    old = deployment.get("status") or {}
    counts = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(each.count("replicas") for each in sets),
        "updatedReplicas": current.count("replicas") if current is not None else 0,
        "readyReplicas": sum(each.count("readyReplicas") for each in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(each.replicas for each in sets) - available),
        "conditions": status,
    }
    made = {name: value for name, value in counts.items() if value}
    made["terminatingReplicas"] = sum(each.count("terminatingReplicas") for each in sets)
    if "collisionCount" in old:
        made["collisionCount"] = old["collisionCount"]
    return made


def with_progress(
    deployment: JsonObject,
    status: JsonObject,
    current: RevisionSet | None,
    sets: Sequence[RevisionSet],
    *,
    limits: RolloutLimits,
    now: datetime,
) -> tuple[JsonObject, float | None]:
    """The status with Progressing and ReplicaFailure, and the seconds until the deadline."""
    conditions: list[JsonObject] = status["conditions"]
    deadline = deadline_of(deployment)
    found = app_conditions.find(conditions, PROGRESSING)
    reason = found.get("reason") if found is not None else None
    what = f'ReplicaSet "{current.name}"' if current is not None else f'Deployment "{deployment["metadata"]["name"]}"'
    if deadline is None:
        conditions = app_conditions.without(conditions, PROGRESSING)
    elif not (status.get("replicas", 0) == status.get("updatedReplicas", 0) and reason == COMPLETE):
        if _is_complete(status, limits=limits):
            message = f"{what} has successfully progressed."
            conditions = progressing(conditions, "True", COMPLETE, message, now=now)
        elif _is_progressing(deployment.get("status") or {}, status):
            conditions = _progressed(conditions, found, f"{what} is progressing.", now=now)
        elif found is not None and _is_timed_out(found, deadline, now=now):
            conditions = progressing(conditions, "False", TIMED_OUT, f"{what} has timed out progressing.", now=now)
    conditions = _failures(conditions, current, sets, now=now)
    after = _until_deadline({**status, "conditions": conditions}, deadline, limits=limits, now=now)
    return {**status, "conditions": conditions}, after


def is_complete(deployment: JsonObject, *, limits: RolloutLimits) -> bool:
    """Whether the status shows a finished rollout of the current spec."""
    status = deployment.get("status") or {}
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return seen and _is_complete(status, limits=limits)


def _is_complete(status: JsonObject, *, limits: RolloutLimits) -> bool:
    names = ("updatedReplicas", "replicas", "availableReplicas")
    return all(status.get(name, 0) == limits.wanted for name in names)


def _is_progressing(old: JsonObject, new: JsonObject) -> bool:
    def outdated(status: JsonObject) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    rising = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return any(new.get(name, 0) > old.get(name, 0) for name in rising) or outdated(new) < outdated(old)


def _progressed(
    conditions: list[JsonObject], old: JsonObject | None, message: str, *, now: datetime
) -> list[JsonObject]:
    """Progressing with a new time of update: the deadline starts again."""
    others = app_conditions.without(conditions, PROGRESSING)
    made = progressing(others, "True", "ReplicaSetUpdated", message, now=now)
    if old is not None and old["status"] == "True":
        made[-1]["lastTransitionTime"] = old["lastTransitionTime"]
    return made


def _is_timed_out(condition: JsonObject, deadline: int, *, now: datetime) -> bool:
    if condition.get("reason") in (COMPLETE, TIMED_OUT):
        return condition.get("reason") == TIMED_OUT
    return parse_time(condition["lastUpdateTime"]) + timedelta(seconds=deadline) < now


def _failures(
    conditions: list[JsonObject], current: RevisionSet | None, sets: Sequence[RevisionSet], *, now: datetime
) -> list[JsonObject]:
    """ReplicaFailure of the current ReplicaSet, else of an old one."""
    ordered = [*([current] if current is not None else []), *(each for each in sets if each is not current)]
    for each in ordered:
        found = app_conditions.find((each.value.get("status") or {}).get("conditions") or (), REPLICA_FAILURE)
        if found is not None:
            reason, message = found.get("reason", ""), found.get("message", "")
            return app_conditions.with_condition(
                conditions, REPLICA_FAILURE, found["status"], reason=reason, message=message, now=now, updates=True
            )
    return app_conditions.without(conditions, REPLICA_FAILURE)


def _until_deadline(status: JsonObject, deadline: int | None, *, limits: RolloutLimits, now: datetime) -> float | None:
    found = app_conditions.find(status["conditions"], PROGRESSING)
    if deadline is None or found is None or found.get("reason") == TIMED_OUT or _is_complete(status, limits=limits):
        return None
    due = parse_time(found.get("lastUpdateTime", format_time(now))) + timedelta(seconds=deadline)
    return max(0.0, (due - now).total_seconds()) + 1.0
