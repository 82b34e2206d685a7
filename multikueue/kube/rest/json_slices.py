# SPDX-License-Identifier: Apache-2.0
"""Splits JSON by its brackets, and the answer of a list into the bytes of its items.

An API server stores objects with thousands of levels if a schema preserves unknown fields. A parser that fails at one
of them would make the whole list unreadable. The input must be valid JSON, as from an API server. Items of a typed list
have no `kind` and `apiVersion`; they are kept as the server sent them.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.core.errors import BadInput

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


def members(raw: bytes) -> dict[str, bytes]:
    """The members of an object, each with the bytes of its value. Raises `BadInput` for anything else."""
    found: dict[str, bytes] = {}
    for part in _parts(raw, opening=b"{"):
        match = _TOKEN.match(part)
        colon = None if match is None else part.find(b":", match.end())
        if match is None or colon is None or colon < 0:
            raise BadInput("not a JSON object")
        found[orjson.loads(match[0])] = part[colon + 1 :].strip()
    return found


def elements(raw: bytes) -> list[bytes]:
    """The bytes of each element of a list. Raises `BadInput` for anything else."""
    return list(_parts(raw, opening=b"["))


def _parts(raw: bytes, *, opening: bytes) -> Iterator[bytes]:
    """The parts between the commas of the outermost level."""
    raw = raw.strip()
    if not raw.startswith(opening):
        raise BadInput(f"not JSON starting with {opening.decode()}")
    depth, start = 0, 1
    for match in _TOKEN.finditer(raw):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        if (token == b"," and depth == 1) or depth == 0:
            part = raw[start : match.start()].strip()
            if part:
                yield part
            start = match.end()
        if depth == 0:
            return
    raise BadInput("JSON that does not end")


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
