# SPDX-License-Identifier: Apache-2.0
"""Clocks that are passed to whatever needs the time.

`now()` is aware UTC. `monotonic()` never goes back and is the only source for durations.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where a component gets the time from."""

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; unaffected by jumps of the wall clock."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()


class ManualClock:
    """A clock that only moves when a test moves it."""

    __slots__ = ("_monotonic", "_now")

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError(f"ManualClock needs an aware time, got {start!r}")
        self._now = start.astimezone(UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The wall-clock time it was set to."""
        return self._now

    def monotonic(self) -> float:
        """The sum of all advances."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Advance both clocks by `seconds`, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: advance({seconds})")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, now: datetime) -> None:
        """Set the wall clock, forwards or backwards; the monotonic clock does not change."""
        self._now = now.astimezone(UTC)
