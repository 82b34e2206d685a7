# SPDX-License-Identifier: Apache-2.0
"""The type of a value: one node of a schema.

OpenAPI v3 of the built-in kinds and structural schemas of custom resources both become nodes, so that patches and field
ownership have one kind of type. Those of custom resources hold the validation rules as well.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec.documents import JsonObject, JsonValue

ABSENT: Final = object()
"""No default; `None` is a default."""


class TypeNode:
    """The type of one value. Attributes are set while a schema is read, and never after."""

    __slots__ = (
        "additional",
        "atomic",
        "default",
        "embedded",
        "format",
        "int_or_string",
        "items",
        "keys",
        "list_type",
        "merge_key",
        "merges",
        "name",
        "nullable",
        "preserve",
        "properties",
        "replaces_keys",
        "required",
        "source",
        "type",
    )

    def __init__(self) -> None:
        self.name = ""
        """The name of the definition, for errors."""
        self.type = ""
        self.format = ""
        self.properties: dict[str, TypeNode] = {}
        self.additional: TypeNode | None = None
        self.items: TypeNode | None = None
        self.required: frozenset[str] = frozenset()
        self.default: JsonValue = ABSENT
        self.preserve = False
        """Unknown fields are kept, and owned one by one."""
        self.int_or_string = False
        self.nullable = False
        self.embedded = False
        self.atomic = False
        """A map that has one owner as a whole."""
        self.list_type = "atomic"
        self.keys: tuple[str, ...] = ()
        """The keys of the items of a map-like list."""
        self.merges = False
        """A strategic merge patch merges this list."""
        self.replaces_keys = False
        """A strategic merge patch drops the keys that it does not name (`retainKeys`)."""
        self.merge_key = ""
        """The key by which a strategic merge patch merges items; empty for a list of scalars."""
        self.source: JsonObject = {}
        """The schema it was read from."""

    def field(self, name: str) -> TypeNode | None:
        """The type of a field or of a map's value; None if unknown."""
        found = self.properties.get(name)
        if found is not None:
            return found
        return self.additional if self.additional is not None else (ANY if self.preserve else None)


ANY: Final = TypeNode()
"""An unknown type: objects are granular, lists are atomic."""
ANY.preserve = True


def item_key(node: TypeNode, item: JsonValue) -> tuple[JsonValue, ...] | None:
    """The key of an item of a map-like list; None if it has none."""
    if not isinstance(item, dict):
        return None
    if len(node.keys) == 1:
        value = item.get(node.keys[0])
        if type(value) is str:
            return (value,)
    found = []
    kind = node.items
    for name in node.keys:
        value = item.get(name, ABSENT)
        if value is ABSENT:
            field = kind.properties.get(name) if kind is not None else None
            value = None if field is None or field.default is ABSENT else field.default
        found.append(value)
    return tuple(found)
