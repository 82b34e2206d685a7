# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets: which pods they select and their condition, for the API server and the controller. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.selectors import LabelSelector, Requirement

ALLOWED: Final = "DisruptionAllowed"
"""The condition of a budget."""
SUFFICIENT: Final = "SufficientPods"
INSUFFICIENT: Final = "InsufficientPods"
SYNC_FAILED: Final = "SyncFailed"
TARGET: Final = "DisruptionTarget"
"""The condition of a pod that is about to be evicted."""


def selects(budget: JsonObject, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches; an absent or invalid one matches nothing, an empty one everything."""
    selector = budget["spec"].get("selector")
    if selector is None:
        return False
    try:
        expressions = [
            Requirement(entry.get("key", ""), entry.get("operator", ""), tuple(entry.get("values") or ()))
            for entry in selector.get("matchExpressions") or ()
        ]
    except BadInput:
        return False
    known = LabelSelector.of(selector.get("matchLabels") or {}).requirements
    return LabelSelector((*known, *expressions)).matches(labels)


def condition_of(budget: JsonObject) -> JsonObject | None:
    """The condition DisruptionAllowed."""
    conditions = (budget.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == ALLOWED), None)


def expected_condition(allowed: int) -> tuple[str, str]:
    """The condition's status and reason with so many disruptions allowed."""
    return ("True", SUFFICIENT) if allowed > 0 else ("False", INSUFFICIENT)


def with_condition(status: JsonObject, *, state: str, reason: str, message: str = "", now: str) -> JsonObject:
    """The status with the condition; its time stays as long as its state does."""
    conditions = list(status.get("conditions") or ())
    place = next((at for at, entry in enumerate(conditions) if entry["type"] == ALLOWED), len(conditions))
    old = conditions[place] if place < len(conditions) else {}
    made = {
        "type": ALLOWED,
        "status": state,
        "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == state else now,
        "reason": reason,
        "message": message,
    }
    if status.get("observedGeneration"):
        made["observedGeneration"] = status["observedGeneration"]
    return {**status, "conditions": [*conditions[:place], made, *conditions[place + 1 :]]}
