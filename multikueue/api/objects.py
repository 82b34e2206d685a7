# SPDX-License-Identifier: Apache-2.0
"""Decoded JSON objects: their type, and their names in messages.

Imports nothing, so that code which works on plain objects starts without the models.
"""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object of any shape."""


def controller_of(obj: JsonObject) -> JsonObject | None:
    """The owner reference of the object's controller."""
    owners: list[JsonObject] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def describe(obj: JsonObject) -> str:
    """Kind, namespace and name, for a message."""
    metadata = obj.get("metadata")
    name = namespace = ""
    if isinstance(metadata, dict):
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    where = f"{namespace}/{name}" if namespace else name
    return f"{obj.get('kind', 'object')} {where or '(unnamed)'}"
