# SPDX-License-Identifier: Apache-2.0
"""Keeps the loops of a process running: one that raises is logged, counted and restarted after a pause.

Objects that cannot be read are handled by `kube.runtime.quarantine`; this is for errors in the loop itself.
`HubRestored` (the hub was restored from a backup) passes through and ends the process, which restarts to rebuild state.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import anyio
from prometheus_client import CollectorRegistry, Counter

from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import HubRestored

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=0.5, factor=2.0, cap=60.0, jitter=0.5)
_STEADY_SECONDS: Final = 300.0  # after this time a loop has recovered, and its next failure is the first again


class Supervisor:
    """Runs loops that must not end."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        registry: CollectorRegistry | None = None,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._backoff = backoff
        self._restarts = (
            None
            if registry is None
            else Counter("multikueue_loop_restarts", "Loops that failed and run again.", ("loop",), registry=registry)
        )

    async def keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run `run` until it returns or is cancelled; raises `HubRestored` only, also from an exception group."""
        attempt = 0
        while True:
            started = self._clock.monotonic()
            try:
                await run()
                return
            except HubRestored:
                raise
            except Exception as error:
                if isinstance(error, ExceptionGroup) and (restored := error.subgroup(HubRestored)) is not None:
                    raise restored from None
                if self._clock.monotonic() - started >= _STEADY_SECONDS:
                    attempt = 0
                attempt += 1
                seconds = self._backoff.delay(attempt, self._random)
                if self._restarts is not None:
                    self._restarts.labels(name).inc()
                _log.error("loop failed; restarting it loop=%s seconds=%.1f", name, seconds, exc_info=error)
            await anyio.sleep(seconds)
