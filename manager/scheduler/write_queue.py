# SPDX-License-Identifier: Apache-2.0
"""Background writes: in order for each key, with bounded concurrency, and namespaces take turns.

Jobs of one key run one after another in the order they were put; a job may replace a waiting one of the same slot (a
newer pending reason makes the older one worthless). Those of other keys of a namespace run by priority, then in the
order they were put, and each fourth is the one that waits longest. Jobs handle their failures: one that is to be
retried is postponed, which blocks no runner, and is dropped when another of its key and slot is put before. One that
has never run can be withdrawn. A job that raises nevertheless quarantines the Workload for the reader `status` and ends
no runner. How many run at once follows the server's latency.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

import anyio
from anyio.abc import TaskGroup

from manager.scheduler.write_concurrency import WriteConcurrency
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.keys import Key
from multikueue.kube.errors import KubeError
from multikueue.kube.runtime.quarantine import Quarantine

_log = logging.getLogger(__name__)
Job = Callable[[], Awaitable[None]]

_AHEAD: Final = 4  # jobs that may wait for each that may run
_OLDEST_EACH: Final = 4


@dataclass(slots=True, eq=False)
class _Entry:
    slot: str
    job: Job
    priority: int
    begun: bool = False
    """Whether it, or the job whose place it took, has run before, and may have reached the server."""


class WriteQueue:
    """Jobs by key, carried out by a fixed number of runners, or by fewer of them at once."""

    def __init__(
        self,
        *,
        runners: int,
        quarantine: Quarantine | None = None,
        concurrency: WriteConcurrency | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without `concurrency` all runners work at once. `clock` is the one of its times."""
        self._runners: Final = runners
        self._concurrency = concurrency
        self._clock = clock if clock is not None else SystemClock()
        self._wakes_later = False
        self._quarantine = quarantine if quarantine is not None else Quarantine()
        self._drained = anyio.Event()
        self._jobs: dict[Key, deque[_Entry]] = {}
        self._started = anyio.Event()
        self._ready = NamespaceTurns()
        self._running: set[Key] = set()
        self._idle: deque[anyio.Event] = deque()
        self._postponed: dict[tuple[Key, str], _Entry] = {}
        self._tasks: TaskGroup | None = None

    def __len__(self) -> int:
        return sum(len(jobs) for jobs in self._jobs.values()) + len(self._running) + len(self._postponed)

    @property
    def busy(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._jobs or self._running)

    def holds(self, key: Key, slot: str) -> bool:
        """Whether a job of that slot waits or is postponed."""
        return (key, slot) in self._postponed or any(entry.slot == slot for entry in self._jobs.get(key, ()))

    def postpone(self, key: Key, job: Job, *, slot: str, seconds: float, priority: int = 0) -> None:
        """Put `job` after so many seconds, unless another of its key and slot waits or comes before."""
        if any(entry.slot == slot for entry in self._jobs.get(key, ())):
            return
        entry = _Entry(slot, job, priority, begun=True)
        if seconds <= 0:
            self._append(key, entry)
            return
        assert self._tasks is not None, "jobs are only postponed while the queue runs"
        self._postponed[key, slot] = entry
        self._tasks.start_soon(self._put_later, key, entry, seconds)

    async def _put_later(self, key: Key, entry: _Entry, seconds: float) -> None:
        await anyio.sleep(seconds)
        if self._postponed.get((key, entry.slot)) is entry:
            self._append(key, entry)

    def put(self, key: Key, job: Job, *, slot: str, replace: bool = False, priority: int = 0) -> None:
        """Run `job` after those of this key; with `replace`, in the place of a waiting one of the same slot.

        Among the keys of a namespace, that with the highest `priority` of its next job comes first.
        """
        for entry in self._jobs.get(key, ()) if replace else ():
            if entry.slot == slot:
                self._postponed.pop((key, slot), None)
                entry.job = job
                return
        # What runs now, or is to be retried, may have reached the server for this job too.
        begun = key in self._running or (key, slot) in self._postponed
        self._append(key, _Entry(slot, job, priority, begun=begun))

    def _append(self, key: Key, entry: _Entry) -> None:
        self._postponed.pop((key, entry.slot), None)
        jobs = self._jobs.setdefault(key, deque())
        jobs.append(entry)
        if len(jobs) == 1 and key not in self._running:
            self._offer(key)

    def holds_unbegun(self, key: Key, slot: str) -> bool:
        """Whether a job of that slot waits which has never run."""
        return any(entry.slot == slot and not entry.begun for entry in self._jobs.get(key, ()))

    def withdraw(self, key: Key, slot: str) -> None:
        """Drop the jobs of that slot that wait and have never run."""
        left = deque(entry for entry in self._jobs.pop(key, ()) if entry.slot != slot or entry.begun)
        if left:
            self._jobs[key] = left
        self._started.set()
        if not self.busy:
            self._drained.set()

    @property
    def behind(self) -> bool:
        """Whether the jobs of so many keys wait that what is put now runs much later."""
        at_once = self._runners if self._concurrency is None else self._concurrency.limit
        return len(self._jobs) > _AHEAD * at_once

    async def caught_up(self) -> None:
        """Wait until it is not behind."""
        while self.behind:
            self._started = anyio.Event()
            await self._started.wait()

    async def drained(self) -> None:
        """Wait until no job waits or runs; postponed jobs are not waited for."""
        while self.busy:
            self._drained = anyio.Event()
            await self._drained.wait()

    async def run(self) -> None:
        """Run jobs until cancelled; waiting jobs are dropped."""
        async with anyio.create_task_group() as runners:
            self._tasks = runners
            self._wakes_later = False
            for number in range(self._runners):
                runners.start_soon(self._run_one, name=f"write-{number}")

    async def _run_one(self) -> None:
        while True:
            while not self._may_start():
                # Each idle runner has a separate event: one job wakes one of them, not all.
                wanted = anyio.Event()
                self._idle.append(wanted)
                await wanted.wait()
            key = self._ready.popleft()
            if key in self._running or key not in self._jobs:
                continue  # its job was withdrawn
            jobs = self._jobs[key]
            entry = jobs.popleft()
            if not jobs:
                del self._jobs[key]
            self._started.set()
            self._running.add(key)
            self._wake_another()
            try:
                with self._quarantine.guard("status", WORKLOADS, key):
                    await entry.job()
            except KubeError as error:
                _log.warning("write failed workload=%s error=%s", key, error)
            finally:
                self._running.discard(key)
                if key in self._jobs:
                    self._offer(key)
                elif not self._jobs and not self._running:
                    self._drained.set()

    def _offer(self, key: Key) -> None:
        self._ready.append(key, priority=self._jobs[key][0].priority)
        self._wake_another()

    def _wake_another(self) -> None:
        if self._idle and self._may_start():
            self._idle.pop().set()

    def _may_start(self) -> bool:
        """Whether there is a job that may start now; sees to it that one which must wait is not forgotten."""
        if not self._ready:
            return False
        if self._concurrency is None:
            return True
        pause = self._concurrency.pause(self._clock.monotonic())
        if pause > 0:
            if not self._wakes_later and self._tasks is not None:
                self._wakes_later = True
                self._tasks.start_soon(self._wake_after, pause)
            return False
        return self._concurrency.allows(len(self._running))

    async def _wake_after(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self._wakes_later = False
        self._wake_another()


class NamespaceTurns:
    """A queue in which namespaces take turns, each by priority and then first in, first out."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, _NamespaceKeys] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def append(self, key: Key, *, priority: int = 0) -> None:
        """Add `key` behind those of its namespace that have no lower priority."""
        self._waiting.setdefault(key.namespace, _NamespaceKeys()).append(key, priority=priority)

    def popleft(self) -> Key:
        """Remove and return the first key of the next namespace. Raises `KeyError` when the queue is empty."""
        namespace, keys = self._waiting.popitem(last=False)
        key = keys.popleft()
        if keys:
            self._waiting[namespace] = keys
        return key


class _NamespaceKeys:
    """The keys of one namespace, of which each fourth one taken is the one that waits longest.

    Else those of low priorities would wait for as long as others come: they hold quota that was reserved for them, and
    do not run.
    """

    def __init__(self) -> None:
        self._by_priority: list[tuple[int, int]] = []
        """Up to twice as many, since some were taken out of their order."""
        self._by_age: OrderedDict[int, Key] = OrderedDict()
        self._numbers = count()
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._by_age)

    def append(self, key: Key, *, priority: int) -> None:
        number = next(self._numbers)
        heappush(self._by_priority, (-priority, number))
        self._by_age[number] = key

    def popleft(self) -> Key:
        self._taken += 1
        if self._taken % _OLDEST_EACH == 0:
            key = self._by_age.popitem(last=False)[1]
            if len(self._by_priority) > 2 * len(self._by_age):
                self._by_priority = [found for found in self._by_priority if found[1] in self._by_age]
                heapify(self._by_priority)
            return key
        while True:
            _, number = heappop(self._by_priority)
            if number in self._by_age:
                return self._by_age.pop(number)
