# SPDX-License-Identifier: Apache-2.0
"""A manager or an agent that is started, ended in good order or abruptly, and whose own end is noticed.

Owns two forms of such a part: a task of this event loop, and a process. A part that ends by itself is lost; what it
ended with is kept for the report. An abrupt end of a task is one behind a partition: nothing that it does while it is
cancelled reaches a server.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from devcluster.processes.process import Process

Problem = Callable[[], Awaitable[str | None]]


class Part(Protocol):
    """What is restarted between batches."""

    name: str

    async def start(self) -> None:
        """Start it; harmless when it runs."""

    async def stop(self, *, abruptly: bool) -> None:
        """End it and wait until it has ended."""

    @property
    def lost(self) -> str | None:
        """What it ended with, unless it was stopped."""

    async def problem(self) -> str | None:
        """Why it is not ready; None when it is."""

    def memory(self) -> int:
        """Resident bytes of its process; 0 where it has none of its own."""


class TaskPart:
    """A part in this event loop."""

    def __init__(
        self,
        name: str,
        tasks: TaskGroup,
        run: Callable[[], Awaitable[None]],
        *,
        problem: Problem,
        partition: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`partition` keeps its requests from every server as long as the context lasts."""
        self.name = name
        self._tasks = tasks
        self._run = run
        self._problem = problem
        self._partition = partition
        self._scope: anyio.CancelScope | None = None
        self._ended = anyio.Event()
        self._lost: str | None = None

    @property
    def lost(self) -> str | None:
        return self._lost

    async def start(self) -> None:
        if self._scope is not None:
            return
        self._lost = None
        self._scope, self._ended = anyio.CancelScope(), anyio.Event()
        self._tasks.start_soon(self._live, self._scope, self._ended, name=self.name)

    async def stop(self, *, abruptly: bool) -> None:
        scope = self._scope
        if scope is None:
            return
        with self._partition() if abruptly else nullcontext():
            scope.cancel()
            await self._ended.wait()
        self._scope = None

    async def problem(self) -> str | None:
        return "it has ended" if self._lost is not None else await self._problem()

    def memory(self) -> int:
        return 0

    async def _live(self, scope: anyio.CancelScope, ended: anyio.Event) -> None:
        try:
            with scope:
                await self._run()
            if not scope.cancel_called:
                self._lost = f"{self.name} returned"
        except Exception:
            self._lost = traceback.format_exc()
        finally:
            ended.set()


class ProcessPart:
    """A part that is a process."""

    def __init__(self, name: str, process: Process, *, problem: Problem) -> None:
        self.name = name
        self._process = process
        self._problem = problem

    @property
    def lost(self) -> str | None:
        ended = self._process.wanted and not self._process.running
        return self._process.tail(lines=60) if ended else None

    async def start(self) -> None:
        await self._process.start()

    async def stop(self, *, abruptly: bool) -> None:
        await (self._process.kill() if abruptly else self._process.stop())

    async def problem(self) -> str | None:
        return await self._problem() if self._process.running else "it does not run"

    def memory(self) -> int:
        pid = self._process.pid
        return resident(pid) if pid is not None else 0


def resident(pid: int | str = "self") -> int:
    """Resident bytes of a process; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as figures:
            return int(figures.read().split()[1]) * 4096
    except (FileNotFoundError, ProcessLookupError):
        return 0
