# SPDX-License-Identifier: Apache-2.0
"""JSON values as errors show them, and the items of lists before and after a change."""

from __future__ import annotations

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonValue
from multikueue.devcluster.apiserver.schema.node import Node, item_key


def quoted(value: JsonValue) -> str:
    """A value as error texts show it."""
    return documents.dump(_ordered(value)).decode()


_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})
"""Whose keys a real server shows in order; those of structs stand as the type has them."""


def _ordered(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {
            name: dict(sorted(entry.items())) if name in _MAPS and isinstance(entry, dict) else _ordered(entry)
            for name, entry in value.items()
        }
    return [_ordered(entry) for entry in value] if isinstance(value, list) else value


def type_of(value: JsonValue) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**63) <= value < 2**63 else "number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def correlated(old: JsonValue, kind: Node) -> dict[object, JsonValue]:
    """The items of a list as it was, by what tells them apart; nothing when nothing does."""
    if kind.list_type != "map" or not isinstance(old, list):
        return {}
    return {item_key(kind, item): item for item in old}
