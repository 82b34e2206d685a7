# SPDX-License-Identifier: Apache-2.0
"""Conditions between objects and values.

Both directions, for every kind whose conditions the manager writes. Changes of conditions are in
`multikueue.core.conditions`.
"""

from __future__ import annotations

from collections.abc import Iterable

from multikueue.api.meta import JsonObject
from multikueue.core.conditions import Condition
from multikueue.core.timestamps import format_time, parse_time


def conditions_of(entries: Iterable[JsonObject]) -> tuple[Condition, ...]:
    """Conditions as values."""
    return tuple(
        Condition(
            type=entry["type"],
            status=entry["status"],
            reason=entry.get("reason", ""),
            message=entry.get("message", ""),
            last_transition_time=parse_time(entry["lastTransitionTime"]),
            observed_generation=entry.get("observedGeneration"),
        )
        for entry in entries
    )


def condition_wire(condition: Condition) -> JsonObject:
    """A condition as a field of an object."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": format_time(condition.last_transition_time),
        **({} if condition.observed_generation is None else {"observedGeneration": condition.observed_generation}),
    }
