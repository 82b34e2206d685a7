# SPDX-License-Identifier: Apache-2.0
"""A token bucket with `qps` and `burst` as in Kueue's Configuration; waiting is first come, first served."""

from __future__ import annotations

from multikueue.core.clock import Clock


class Limiter:
    """`burst` requests at once, then `qps` a second."""

    __slots__ = ("_burst", "_clock", "_filled", "_qps", "_tokens")

    def __init__(self, *, qps: float, burst: int, clock: Clock) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a limiter needs qps > 0 and burst >= 1, got {qps} and {burst}")
        self._qps = qps
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._filled = clock.monotonic()

    def reserve(self) -> float:
        """Take one token, possibly in advance; the seconds to wait for it, 0 if it is available."""
        self._fill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    def take(self) -> bool:
        """Take one token if it is available; whether it was."""
        self._fill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def available(self) -> bool:
        """Whether a token is available; takes none."""
        self._fill()
        return self._tokens >= 1.0

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps)
        self._filled = now
