# SPDX-License-Identifier: Apache-2.0
"""The libraries of lists and optional values. Every failure is a `CelError`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Optional
from devcluster.apiserver.codec.documents import JsonValue


def _distinct(items: list[JsonValue]) -> list[JsonValue]:
    found: list[JsonValue] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _flatten(items: list[JsonValue], depth: int = 1) -> list[JsonValue]:
    if depth < 0:
        raise CelError("level must be non-negative")
    found: list[JsonValue] = []
    for item in items:
        found += _flatten(item, depth - 1) if isinstance(item, list) and depth else [item]
    return found


def _slice(items: list[JsonValue], start: int, end: int) -> list[JsonValue]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _at(index: int) -> Callable[[list[JsonValue]], Optional]:
    return lambda items: Optional(True, items[index]) if items else Optional(False)


def _unwrapped(items: list[Optional]) -> list[JsonValue]:
    return [item.value for item in items if item.present]


SEQUENCE_METHODS: Final[dict[str, Callable[..., JsonValue]]] = {
    "distinct": _distinct,
    "first": _at(0),
    "flatten": _flatten,
    "last": _at(-1),
    "slice": _slice,
    "sort": sorted,
    "unwrapOpt": _unwrapped,
}
SEQUENCE_LIBRARIES: Final[dict[tuple[str, str], Callable[..., JsonValue]]] = {
    ("lists", "range"): lambda count: list(range(count)),
    ("optional", "none"): lambda: Optional(False),
    ("optional", "of"): lambda value: Optional(True, value),
    ("optional", "ofNonZeroValue"): lambda value: Optional(True, value) if value else Optional(False),
    ("optional", "unwrap"): _unwrapped,
}
"""The functions that are called through their library's name."""
