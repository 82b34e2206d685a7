# SPDX-License-Identifier: Apache-2.0
"""Pods of Jobs some of which take long until they are ready, and are not ready for a while later."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.simulation.world.pods import Copy, Pods, State

Object = dict[str, Any]

_SLOW: Final = 0.3
"""Which part of them takes long, with an image to pull."""
_FALTERING: Final = 0.25
"""Which part of those that are ready are not for a while."""


class SlowPods(Pods):
    """The pods of one cluster; a Job counts as ready once all its pods are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._were_ready: set[tuple[str, int]] = set()
        self._unready: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def was_ready(self, key: str, epoch: int) -> bool:
        """Whether the pods of that Job were ready, or have ended, in that epoch."""
        return (key, epoch) in self._were_ready

    def hurry(self, longest: float) -> None:
        """From now on none takes longer than this until it is ready."""
        super().hurry(longest)
        for uid in tuple(self._timers):
            self._later(self.copies[uid], self._random.uniform(0.0, longest), ready=True)

    def _start(self, copy: Copy) -> None:
        self._unready.add(copy.uid)
        super()._start(copy)
        slow = self._random.random() < _SLOW
        self._later(copy, self._random.uniform(5.0, 40.0) if slow else self._random.uniform(0.0, 2.0), ready=True)

    def _later(self, copy: Copy, seconds: float, *, ready: bool) -> None:
        if copy.uid in self._timers:
            self._timers[copy.uid].cancel()
        call_later = asyncio.get_running_loop().call_later
        self._timers[copy.uid] = call_later(min(seconds, self._longest), self._turn, copy, ready)

    def _turn(self, copy: Copy, ready: bool) -> None:
        del self._timers[copy.uid]
        if copy.state is not State.LIVE:
            return
        if ready:
            self._unready.discard(copy.uid)
            self._were_ready.add((copy.key, copy.epoch))
            if self._random.random() < _FALTERING and self._longest == float("inf"):
                self._later(copy, self._random.uniform(1.0, 20.0), ready=False)
        else:
            self._unready.add(copy.uid)
            self._later(copy, self._random.uniform(1.0, 30.0), ready=True)
        self._tell("get ready" if ready else "get unready", copy)
        self._write(copy, self._running(copy))

    def _end(self, copy: Copy) -> None:
        self._were_ready.add((copy.key, copy.epoch))
        super()._end(copy)

    def _running(self, copy: Copy) -> Object:
        status = super()._running(copy)
        return {**status, "ready": 0} if copy.uid in self._unready else status
