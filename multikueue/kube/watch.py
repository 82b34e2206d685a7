# SPDX-License-Identifier: Apache-2.0
"""A watch stream taken apart into events.

Owns the split into lines (objects may be larger than any line limit of a library) and of each line into its type and
the bytes of its object. An ERROR event is raised as the error that its `Status` means.
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
    """What happened, and the object as it is now (for a deletion: as it was)."""

    type: str
    raw: bytes


async def read_events(response: aiohttp.ClientResponse, *, request: str) -> AsyncIterator[WatchEvent]:
    """The events of an open stream, until the server ends it.

    Raises `Unreachable` when the stream breaks or stays silent too long, `ApiError` for an ERROR event, and
    `InternalError` for a line that is no event, such as a proxy's error page.
    """
    pending = b""
    try:
        async for chunk in response.content.iter_any():
            lines = (pending + chunk if pending else chunk).split(b"\n")
            pending = lines.pop()
            for line in lines:
                if line:
                    yield decode(line, request=request)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.Unreachable(f"{request}: the watch broke: {error or type(error).__name__}") from error


def decode(line: bytes, *, request: str) -> WatchEvent:
    """One line as an event; raises as `read_events`."""
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
