# SPDX-License-Identifier: Apache-2.0
"""Splits JSON by its brackets, for objects that are nested deeper than the parser allows.

An API server stores objects with thousands of levels if a schema preserves unknown fields. A parser that fails at one
of them would make the whole list unreadable. The input must be valid JSON, as from an API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
