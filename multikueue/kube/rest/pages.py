# SPDX-License-Identifier: Apache-2.0
"""Splits the answer of a list into the bytes of its items.

Items of a typed list have no `kind` and `apiVersion`; they are kept as the server sent them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from multikueue.kube.rest.json_slices import elements, members


@dataclass(frozen=True, slots=True)
class Page:
    """Items in the server's order, the resourceVersion of the list, and the token of the next page."""

    items: list[bytes]
    resource_version: str
    continue_token: str | None


def split(body: bytes) -> Page:
    """Split a list; an item that is nested too deep for the parser does not affect the others."""
    try:
        return _parsed(body)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return _sliced(body)


def _sliced(body: bytes) -> Page:
    parts = members(body)
    metadata = orjson.loads(parts.get("metadata", b"{}"))
    items = parts.get("items", b"null")
    return Page(
        items=[] if items == b"null" else elements(items),
        resource_version=metadata.get("resourceVersion", ""),
        continue_token=metadata.get("continue") or None,
    )


def _parsed(body: bytes) -> Page:
    with _without_collections():
        parsed = orjson.loads(body)
        metadata = parsed.get("metadata") or {}
        return Page(
            # orjson returns its whole buffer, several times the text; what a store keeps is copied to its size.
            items=[bytes(memoryview(orjson.dumps(item))) for item in parsed.get("items") or ()],
            resource_version=metadata.get("resourceVersion", ""),
            continue_token=metadata.get("continue") or None,
        )


@contextmanager
def _without_collections() -> Iterator[None]:
    """Without the garbage collector, which would traverse the tree of a page again and again while it grows."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
