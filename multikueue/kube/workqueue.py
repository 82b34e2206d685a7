# SPDX-License-Identifier: Apache-2.0
"""Keys that wait for their reconcile.

Owns the order of work. Promises that a key is handed out once at a time; that a key which is added while it is worked
on comes again afterwards; that adding it many times is one reconcile; that the highest priority and the earliest time
of all adds win; that a failing key waits longer each time; that a key wakes one worker, however many wait. Plain heaps:
one hop through it costs about a microsecond.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from random import Random
from typing import Final, Generic, TypeVar

from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock

K = TypeVar("K", bound=Hashable)

DEFAULT_BACKOFF: Final = Backoff(base=0.01, factor=2.0, cap=60.0, jitter=0.2)


class Closed(Exception):
    """The queue was closed; no key will come any more."""


class WorkQueue(Generic[K]):
    """A deduplicating queue with delays, priorities and a back-off per key; for one event loop."""

    def __init__(
        self, *, clock: Clock | None = None, backoff: Backoff = DEFAULT_BACKOFF, random: Random | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._backoff = backoff
        self._random = random or Random()
        self._sequence = 0
        self._ready: list[tuple[int, int, K]] = []
        self._waiting: dict[K, int] = {}  # priority of what is in the ready heap
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, tuple[float, int]] = {}
        self._working: set[K] = set()
        self._again: dict[K, int] = {}
        self._failures: dict[K, int] = {}
        self._sleepers: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._closed = False

    def __len__(self) -> int:
        """Keys that could be handed out now."""
        return len(self._waiting)

    @property
    def delayed(self) -> int:
        """Keys whose time has not come."""
        return len(self._due)

    def add(self, key: K, priority: int = 0) -> None:
        """Have `key` reconciled as soon as there is room, higher priorities first."""
        due = self._due.pop(key, None)
        if due is not None:
            priority = max(priority, due[1])
        if key in self._working:
            self._again[key] = max(priority, self._again.get(key, priority))
            return
        before = self._waiting.get(key)
        if before is not None and before >= priority:
            return
        self._waiting[key] = priority
        self._sequence += 1
        heapq.heappush(self._ready, (-priority, self._sequence, key))
        self._wake_one()

    def add_after(self, key: K, seconds: float, priority: int = 0) -> None:
        """Have `key` reconciled after `seconds`, or earlier if somebody asks for that."""
        if seconds <= 0:
            self.add(key, priority)
            return
        if key in self._waiting or key in self._again:
            self.add(key, priority)  # it comes sooner than asked, and as urgently
            return
        at = self._clock.monotonic() + seconds
        before = self._due.get(key)
        if before is not None:
            priority = max(priority, before[1])
            if before[0] <= at:
                self._due[key] = (before[0], priority)
                return
        self._due[key] = (at, priority)
        self._sequence += 1
        heapq.heappush(self._delayed, (at, self._sequence, key))
        self._set_alarm()

    def retry(self, key: K) -> float:
        """Have `key` reconciled after its back-off; returns the seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = self._backoff.delay(failures, self._random)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """The next failure of `key` is its first again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often in a row `key` has failed."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; `done` must follow. Raises `Closed`. Cancelling loses no key."""
        while True:
            self._promote()
            while self._ready:
                priority, _, key = heapq.heappop(self._ready)
                if self._waiting.get(key) != -priority:
                    continue  # was put in again with a higher priority and has gone out already
                del self._waiting[key]
                self._working.add(key)
                self._set_alarm()
                return key
            if self._closed:
                raise Closed
            await self._sleep()

    def done(self, key: K) -> None:
        """The reconcile of `key` has ended; if it was added meanwhile it comes again."""
        self._working.discard(key)
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority)

    def close(self) -> None:
        """Let everybody who waits in `get` end, once what is ready has been handed out."""
        self._closed = True
        while self._sleepers:
            self._wake_one()

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            at, _, key = heapq.heappop(self._delayed)
            due = self._due.get(key)
            if due is not None and due[0] == at:
                self.add(key)

    async def _sleep(self) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        self._set_alarm()
        try:
            await sleeper
        except asyncio.CancelledError:
            if not sleeper.cancelled():
                self._wake_one()  # what it was woken for is another's now
            elif sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
            raise
        finally:
            if not self._sleepers and self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None

    def _wake_one(self) -> None:
        while self._sleepers:
            sleeper = self._sleepers.popleft()
            if not sleeper.done():  # cancelled, and not come to know of it yet
                sleeper.set_result(None)
                return

    def _set_alarm(self) -> None:
        """Have somebody woken when the first of the delayed keys is due, if anybody sleeps."""
        while self._delayed and self._due.get(self._delayed[0][2], (None,))[0] != self._delayed[0][0]:
            heapq.heappop(self._delayed)  # overtaken by an earlier add
        if not self._delayed or not self._sleepers:
            return
        at = self._delayed[0][0]
        if self._alarm is not None:
            if self._alarm_at <= at:
                return
            self._alarm.cancel()
        seconds = max(0.0, at - self._clock.monotonic())
        self._alarm, self._alarm_at = asyncio.get_running_loop().call_later(seconds, self._ring), at

    def _ring(self) -> None:
        self._alarm = None
        self._wake_one()
