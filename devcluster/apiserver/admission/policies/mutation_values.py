# SPDX-License-Identifier: Apache-2.0
"""Values of mutations as JSON values.

A real server converts the values of a configuration one level deep: a null, or a map in a list or in another map, that
the expression makes itself stays a value that fits no type of the schema.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.cel.library.formatting import text_of
from devcluster.apiserver.cel.library.functions import type_name
from devcluster.apiserver.cel.values import CelMessage, MadeMap, Optional
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.patch.strategic import go_text
from devcluster.apiserver.schema.node import ANY, TypeNode

_UNMARSHALLED: Final = "JSONPath valueExpression evaluated to a type that could not marshal to JSON: "
_SAFE: Final = 2**53 - 1
"""The biggest number that JSON holds exactly for all readers."""


class MutationFailed(Exception):
    """A mutation that cannot be made; the text says why."""


def as_patch_value(value: JsonValue) -> JsonValue:
    """The value of an operation of a JSON patch. Raises `MutationFailed`."""
    if isinstance(value, CelMessage):
        return {name: _of_message(entry) for name, entry in value.fields.items()}
    if isinstance(value, dict):
        return {_key(key): _of_container(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_of_container(item) for item in value]
    return _scalar(value)


def _of_message(value: JsonValue) -> JsonValue:
    """The value of a message's field, which is converted one level deep."""
    if isinstance(value, MadeMap):
        return {_key(key): _of_field(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_of_field(item) for item in value]
    return _of_field(value)


def _of_field(value: JsonValue) -> JsonValue:
    if isinstance(value, MadeMap):
        raise _unconverted("map[ref.Val]ref.Val")
    if value is None:
        raise _unconverted("structpb.NullValue")
    if isinstance(value, datetime | timedelta):
        raise _unconverted("time.Time" if isinstance(value, datetime) else "time.Duration")
    if isinstance(value, int) and not isinstance(value, bool):
        return int(float(value))
    return as_patch_value(value)


def _of_container(value: JsonValue) -> JsonValue:
    """The value of an item of a list or map; a real server breaks off without an answer if it is a message."""
    if isinstance(value, CelMessage):
        raise errors.internal(f"a {value.type} in a list or a map of a JSON patch")
    return as_patch_value(value)


def _key(key: JsonValue) -> str:
    if isinstance(key, str):
        return key
    raise MutationFailed(f"{_UNMARSHALLED}unsupported type conversion from '{type_name(key)}' to string")


def _scalar(value: JsonValue) -> JsonValue:
    match value:
        case Optional(True, inner):
            return as_patch_value(inner)
        case bool() | str() | float() | None:
            return value
        case int():
            return value if abs(value) <= _SAFE else str(value)
        case datetime() | timedelta():
            return text_of(value)
    raise MutationFailed(f"{_UNMARSHALLED}type conversion error from '{type_name(value)}' to '*structpb.Value'")


def _unconverted(kind: str) -> MutationFailed:
    return MutationFailed(f"{_UNMARSHALLED}proto:\u00a0invalid type: {kind}")


def as_configuration(made: CelMessage, kind: TypeNode) -> JsonObject:
    """The configuration that a message makes. Raises `MutationFailed`.

    Values that fit no type become values that do not fit the type of their place and are shown alike.
    """
    found: JsonObject = {}
    for name, value in made.fields.items():
        found[name] = _converted(value, kind.field(name) or ANY)
    return found


def _converted(value: JsonValue, kind: TypeNode) -> JsonValue:
    """The value of a field."""
    if isinstance(value, MadeMap):
        for key in value:
            if not isinstance(key, str):
                raise MutationFailed("invalid return type: *dynamic.ObjectVal")
        return {name: _inner(entry, kind.field(name) or ANY) for name, entry in value.items()}
    if isinstance(value, list):
        return [_inner(item, kind.items or ANY) for item in value]
    return _inner(value, kind)


def _inner(value: JsonValue, kind: TypeNode) -> JsonValue:
    """The value of an item or of an entry."""
    if isinstance(value, CelMessage):
        return as_configuration(value, kind)
    if value is None:
        return None if kind is ANY else "NULL_VALUE" if _holds(kind) else 0
    if isinstance(value, MadeMap) and _holds(kind):
        return go_text(dict(value))
    return value


def _holds(kind: TypeNode) -> bool:
    return bool(kind.properties) or kind.additional is not None or kind.type in ("object", "array")
