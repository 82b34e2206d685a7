# SPDX-License-Identifier: Apache-2.0
"""How long to wait before figures that change all the time are written again.

Owns the pause of each object: the shortest after a quiet time, twice as long with each write that follows another one
closely, up to the longest. Pure but for its clock; who waits and writes is the reconciler.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from multikueue.core.clock import Clock

K = TypeVar("K", bound=Hashable)


class Pace(Generic[K]):
    """Pauses in seconds, by key."""

    def __init__(self, *, shortest: float, longest: float, clock: Clock) -> None:
        self._shortest = shortest
        self._longest = longest
        self._clock = clock
        self._wrote: dict[K, tuple[float, float]] = {}

    def pause(self, key: K) -> float:
        """How long to collect changes of `key` before they are written."""
        wrote, pause = self._wrote.get(key, (0.0, 0.0))
        # Collected and written, and a change comes no later than the pause after that: it never was quiet.
        return pause if self._clock.monotonic() - wrote < 2 * pause else self._shortest

    def wrote(self, key: K) -> None:
        """`key` has been written."""
        now = self._clock.monotonic()
        before, pause = self._wrote.get(key, (0.0, 0.0))
        busy = now - before < 2 * pause
        self._wrote[key] = (now, min(2 * pause, self._longest) if busy else self._shortest)

    def forget(self, key: K) -> None:
        """`key` is gone."""
        self._wrote.pop(key, None)
