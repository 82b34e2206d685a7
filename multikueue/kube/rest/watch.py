# SPDX-License-Identifier: Apache-2.0
"""Splits a watch stream into events.

Objects may be larger than the line limit of any library, so lines are split here. An ERROR event is raised as the error
of its `Status`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import aiohttp
import orjson

from multikueue.kube import errors

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"

_HEADS: Final = {kind: f'{{"type":"{kind}","object":'.encode() for kind in (MODIFIED, ADDED, DELETED, BOOKMARK)}


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """The type of the event, and the object as it is now, or before its deletion."""

    type: str
    raw: bytes


async def read_events(
    response: aiohttp.ClientResponse, *, request: str, max_bytes: int | None = None
) -> AsyncIterator[WatchEvent]:
    """The events of an open stream, until the server ends it.

    Raises `Unreachable` if the stream breaks or receives nothing for too long, `ApiError` for an ERROR event, and
    `InternalError` for a line that is not an event, such as a proxy's error page.
    """
    pending = b""
    try:
        async for chunk in response.content.iter_any():
            lines = (pending + chunk if pending else chunk).split(b"\n")
            pending = lines.pop()
            if max_bytes is not None and len(pending) > max_bytes:
                raise errors.Unreachable(f"{request}: a watch event is larger than {max_bytes} bytes")
            for line in lines:
                if line:
                    yield decode(line, request=request)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.Unreachable(f"{request}: the watch broke: {error or type(error).__name__}") from error


def decode(line: bytes, *, request: str) -> WatchEvent:
    """Parse one line; raises as `read_events`."""
    for kind, head in _HEADS.items():
        if line.startswith(head):
            return WatchEvent(kind, line[len(head) : line.rindex(b"}")])
    try:
        parsed = orjson.loads(line)
        kind, found = parsed["type"], parsed["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        status = {"message": f"not a watch event: {line[:200]!r}"}
        raise errors.from_status(request=request, status=status) from error
    if kind == ERROR:
        raise errors.from_status(request=request, status=found)
    return WatchEvent(kind, orjson.dumps(found))
