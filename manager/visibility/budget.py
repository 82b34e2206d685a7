# SPDX-License-Identifier: Apache-2.0
"""How much of the manager's time requests may take, whoever makes them and however many there are."""

from __future__ import annotations

from typing import Final

import anyio
import anyio.lowlevel

from multikueue.core.clock import Clock

SHARE: Final = 0.1
"""Of the time, over long."""
AT_ONCE: Final = 1.0
"""Seconds of work before that holds."""
_ROUNDING: Final = 0.001  # seconds, so that a bucket that is just empty is not asked again and again


class WorkBudget:
    """Seconds of work on the event loop, as a token bucket; it may be overdrawn by one piece of work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = AT_ONCE
        self._filled = clock.monotonic()

    async def turn(self) -> None:
        """Let other tasks run, and wait until there is time left. The work has to follow without another await."""
        await anyio.lowlevel.checkpoint()
        while True:
            self._fill()
            if self._left > 0:
                return
            await anyio.sleep(-self._left / SHARE + _ROUNDING)

    def spend(self, seconds: float) -> None:
        """Count work that was done."""
        self._fill()
        self._left -= seconds

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._left = min(AT_ONCE, self._left + (now - self._filled) * SHARE)
        self._filled = now
