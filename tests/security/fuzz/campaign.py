# SPDX-License-Identifier: Apache-2.0
"""Batch after batch of writes on one federation, and what has to hold after each.

Owns the order (write, restart some parts, check, clear) and the verdict. After each batch every part runs and is ready,
no programming error was logged, the other tenant's Jobs of this batch are complete, and memory is within its bound.
A failure names the batch; who wants fewer writes of it asks `shrinking`.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import aiohttp
import anyio

from multikueue.core.errors import MultikueueError
from tests.security.fuzz.federation import Fuzzed, connected
from tests.security.fuzz.parts import resident
from tests.security.fuzz.writes import Write, WriteAnswer

MEMORY_BOUND: Final = 300 * 2**20
"""Bytes that the parts may hold more than they did before the first write."""
VALID_JOBS: Final = 6
"""The writes of a batch that are valid Jobs, for others to be about; those wait until these run."""
# A cluster whose own agent is the attacker may be judged lost: work that is pinned to it is taken back, and goes there
# again when the cluster is not avoided any more, a minute later.
_GOOD_JOBS_WITHIN: Final = 150.0
_READY_WITHIN: Final = 40.0
_LOOK_EVERY: Final = 20  # writes between two looks at what is there
_SAMPLE_SECONDS: Final = 0.05
_SETTLE_SECONDS: Final = 0.3  # in which what was written is read; no check relies on it
_MISTAKES: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)


@dataclass(slots=True)
class Counts:
    """What was done, for the last line."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    nothing_there: int = 0
    server_errors: Counter[str] = field(default_factory=Counter)
    """Answers with 5xx, by the write's target, the status and the message."""
    by_status: Counter[int] = field(default_factory=Counter)
    by_target: Counter[str] = field(default_factory=Counter)
    """Accepted writes."""
    restarts: int = 0
    warnings: int = 0
    good_jobs: int = 0
    lost: int = 0
    mistakes: Counter[str] = field(default_factory=Counter)
    peak_growth: int = 0
    longest_stall: float = 0.0

    def text(self) -> str:
        """One line."""
        return (
            f"{self.tried} writes tried, {self.accepted} accepted, {self.refused} refused"
            f" ({self.server_errors.total()} answered with 5xx), {self.nothing_there} had no object;"
            f" {self.restarts} restarts, {self.warnings} objects warned of, {self.good_jobs} good Jobs finished,"
            f" {self.lost} processes lost,"
            f" {sum(self.mistakes.values())} programming errors logged ({len(self.mistakes)} places),"
            f" memory +{self.peak_growth >> 20} MiB at most, longest stall {self.longest_stall:.1f} s"
        )


class Broken(AssertionError):
    """Something did not hold after a batch."""


class _Mistakes(logging.Handler):
    """Keeps what was logged of exceptions that only a bug explains, by where they were raised."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (*_MISTAKES, MemoryError, RecursionError)) and not isinstance(error, MultikueueError):
            self.found.setdefault(where(error), "".join(traceback.format_exception(error)))


def where(error: BaseException) -> str:
    """Type of an error and the innermost line of ours that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame for frame in frames if "/site-packages/" not in frame.filename and "/lib/python" not in frame.filename
    ]
    last = (ours or list(frames))[-1] if frames else None
    place = "?" if last is None else f"{'/'.join(last.filename.split('/')[3:])}:{last.lineno} {last.name}"
    return f"{type(error).__name__} at {place}"


class _Memory(threading.Thread):
    """Samples how much this process holds, also while its loop is blocked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, resident())

    def stop(self) -> None:
        self._over.set()
        self.join()


class Campaign:
    """The batches on one federation."""

    def __init__(self, made: Fuzzed, *, counts: Counts) -> None:
        self._made = made
        self.counts = counts
        self._mistakes = _Mistakes()
        self._stall = 0.0
        self._warned: set[str] = set()
        self._began = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the log as long as the context lasts."""
        root = logging.getLogger()
        root.addHandler(self._mistakes)
        self._began = self._held()
        try:
            yield
        finally:
            root.removeHandler(self._mistakes)

    async def play(self, batch: Sequence[Write], *, silent_agent: bool = False, abruptly: bool = False) -> None:
        """Write all of it, restart, and check. Raises `Broken`.

        With `silent_agent` the agent does not run while its identity writes, so that the manager begins with what was
        written and not with what the agent reported after it.
        """
        memory = _Memory()
        memory.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._measure_stalls)
                good = await self._made.submit()
                await self._write(batch, silent_agent=silent_agent)
                await anyio.sleep(_SETTLE_SECONDS)
                await self._restart(abruptly=abruptly, agent_last=silent_agent)
                await self._check(good)
                tasks.cancel_scope.cancel()
        except* Broken as group:
            raise Broken(str(group.exceptions[0])) from None
        finally:
            memory.stop()
            self.counts.longest_stall = max(self.counts.longest_stall, self._stall)
        self._judge_memory(memory.peak)

    async def clear(self) -> None:
        """Remove what was written; a part that was lost begins anew."""
        for part in self._made.parts:
            if part.lost is not None:
                await part.stop(abruptly=True)
        await self._made.clear()
        for part in self._made.parts:
            await part.start()

    async def _write(self, batch: Sequence[Write], *, silent_agent: bool) -> None:
        counts = self.counts
        for number, write in enumerate(batch):
            if number == VALID_JOBS:
                await self._made.busy()
                if silent_agent:
                    await self._made.agent.stop(abruptly=False)
            elif number % _LOOK_EVERY == 0:
                await self._made.look()
            counts.tried += 1
            try:
                answer = await self._made.send(write)
            except aiohttp.ClientError as error:
                answer = WriteAnswer(400, str(error))  # a body that the HTTP server itself refuses
            if answer is None:
                counts.nothing_there += 1
                continue
            counts.by_status[answer.status] += 1
            if answer.status < 300:
                counts.accepted += 1
                counts.by_target[write.target] += 1
            else:
                counts.refused += 1
                if answer.status >= 500:
                    counts.server_errors[f"{write.target}: {answer.status} {answer.message}"] += 1

    async def _restart(self, *, abruptly: bool, agent_last: bool) -> None:
        self._lost()
        for part in self._made.parts:
            await part.stop(abruptly=abruptly)
        self._made.settle_memory()
        for part in self._made.parts:
            if not (agent_last and part is self._made.agent):
                await part.start()
                self.counts.restarts += 1
        if agent_last:
            await anyio.sleep(_SETTLE_SECONDS)
            self._lost()
            await self._made.agent.start()
            self.counts.restarts += 1

    async def _check(self, good: Sequence[str]) -> None:
        await self._ready()
        good = [*good, *await self._made.submit()]
        waiting = list(good)
        with anyio.move_on_after(_GOOD_JOBS_WITHIN):
            while waiting:
                self._lost()
                waiting = await self._made.unfinished(good)
                await anyio.sleep(0.05)
        if waiting:
            detail = await self._made.explain(waiting[0].partition(":")[0])
            raise Broken(f"the other tenant's Jobs do not finish: {'; '.join(waiting)}; {detail}")
        self.counts.good_jobs += len(good)
        self._lost()
        self._warned |= {str(event["regarding"].get("uid")) for event in await self._made.events()}
        self.counts.warnings = len(self._warned)
        found, self._mistakes.found = self._mistakes.found, {}
        self.counts.mistakes.update(found.keys())
        if found:
            raise Broken("programming errors were logged:\n" + "\n".join(found.values()))

    async def _ready(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_lost)
                await connected(self._made, within=_READY_WITHIN)
                tasks.cancel_scope.cancel()
        except* AssertionError as group:
            raise Broken(str(group.exceptions[0])) from None

    async def _until_lost(self) -> None:
        while True:
            self._lost()
            await anyio.sleep(0.1)

    def _lost(self) -> None:
        for part in self._made.parts:
            if part.lost is not None:
                self.counts.lost += 1
                raise Broken(f"{part.name} ended:\n{part.lost}")

    async def _measure_stalls(self) -> None:
        while True:
            before = monotonic()
            await anyio.sleep(_SAMPLE_SECONDS)
            self._stall = max(self._stall, monotonic() - before - _SAMPLE_SECONDS)

    def _held(self) -> int:
        own = [part.memory() for part in self._made.parts]
        return sum(own) if all(own) else resident()

    def _judge_memory(self, peak: int) -> None:
        held = self._held()
        # Servers and parts share this process where the parts are tasks: then the peak counts for both.
        reached = held if all(part.memory() for part in self._made.parts) else max(held, peak)
        self.counts.peak_growth = max(self.counts.peak_growth, reached - self._began)
        if reached - self._began > MEMORY_BOUND:
            raise Broken(f"memory grew by {(reached - self._began) >> 20} MiB, to {reached >> 20} MiB")
