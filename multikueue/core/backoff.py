# SPDX-License-Identifier: Apache-2.0
"""Exponential back-off as a value; the caller counts attempts, waits and supplies randomness."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """`base * factor ** (attempt - 1)` seconds, at most `cap`, then up to `jitter` of it more."""

    base: float = 0.005
    factor: float = 2.0
    cap: float = 300.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.base <= 0 or self.factor < 1 or self.cap < self.base or self.jitter < 0:
            raise ValueError(f"not a back-off: {self}")

    def delay(self, attempt: int, random: Random | None = None) -> float:
        """Seconds to wait before attempt number `attempt`, counted from 1."""
        if attempt < 1:
            raise ValueError(f"attempts are counted from 1, got {attempt}")
        # A float power overflows near attempt 1000 with factor 2; by then the cap has long been reached.
        seconds = self.cap if attempt > 512 else min(self.cap, self.base * self.factor ** (attempt - 1))
        if self.jitter and random is not None:
            seconds *= 1.0 + self.jitter * random.random()
        return seconds
