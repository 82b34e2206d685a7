# SPDX-License-Identifier: Apache-2.0
"""Conditions of the apps/v1 kinds: a changed one moves to the end of the list. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from multikueue.api.objects import JsonObject
from multikueue.core.timestamps import format_time


def find(conditions: Iterable[JsonObject], type_: str) -> JsonObject | None:
    """The condition of that type."""
    return next((entry for entry in conditions if entry["type"] == type_), None)


def without(conditions: Iterable[JsonObject], type_: str) -> list[JsonObject]:
    """The conditions of other types."""
    return [entry for entry in conditions if entry["type"] != type_]


def with_condition(
    conditions: list[JsonObject],
    type_: str,
    status: str,
    *,
    reason: str,
    message: str,
    now: datetime,
    updates: bool = False,
) -> list[JsonObject]:
    """The conditions with this one, unchanged if its status and reason are the same.

    `updates` adds `lastUpdateTime`, which Deployments have.
    """
    old = find(conditions, type_)
    if old is not None and (old["status"], old.get("reason")) == (status, reason):
        return conditions
    stamp = format_time(now)
    made = {
        "type": type_,
        "status": status,
        "lastTransitionTime": old["lastTransitionTime"] if old is not None and old["status"] == status else stamp,
        "reason": reason,
        "message": message,
    }
    if updates:
        made["lastUpdateTime"] = stamp
    return [*without(conditions, type_), made]
