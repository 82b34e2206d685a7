# SPDX-License-Identifier: Apache-2.0
"""Conditions as values and in statuses, with the rules of `docs/spec/engine.md §0.3`.

Owns when `lastTransitionTime` moves and how long a message may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"

MAX_CONDITION_MESSAGE = 32768
MAX_EVENT_MESSAGE = 1024
_CUT = " ..."
_MOST_BYTES = 4  # of one character in UTF-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One entry of `status.conditions`."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: datetime
    observed_generation: int | None = None

    def same_as(self, other: Condition) -> bool:
        """Whether a write of `other` over this one would change anything but the transition time."""
        return (self.status, self.reason, self.message, self.observed_generation) == (
            other.status,
            other.reason,
            other.message,
            other.observed_generation,
        )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Whether a condition of that type exists and is True."""
    found = find(conditions, kind)
    return found is not None and found.status == TRUE


def find_in(status: Mapping[str, Any] | None, kind: str) -> dict[str, Any] | None:
    """The condition of that type in a `status` as JSON; entries of another shape are skipped."""
    for entry in (status or {}).get("conditions") or ():
        if isinstance(entry, dict) and entry.get("type") == kind:
            return entry
    return None


def is_true_in(status: Mapping[str, Any] | None, kind: str) -> bool:
    """Whether a `status` as JSON has a condition of that type that is True."""
    found = find_in(status, kind)
    return found is not None and found.get("status") == TRUE


def set_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """`conditions` with `new` in place; the same tuple when nothing would change.

    The transition time moves only when the status flips. Messages are cut to what the API accepts.
    """
    message = truncate_message(new.message)
    if message is not new.message:
        new = replace(new, message=message)
    for position, old in enumerate(conditions):
        if old.type != new.type:
            continue
        if old.same_as(new):
            return conditions
        if old.status == new.status:
            new = replace(new, last_transition_time=old.last_transition_time)
        return (*conditions[:position], new, *conditions[position + 1 :])
    return (*conditions, new)


def truncate_message(text: str, limit: int = MAX_CONDITION_MESSAGE) -> str:
    """`text`, or its beginning and " ..." where it is longer than `limit` bytes of UTF-8."""
    if len(text) * _MOST_BYTES <= limit:
        return text
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(_CUT)].decode(errors="ignore") + _CUT
