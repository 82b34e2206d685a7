# SPDX-License-Identifier: Apache-2.0
"""The work queue: keys that wait for a reconcile.

Owns the order of work. Promises that a key is processed by one worker at a time; that a key which is added meanwhile is
processed again; that adding it many times is one reconcile; that the highest priority and the earliest time of all adds
win; that a failing key waits longer each time; that a key wakes one worker; that the namespaces of keys with the same
priority take turns, so that thousands of keys of one tenant delay those of another by one key each; and that no more
keys of one namespace than its share are processed at once. Plain heaps: a key costs about a microsecond.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Hashable
from random import Random
from typing import Final, Generic, TypeVar

from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.keys import Key

K = TypeVar("K", bound=Hashable)

DEFAULT_BACKOFF: Final = Backoff(base=0.01, factor=2.0, cap=60.0, jitter=0.2)


class Closed(Exception):
    """The queue was closed; there will be no more keys."""


class WorkQueue(Generic[K]):
    """A deduplicating queue with delays, priorities and a back-off per key; for one event loop."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        random: Random | None = None,
        share: int = 0,
    ) -> None:
        """`share` is how many keys of one namespace are processed at once; 0 for any number."""
        self._share = share
        self._clock = clock or SystemClock()
        self._backoff = backoff
        self._random = random or Random()
        self._sequence = 0
        self._ready: list[tuple[int, int, int, K]] = []  # by priority, then turn, then the order of adds
        self._turn: dict[int, int] = {}  # by priority, that of the last key that was returned
        self._turns: dict[tuple[int, str], int] = {}  # by priority and namespace, that of the last added key
        self._waiting: dict[K, int] = {}  # priorities of the keys in the ready heap
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, tuple[float, int]] = {}
        self._working: set[K] = set()
        self._working_in: Counter[str] = Counter()  # by namespace
        self._over_share: dict[str, list[tuple[int, int, int, K]]] = {}  # ready keys of namespaces whose share is used
        self._again: dict[K, int] = {}
        self._failures: dict[K, int] = {}
        self._sleepers: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._closed = False

    def __len__(self) -> int:
        """The number of keys that are ready."""
        return len(self._waiting)

    @property
    def delayed(self) -> int:
        """The number of keys with a delay."""
        return len(self._due)

    def add(self, key: K, priority: int = 0) -> None:
        """Add `key`; keys of higher priority come first."""
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
        entry = (-priority, self._next_turn(key, priority), self._sequence, key)
        behind = self._over_share.get(_namespace(key))
        if behind is not None:
            heapq.heappush(behind, entry)
            return
        heapq.heappush(self._ready, entry)
        self._wake_one()

    def add_after(self, key: K, seconds: float, priority: int = 0) -> None:
        """Add `key` after `seconds`, or earlier if it is added meanwhile."""
        if seconds <= 0:
            self.add(key, priority)
            return
        if key in self._waiting or key in self._again:
            self.add(key, priority)  # it is ready already; only the priority may rise
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
        """Add `key` after its back-off; returns the seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = self._backoff.delay(failures, self._random)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """Reset the back-off of `key`."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How many times in a row `key` has failed."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; call `done` afterwards. Raises `Closed`. Cancelling loses no key."""
        while True:
            self._promote()
            while self._ready:
                entry = heapq.heappop(self._ready)
                priority, turn, _, key = entry
                namespace = _namespace(key)
                if self._waiting.get(key) != -priority:
                    # It was added again with a higher priority.
                    self._use_share(namespace)
                    continue
                if namespace and self._share and self._working_in[namespace] >= self._share:
                    heapq.heappush(self._over_share.setdefault(namespace, []), entry)
                    continue
                self._working_in[namespace] += 1
                del self._waiting[key]
                self._turn[priority] = turn
                if not self._waiting:
                    self._turn.clear()
                    self._turns.clear()  # the queue is empty: all namespaces are equal
                self._working.add(key)
                self._set_alarm()
                return key
            if self._closed:
                raise Closed
            await self._sleep()

    def done(self, key: K) -> None:
        """The reconcile of `key` has ended; a key that was added meanwhile is ready again."""
        namespace = _namespace(key)
        if key in self._working:
            self._working.discard(key)
            self._working_in[namespace] -= 1
            if not self._working_in[namespace]:
                del self._working_in[namespace]
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority)
        self._use_share(namespace)

    def close(self) -> None:
        """Make every `get` raise `Closed` once no key is ready."""
        self._closed = True
        while self._sleepers:
            self._wake_one()

    def _use_share(self, namespace: str) -> None:
        """Make the first key of the namespace ready that had to wait for its share."""
        behind = self._over_share.get(namespace)
        if behind is None:
            return
        while behind:
            entry = heapq.heappop(behind)
            if self._waiting.get(entry[3]) == -entry[0]:
                heapq.heappush(self._ready, entry)
                self._wake_one()
                break
        if not behind:
            del self._over_share[namespace]

    def _next_turn(self, key: K, priority: int) -> int:
        """The turn of a new key: one after the last of its namespace, and not before the last that was returned."""
        namespace = _namespace(key)
        turn = max(self._turn.get(-priority, 0), self._turns.get((priority, namespace), 0)) + 1
        self._turns[priority, namespace] = turn
        return turn

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
                self._wake_one()  # another worker takes the key
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
            if not sleeper.done():  # otherwise it was cancelled
                sleeper.set_result(None)
                return

    def _set_alarm(self) -> None:
        """Wake a sleeping worker, if there is one, when the first delayed key is due."""
        while self._delayed and self._due.get(self._delayed[0][2], (None,))[0] != self._delayed[0][0]:
            heapq.heappop(self._delayed)  # replaced by an earlier add
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


def _namespace(key: Hashable) -> str:
    return key.namespace if isinstance(key, Key) else ""
