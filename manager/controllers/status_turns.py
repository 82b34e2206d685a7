# SPDX-License-Identifier: Apache-2.0
"""Which objects' figures are written next, of those whose figures changed; pure, times are passed in.

Figures of queues change with every admission, and a write of them costs the API server as much as one of a Job. So each
object is written once after many changes, and all of them together share a number of writes a second:

- Figures that have not changed for a while are written a second after the change, since more changes follow it.
- Figures that change continuously wait in a line of their own, each for 1.5 s at least. Both lines take turns, so that
  none keeps the other one waiting.
- Ten objects a second are written. Longer lines are faster, so that no figures are older than half a minute; the more
  slowly the API server answers, the older they may be, up to two minutes, since decisions wait for the same server.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

COLLECT_SECONDS: Final = 1.0
"""How long changes are collected before figures are written that had not changed for a while."""
BUSY_SECONDS: Final = 1.5
"""Between two writes of the same figures. No change is known to be the last, which is shown within 2 s at rest."""
_WRITES_PER_SECOND: Final = 10.0
_BURST_SECONDS: Final = 1.5  # of writes that may go out at once, after a time without any
_OLDEST_SECONDS: Final = 30.0
_OLDEST_WHEN_SLOW: Final = 120.0
_SLOW: Final = 1500.0  # how many answers long figures may wait: half a minute at 20 ms
_WEIGHT: Final = 0.1  # of one answer in the average
_SHORTEST_WAIT: Final = 0.05  # objects are taken together, not each with a timer of its own


class StatusTurns(Generic[K]):
    """The order in which figures that changed are written."""

    def __init__(self) -> None:
        self._fresh: OrderedDict[K, float] = OrderedDict()  # the earliest time of each, in the order of their changes
        self._busy: OrderedDict[K, float] = OrderedDict()
        self._taken: set[K] = set()
        self._last: dict[K, float] = {}  # when each had its turn, or was written after it
        self._answer_seconds = 0.0
        self._allowance = _BURST_SECONDS * _WRITES_PER_SECOND
        self._counted = 0.0

    def __len__(self) -> int:
        """How many objects wait."""
        return len(self._fresh) + len(self._busy)

    def changed(self, key: K, *, now: float) -> None:
        """The figures of `key` changed; one that waits already keeps its place."""
        if key in self._fresh or key in self._busy:
            return
        last = self._last.get(key)
        if last is not None and now - last < 2 * self._round_seconds():
            self._busy[key] = last + BUSY_SECONDS
        else:
            self._fresh[key] = now + COLLECT_SECONDS

    def due(self, *, now: float) -> list[K]:
        """Those whose turn it is; they no longer wait."""
        rate = self._rate()
        self._allowance = min(_BURST_SECONDS * rate, self._allowance + (now - self._counted) * rate)
        self._counted = now
        found: list[K] = []
        line, other = self._fresh, self._busy
        while self._allowance >= 1.0 and (_is_due(line, now) or _is_due(other, now)):
            if _is_due(line, now):
                key, _ = line.popitem(last=False)
                self._last[key] = now  # what changes while it is written waits as well
                self._allowance -= 1.0
                found.append(key)
            line, other = other, line
        self._taken.update(found)
        return found

    def wait(self, *, now: float) -> float:
        """The seconds until `due` may return something; infinite while nothing waits."""
        times = [line[next(iter(line))] for line in (self._fresh, self._busy) if line]
        if not times:
            return math.inf
        allowed = (1.0 - self._allowance) / self._rate()
        return max(_SHORTEST_WAIT, min(times) - now, allowed)

    def wrote(self, key: K, *, now: float, seconds: float) -> None:
        """The figures of `key` were written, and the API server answered after so many seconds."""
        self._last[key] = now
        self._taken.discard(key)
        self._answer_seconds += _WEIGHT * (seconds - self._answer_seconds)

    def unchanged(self, key: K) -> None:
        """There was nothing to write for `key`: another one may have its turn."""
        if key in self._taken:
            self._taken.discard(key)
            self._allowance += 1.0

    def forget(self, key: K) -> None:
        """`key` is gone."""
        self.unchanged(key)
        self._last.pop(key, None)

    def _rate(self) -> float:
        """Writes a second."""
        oldest = min(max(_OLDEST_SECONDS, _SLOW * self._answer_seconds), _OLDEST_WHEN_SLOW)
        return max(_WRITES_PER_SECOND, len(self) / oldest)

    def _round_seconds(self) -> float:
        """How long it takes until each that waits has been written."""
        return max(BUSY_SECONDS, len(self) / self._rate())


def _is_due(line: OrderedDict[K, float], now: float) -> bool:
    return bool(line) and line[next(iter(line))] <= now
