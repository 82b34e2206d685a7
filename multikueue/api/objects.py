# SPDX-License-Identifier: Apache-2.0
"""Plain decoded objects.

Owns their type and how messages name them. Imports nothing: what works on plain objects only starts without the models.
"""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object whose shape is not ours to know."""


def describe(obj: JsonObject) -> str:
    """Kind, namespace and name, for a message."""
    metadata = obj.get("metadata")
    name = namespace = ""
    if isinstance(metadata, dict):
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    where = f"{namespace}/{name}" if namespace else name
    return f"{obj.get('kind', 'object')} {where or '(unnamed)'}"
