# SPDX-License-Identifier: Apache-2.0
"""JSON values as errors show them, and the correlation of list items with the old ones."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonValue
from devcluster.apiserver.schema.node import TypeNode, item_key


def quoted(value: JsonValue) -> str:
    """A value as error texts show it."""
    text = documents.dump(_ordered(value)).decode()
    if isinstance(value, dict):  # Go escapes documents for HTML
        text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text


_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})
"""Maps whose keys a real server sorts; those of structs have the order of the type."""


def _ordered(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {
            name: dict(sorted(entry.items())) if name in _MAPS and isinstance(entry, dict) else _ordered(entry)
            for name, entry in value.items()
        }
    return [_ordered(entry) for entry in value] if isinstance(value, list) else value


_TYPES: Final = {
    str: "string",
    dict: "object",
    list: "array",
    bool: "boolean",
    float: "number",
    type(None): "null",
}


def type_of(value: JsonValue) -> str:
    """The JSON type of a value."""
    found = _TYPES.get(type(value))
    return found or ("integer" if -(2**63) <= value < 2**63 else "number")


def correlated(old: JsonValue, kind: TypeNode) -> dict[object, JsonValue]:
    """The old items of a list by their keys; empty if they have none."""
    if kind.list_type != "map" or not isinstance(old, list):
        return {}
    return {item_key(kind, item): item for item in old}
