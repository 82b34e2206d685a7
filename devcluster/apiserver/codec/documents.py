# SPDX-License-Identifier: Apache-2.0
"""JSON documents: types, parsing, writing and paths.

Promises that `dump_object` writes `kind` and `apiVersion` first, since a list of built-in objects drops that prefix
from each item without parsing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar, cast

import orjson

T = TypeVar("T")

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object of any shape."""
JsonValue: TypeAlias = Any
"""Any JSON value."""

EMPTY: JsonObject = {}
"""In place of an absent object while reading; must not be changed."""


def load(raw: bytes) -> JsonValue:
    """The document. Raises `ValueError`."""
    return orjson.loads(raw)


def load_object(raw: bytes) -> JsonObject:
    """The object of text that this server wrote."""
    return cast(JsonObject, orjson.loads(raw))


def dump(value: JsonValue) -> bytes:
    """The document as compact text."""
    return orjson.dumps(value)


def dump_indented(value: JsonValue) -> bytes:
    """The document as indented text."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2)


def dump_sorted(value: JsonValue) -> bytes:
    """The document as compact text with sorted keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def dump_object(value: JsonObject) -> bytes:
    """The object as compact text, `kind` and `apiVersion` first."""
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None or version is None:
        return orjson.dumps(value)
    ordered = {"kind": kind, "apiVersion": version}
    ordered.update(value)
    return orjson.dumps(ordered)


def prefix(kind: str, api_version: str) -> bytes:
    """The first bytes of every object of the kind."""
    return orjson.dumps({"kind": kind, "apiVersion": api_version})[:-1]


def metadata(value: JsonObject) -> JsonObject:
    """The object's metadata; an empty object if it has none."""
    found = value.get("metadata")
    return found if isinstance(found, dict) else EMPTY


def child(value: JsonObject, *path: str) -> JsonObject:
    """The object at the path, for reading; an empty one if there is none."""
    for name in path:
        found = value.get(name)
        if not isinstance(found, dict):
            return EMPTY
        value = found
    return value


def items(value: JsonObject, *path: str) -> list[JsonObject]:
    """The list of objects at the path, for reading; an empty one if there is none."""
    found = child(value, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def strings(value: JsonValue) -> dict[str, str]:
    """The string entries of a map, for labels and annotations."""
    if not isinstance(value, dict):
        return {}
    return {key: entry for key, entry in value.items() if isinstance(entry, str)}


def copy(value: T) -> T:
    """A deep copy of JSON. Writing and parsing is several times faster than a walk."""
    return cast(T, orjson.loads(orjson.dumps(value)))


def copy_fresh(value: JsonObject, old: JsonObject) -> JsonObject:
    """A copy that still shares the parts of `value` shared with `old`; the metadata is always copied."""
    found = {}
    for name, entry in value.items():
        is_shared = entry is old.get(name) and name != "metadata"
        found[name] = entry if is_shared or not isinstance(entry, dict | list) else copy(entry)
    return found


def walk(value: JsonValue, path: str) -> Iterator[JsonValue]:
    """The value at a dotted path such as `spec.nodeName`, if there is one."""
    for name in path.lstrip(".").split("."):
        if not isinstance(value, dict) or name not in value:
            return
        value = value[name]
    yield value


def may_repeat(body: bytes, value: JsonValue) -> bool:
    """Whether a field may be given twice: the parser keeps the last one only, so there are fewer keys."""
    return body.count(b'":') != dump(value).count(b'":')
