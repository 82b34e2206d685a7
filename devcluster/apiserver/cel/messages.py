# SPDX-License-Identifier: Apache-2.0
"""Message types, which only expressions of patches can make: `Object`, `Object.spec` and the like, and `JSONPatch`.

Owns the types of their fields and the making of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.trees import Entry
from devcluster.apiserver.cel.types import DYN, STRING, Type, list_of
from devcluster.apiserver.cel.values import CelMessage, Optional, Program, Variables
from devcluster.apiserver.codec.documents import JsonValue

OBJECT: Final = Type("Object")
PATCH: Final = Type("JSONPatch")
PATCHES: Final = list_of(PATCH)
_PATCH_FIELDS: Final[Mapping[str, Type]] = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
_GO_TYPES: Final = {bool: "bool", int: "int64", float: "float64", list: "[]ref.Val", dict: "map[ref.Val]ref.Val"}


def type_of(name: str) -> Type | None:
    """The message type of that name, if there is one."""
    kind = Type(name)
    return kind if is_message(kind) else None


def is_message(kind: Type) -> bool:
    """Whether the type is a message type."""
    return kind.name in (OBJECT.name, PATCH.name) or kind.name.startswith(f"{OBJECT.name}.")


def field_of(kind: Type, name: str) -> Type | None:
    """The type of a field; only patches have a fixed set of fields."""
    return _PATCH_FIELDS.get(name) if kind == PATCH else DYN


def making(name: str, entries: Sequence[tuple[Entry, Program]]) -> Program:
    """The program that makes a message. Raises `CelError` for an unknown type."""
    if type_of(name) is None:
        raise CelError(f"undeclared reference to '{name}' (in container '')")

    def make(variables: Variables) -> JsonValue:
        fields: dict[str, JsonValue] = {}
        for entry, program in entries:
            value = program(variables)
            if entry.optional:
                if not isinstance(value, Optional):
                    raise CelError(f"cannot initialize optional entry '{entry.name}' from non-optional value {value}")
                if not value.present:
                    fields.pop(entry.name, None)
                    continue
                value = value.value
            fields[entry.name] = value
        if name == PATCH.name:
            _check_patch(fields)
        return CelMessage(name, fields)

    return make


def _check_patch(fields: Mapping[str, JsonValue]) -> None:
    for name, value in fields.items():
        if name != "value" and not isinstance(value, str):
            given = _GO_TYPES.get(type(value), "structpb.NullValue")
            raise CelError(f"unexpected type {given} for JSONPatchType '{name}' field")
