# SPDX-License-Identifier: Apache-2.0
"""JSON documents: their type, how they are read and written, and paths into them.

Owns the one place where text becomes objects. Promises that what `dump` writes begins with `kind` and `apiVersion` when
the object has them, since a list of built-in objects drops that prefix from each item without parsing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar, cast

import orjson

T = TypeVar("T")

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object whose shape is not ours to know."""
JsonValue: TypeAlias = Any
"""Whatever JSON can hold."""

EMPTY: JsonObject = {}
"""Stands for an absent object while reading; never written to."""


def load(raw: bytes) -> JsonValue:
    """The document. Raises `ValueError`."""
    return orjson.loads(raw)


def load_object(raw: bytes) -> JsonObject:
    """The object that we wrote ourselves."""
    return cast(JsonObject, orjson.loads(raw))


def dump(value: JsonValue) -> bytes:
    """The document as compact text."""
    return orjson.dumps(value)


def dump_indented(value: JsonValue) -> bytes:
    """The document as a person reads it."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2)


def dump_sorted(value: JsonValue) -> bytes:
    """The document as compact text, all keys in order."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def dump_object(value: JsonObject) -> bytes:
    """The object as compact text, type first."""
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None or version is None:
        return orjson.dumps(value)
    ordered = {"kind": kind, "apiVersion": version}
    ordered.update(value)
    return orjson.dumps(ordered)


def prefix(kind: str, api_version: str) -> bytes:
    """How every object of the kind begins."""
    return orjson.dumps({"kind": kind, "apiVersion": api_version})[:-1]


def metadata(value: JsonObject) -> JsonObject:
    """The object's metadata; an empty object when it has none."""
    found = value.get("metadata")
    return found if isinstance(found, dict) else EMPTY


def child(value: JsonObject, *path: str) -> JsonObject:
    """The object at the path, for reading; an empty one where there is none."""
    for name in path:
        found = value.get(name)
        if not isinstance(found, dict):
            return EMPTY
        value = found
    return value


def items(value: JsonObject, *path: str) -> list[JsonObject]:
    """The list of objects at the path, for reading; an empty one where there is none."""
    found = child(value, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def strings(value: JsonValue) -> dict[str, str]:
    """The string entries of a map, for labels and annotations."""
    if not isinstance(value, dict):
        return {}
    return {key: entry for key, entry in value.items() if isinstance(entry, str)}


def copy(value: T) -> T:
    """A deep copy of JSON: text and back is several times as fast as a walk."""
    return cast(T, orjson.loads(orjson.dumps(value)))


def copy_fresh(value: JsonObject, old: JsonObject) -> JsonObject:
    """A copy that shares with `value` what `old` shares with it; the metadata is always copied."""
    found = {}
    for name, entry in value.items():
        is_shared = entry is old.get(name) and name != "metadata"
        found[name] = entry if is_shared or not isinstance(entry, dict | list) else copy(entry)
    return found


def walk(value: JsonValue, path: str) -> Iterator[JsonValue]:
    """What a dotted path such as `spec.nodeName` leads to: nothing or one value."""
    for name in path.lstrip(".").split("."):
        if not isinstance(value, dict) or name not in value:
            return
        value = value[name]
    yield value
