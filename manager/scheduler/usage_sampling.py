# SPDX-License-Identifier: Apache-2.0
"""Decays the usage of LocalQueues whenever the engine schedules it (`docs/spec/engine.md §1.10`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from manager.scheduler.engine_feed import EngineFeed
from multikueue.core.clock import Clock
from multikueue.core.keys import Key

_MIN_SAMPLING_SECONDS: Final = 1.0  # a configured interval of nothing must not spin


class UsageSampler:
    """Samples until cancelled; `sampled` is called with the queues of a sample, whose figures have changed."""

    def __init__(self, feed: EngineFeed, *, clock: Clock, sampled: Callable[[tuple[Key, ...]], None]) -> None:
        self._feed = feed
        self._clock = clock
        self._sampled = sampled
        self._queues_changed = anyio.Event()

    def queues_changed(self) -> None:
        """A queue was created or changed: when to sample next may have changed too."""
        self._queues_changed.set()

    async def run(self) -> None:
        """Sample when it is due."""
        while True:
            self._queues_changed = anyio.Event()
            now = self._clock.now()
            due, sampled = self._feed.engine.sample_usage(now)
            if sampled:
                self._sampled(sampled)
            pause = None if due is None else max(_MIN_SAMPLING_SECONDS, (due - now).total_seconds())
            with anyio.move_on_after(pause):
                await self._queues_changed.wait()
