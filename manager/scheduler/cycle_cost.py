# SPDX-License-Identifier: Apache-2.0
"""What cycles cost: how many heads may be evaluated early (ADR 0027), how long others run in between (ADR 0030).

A head costs a fraction of a millisecond in a small cohort, and milliseconds where victims are searched among thousands
of candidates.
"""

from __future__ import annotations

from typing import Final

SLICE_SECONDS: Final = 0.005
"""How long cycles may hold the event loop before watches and writes have a turn."""
_PACES: Final = (0.001, 0.002, 0.004, 0.008, 0.010)
LONGEST_PACE: Final = _PACES[-1]
_LONGEST_PAUSE: Final = 0.5
_SHARE: Final = 0.2
"""The part of the time that may be spent on early flushes."""
_MOST: Final = 1000.0
_NEWEST: Final = 0.05
"""The weight of the newest cycle in the mean."""


def pause_after(seconds: float, *, unsuccessful: int) -> float:
    """How long others run after a cycle that took so long, in seconds; so many cycles before did not admit anything.

    Short cycles are paced as in Kueue (`docs/spec/engine.md §1.11`). After a long one, others run as long as it took:
    webhooks, watches and writes share the event loop with cycles, and all clients of the API server wait for them.
    """
    pace = _PACES[min(unsuccessful, len(_PACES)) - 1] if unsuccessful else 0.0
    return max(pace, min(seconds, _LONGEST_PAUSE)) if seconds > SLICE_SECONDS else pace


class CycleCost:
    """The mean seconds of a head in the last cycles."""

    def __init__(self) -> None:
        self._mean: float | None = None

    def add(self, *, seconds: float, heads: int) -> None:
        """A cycle that evaluated so many heads took so long; without a head it says nothing."""
        if heads:
            cost = seconds / heads
            self._mean = cost if self._mean is None else self._mean + _NEWEST * (cost - self._mean)

    @property
    def heads_per_second(self) -> float:
        """How many heads a second may be evaluated early."""
        return min(_MOST, _SHARE / self._mean) if self._mean else _MOST
