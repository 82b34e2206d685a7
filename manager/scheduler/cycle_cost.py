# SPDX-License-Identifier: Apache-2.0
"""What the evaluation of a head costs, and how many may be evaluated early for it (ADR 0027).

A head costs a fraction of a millisecond in a small cohort, and milliseconds where victims are searched among thousands
of candidates.
"""

from __future__ import annotations

from typing import Final

_SHARE: Final = 0.2
"""The part of the time that may be spent on early flushes."""
_MOST: Final = 1000.0
_NEWEST: Final = 0.05
"""The weight of the newest cycle in the mean."""


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
