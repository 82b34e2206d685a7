# SPDX-License-Identifier: Apache-2.0
"""An event loop whose time passes only when nothing else is left to do.

Owns virtual time: a timer an hour away is due at once when nothing is due before it, so that minutes of a federation
cost milliseconds, and the same seed gives the same order of everything. There are no sockets, threads or signals in it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final

_TURN: Final = 1e-6
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(Exception):
    """Nothing is left that could ever happen."""


class _Selector(selectors.BaseSelector):
    """Takes the loop's own wake-up pipe, to which nothing writes; nobody asks it for anything."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise RuntimeError("the loop of a simulation waits for no socket")

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)  # type: ignore[arg-type]

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)  # type: ignore[arg-type]

    def get_map(self) -> Mapping[object, selectors.SelectorKey]:  # type: ignore[override]
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` is seconds since the simulation began. What is due at one time runs in the order it was asked.

    It takes turns by itself: asyncio's own turn asks for sockets, measures time and compares timers in Python, which
    is a tenth of what a seed costs.
    """

    def __init__(self) -> None:
        super().__init__(_Selector())
        self._now = 0.0
        self._soon: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._asked = 0

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """In the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """When it is so late."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._asked += 1
        heappush(self._timers, (when, self._asked, timer))
        return timer

    def _run_once(self) -> None:
        """One turn: time passes, as far as the next timer if nothing else is to do, and what is due then runs."""
        soon, timers = self._soon, self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        # Every turn takes a moment, as in life: who waits for the rest of a rounding error would wait for ever.
        now = self._now + _TURN
        if not soon and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Deadlock("no timer and no callback is left")
            now = max(now, timers[0][0])
        self._now = now
        while timers and timers[0][0] <= now:
            soon.append(heappop(timers)[2])
        for _ in range(len(soon)):
            handle = soon.popleft()
            if not handle.cancelled():
                handle._run()


class SimClock:
    """The clock of one machine: off by `offset` seconds, and `drift` faster than true time."""

    def __init__(self, loop: VirtualLoop, *, offset: float = 0.0, drift: float = 0.0) -> None:
        self._loop = loop
        self._offset = offset
        self._drift = drift

    def now(self) -> datetime:
        """What this machine believes the time to be."""
        return EPOCH + timedelta(seconds=self.monotonic() + self._offset)

    def monotonic(self) -> float:
        """Seconds at this machine's own rate."""
        return self._loop.time() * (1.0 + self._drift)
