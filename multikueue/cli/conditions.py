# SPDX-License-Identifier: Apache-2.0
"""Conditions of objects as an API server returns them."""

from __future__ import annotations

from collections.abc import Mapping

from multikueue.api.objects import JsonObject
from multikueue.core.conditions import find_in


def condition_of(obj: Mapping[str, object] | None, kind: str) -> JsonObject:
    """The condition of that type; empty if the object does not have it."""
    status = (obj or {}).get("status")
    return (find_in(status, kind) if isinstance(status, dict) else None) or {}


def has_condition(obj: Mapping[str, object] | None, kind: str) -> bool:
    """Whether the condition of that type is True."""
    return condition_of(obj, kind).get("status") == "True"
