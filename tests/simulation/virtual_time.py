# SPDX-License-Identifier: Apache-2.0
"""An event loop whose time passes only when nothing else is left to do.

Owns virtual time: a timer an hour away is due at once when nothing is due before it, so that minutes of a federation
cost milliseconds, and the same seed gives the same order of everything. There are no sockets, threads or signals in it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

_TURN: Final = 1e-6
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(Exception):
    """Nothing is left that could ever happen."""


class _Selector(selectors.BaseSelector):
    """Reports no sockets, and lets the time pass for which it was asked to wait."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("no timer and no callback is left")
        # Every turn takes a moment, as in life: who waits for the rest of a rounding error would wait for ever.
        self.now += max(_TURN, timeout)
        return []

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        """Only the loop's own wake-up pipe comes here; nothing writes to it."""
        return selectors.SelectorKey(fileobj, 0, events, data)  # type: ignore[arg-type]

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)  # type: ignore[arg-type]

    def get_map(self) -> Mapping[object, selectors.SelectorKey]:  # type: ignore[override]
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` is seconds since the simulation began."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now


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
