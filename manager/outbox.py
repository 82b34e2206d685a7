# SPDX-License-Identifier: Apache-2.0
"""Writes that go out in the background, in order for each key and with bounded concurrency.

Owns the queue between the scheduler loop, which decides in memory, and the API server, which takes its time. Promises
that jobs of one key run one after another in the order they were put, and that a job may replace a waiting one of the
same slot (a newer reason to wait makes the older one worthless). Failures are the job's own to handle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from multikueue.core.keys import Key

Job = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Entry:
    slot: str
    job: Job


class Outbox:
    """Jobs by key, carried out by a fixed number of runners."""

    def __init__(self, *, runners: int) -> None:
        self._runners: Final = runners
        self._jobs: dict[Key, deque[_Entry]] = {}
        self._ready: deque[Key] = deque()
        self._running: set[Key] = set()
        self._idle: deque[anyio.Event] = deque()

    def __len__(self) -> int:
        return sum(len(jobs) for jobs in self._jobs.values()) + len(self._running)

    def holds(self, key: Key, slot: str) -> bool:
        """Whether a job of that slot waits for its turn."""
        return any(entry.slot == slot for entry in self._jobs.get(key, ()))

    def put(self, key: Key, job: Job, *, slot: str, replace: bool = False) -> None:
        """Run `job` after those of this key; with `replace`, in the place of a waiting one of the same slot."""
        jobs = self._jobs.get(key)
        if jobs is None:
            jobs = self._jobs[key] = deque()
            if key not in self._running:
                self._offer(key)
        elif replace:
            for entry in jobs:
                if entry.slot == slot:
                    entry.job = job
                    return
        jobs.append(_Entry(slot, job))

    async def run(self) -> None:
        """Carry jobs out until cancelled; jobs that wait then are dropped."""
        async with anyio.create_task_group() as runners:
            for number in range(self._runners):
                runners.start_soon(self._run_one, name=f"outbox-{number}")

    async def _run_one(self) -> None:
        while True:
            while not self._ready:
                # Each idle runner has an event of its own: one job wakes one of them, not all.
                wanted = anyio.Event()
                self._idle.append(wanted)
                await wanted.wait()
            key = self._ready.popleft()
            jobs = self._jobs[key]
            entry = jobs.popleft()
            if not jobs:
                del self._jobs[key]
            self._running.add(key)
            try:
                await entry.job()
            finally:
                self._running.discard(key)
                if key in self._jobs:
                    self._offer(key)

    def _offer(self, key: Key) -> None:
        self._ready.append(key)
        if self._idle:
            self._idle.pop().set()
