# SPDX-License-Identifier: Apache-2.0
"""How long the start of a job is held back, as a job that ends within that time is reported with its end only.

Usually for 1.5 windows. While many jobs start it depends on how long the last ones ran: if most ended within ten
windows, each start waits that long, and otherwise none waits longer than usual. As long as none has ended, starts wait
in proportion to their number, ten windows at most (ADR 0025).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from multikueue.core.clock import Clock

_USUAL: Final = 1.5  # the job controller reports ready pods only a second later
_LONGEST: Final = 10
_USUAL_STARTS: Final = 5  # within the longest time
_RUNS: Final = 25  # the last ones, of which the median counts
_LEAST_RUNS: Final = 3


class StartWindows:
    """The starts and run times of the last jobs of one cluster; `window` in seconds."""

    def __init__(self, *, window: float, clock: Clock) -> None:
        self._window = window
        self._clock = clock
        self.usual = window * _USUAL
        """How long one waits in any case, in seconds."""
        self._starts: deque[float] = deque()
        self._runs: deque[float] = deque(maxlen=_RUNS)

    def started(self) -> float:
        """A job started now; returns that moment, for `ended`."""
        now = self._clock.monotonic()
        self._starts.append(now)
        return now

    def ended(self, started: float) -> None:
        """A job that started at that moment has ended."""
        self._runs.append(self._clock.monotonic() - started)

    def seconds(self) -> float:
        """How long a start waits that came in now."""
        longest = self._window * _LONGEST
        now = self._clock.monotonic()
        while self._starts and now - self._starts[0] > longest:
            self._starts.popleft()
        if len(self._starts) <= _USUAL_STARTS:
            return self.usual
        if len(self._runs) >= _LEAST_RUNS:
            return longest if sorted(self._runs)[len(self._runs) // 2] <= longest else self.usual
        return min(longest, self.usual * len(self._starts) / _USUAL_STARTS)
