# SPDX-License-Identifier: Apache-2.0
"""A course in which the manager is killed at one of its writes, and started again.

    python -m tests.simulation.scripts.restarts provisioning

The writes are those of Jobs, Workloads, requests and templates.

Prints a line for each write: its number, whether it was stored before the manager ended, and what is different in the
end; nothing when the end is that of the course without a restart.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from devcluster.apiserver.http.requests import Request
from devcluster.apiserver.server import ApiServer
from tests.simulation.scripts.courses import COURSES, Course, settings
from tests.simulation.scripts.failing import Observer
from tests.simulation.scripts.stage import NeverCame, Stage
from tests.simulation.scripts.write_failures import differences, prepared
from tests.simulation.seeds.play import Outcome
from tests.simulation.seeds.processes import outcomes
from tests.simulation.world import shortcuts
from tests.simulation.world.network import Link, WriteFailure
from tests.simulation.world.virtual_time import VirtualLoop

STORED: Final = {WriteFailure.NO_ANSWER: "before", WriteFailure.LOST_ANSWER: "after"}
_DOWN_SECONDS: Final = 3.0
_COUNTED: Final = ("/jobs", "/podtemplates", "/provisioningrequests", "/workloads")


@dataclass(frozen=True, slots=True)
class Kill:
    """The write at which the manager ends, counted from 1, and whether it is stored."""

    number: int
    failure: WriteFailure


class RestartStage(Stage):
    """A stage whose manager is killed at one write."""

    kill: Kill | None = None
    counted = 0

    def link(self, process: str, server: str) -> Link:
        """The way between a process and a server."""
        made = super().link(process, server)
        if process == "manager" and server == "hub":
            made.observer = _Killer(made.observer, self)  # type: ignore[arg-type]
        return made

    async def restart_manager(self) -> None:
        """End the manager as `kill -9` does, and start it again."""
        await self.processes["manager"].kill()
        await asyncio.sleep(_DOWN_SECONDS)
        self.processes["manager"].start()


class _Killer:
    """Counts the writes of the manager, and kills it at the chosen one."""

    def __init__(self, inner: Observer, stage: RestartStage) -> None:
        self._inner = inner
        self._stage = stage
        self._task: asyncio.Task[None] | None = None

    def failure(self, server: str, request: Request) -> WriteFailure | None:
        """What is to become of a request."""
        found = self._inner.failure(server, request)
        if request.method == "GET" or not any(part in request.path for part in _COUNTED):
            return found
        self._stage.counted += 1
        kill = self._stage.kill
        if kill is None or self._stage.counted != kill.number:
            return found
        self._task = self._stage.loop.create_task(self._stage.restart_manager())
        return kill.failure


@dataclass(frozen=True, slots=True)
class Ended(Outcome):
    """How a course ended, and how many writes the manager made."""

    state: tuple[str, ...]
    counted: int


def play_restart(
    course: Course, servers: dict[str, ApiServer], number: int, kill: Kill | None, want: tuple[str, ...] | None
) -> Ended:
    """One course in this process, which is to end with it."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    shortcuts.take()
    state: tuple[str, ...] = ()
    counted = 0
    problem = ""

    async def run() -> None:
        nonlocal state, counted
        stage = RestartStage(
            servers,
            loop=loop,
            workers=course.workers,
            pushed=course.pushed,
            dispatcher=course.dispatcher,
            case=None,
            configuration=settings(course.dispatcher, retention=course.retention),
        )
        stage.kill = kill
        await course.script(stage)
        state = await stage.settled(want)
        counted = stage.counted

    try:
        loop.run_until_complete(run())
    except NeverCame as error:
        problem = f"never: {error}"
    except BaseException:
        problem = traceback.format_exc()
    if not problem and want is not None and state != want:
        problem = differences(want, state)
    return Ended(number, problem, (), loop.time(), state, counted)


def restarts(name: str, *, jobs: int) -> Iterator[tuple[Kill, str]]:
    """Each kill of that course with what is different in the end. Raises `AssertionError` if it fails without one."""
    servers, course = prepared(), COURSES[name]
    (plain,) = outcomes(lambda number: play_restart(course, servers, number, None, None), [0], jobs=1)
    assert isinstance(plain, Ended), plain.problem
    assert not plain.problem, plain.problem
    kills: Sequence[Kill] = [Kill(n, failure) for n in range(1, plain.counted + 1) for failure in STORED]

    def played(number: int) -> Outcome:
        return play_restart(course, servers, number, kills[number], plain.state)

    for outcome in outcomes(played, range(len(kills)), jobs=jobs):
        yield kills[outcome.seed], outcome.problem


def main() -> int:
    """Play them all; returns the exit status."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("course", choices=list(COURSES))
    logging.disable(logging.CRITICAL)
    failed = False
    for kill, problem in restarts(flags.parse_args().course, jobs=os.cpu_count() or 1):
        failed |= bool(problem)
        print(f"{kill.number}\t{STORED[kill.failure]}\t{problem!r}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
