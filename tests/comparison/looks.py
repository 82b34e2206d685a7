# SPDX-License-Identifier: Apache-2.0
"""Looking at what a course has brought about, once nothing changes any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

_QUIET_SECONDS: Final = 2.0
_MOST_SECONDS: Final = 12.0
_LOOK_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Look:
    """What has happened; it is looked at once nothing changes any more, after so many seconds at least."""

    after: str
    seconds: float = 0.0


class Looks:
    """What was shown after each step; an event is shown after the first step that it follows."""

    def __init__(self, lines: Callable[[], Awaitable[list[str]]], events: Callable[[], Awaitable[set[str]]]) -> None:
        self.shown: list[tuple[str, list[str]]] = []
        self._lines = lines
        self._events = events
        self._known: set[str] = set()

    async def take(self, look: Look) -> None:
        """Wait, and keep what is shown then."""
        found = await self._settled(look.seconds)
        events = await self._events()
        self.shown.append((look.after, [*found, *sorted(events - self._known)]))
        self._known |= events

    async def _settled(self, seconds: float) -> list[str]:
        last: list[str] = []
        began = since = anyio.current_time()
        while (now := anyio.current_time()) - began < _MOST_SECONDS + seconds:
            found = await self._lines()
            if found != last:
                last, since = found, now
            if now - began >= seconds and now - since >= _QUIET_SECONDS:
                break
            await anyio.sleep(_LOOK_SECONDS)
        return last
