# SPDX-License-Identifier: Apache-2.0
"""Many seeds in processes that are forked from one in which everything has been built.

Owns the processes and nothing of what they play. A child gets memory that no other process has touched, plays one
or a few seeds after each other, and ends: to touch that memory for the first time costs a fifth of a seed. A seed
depends on nothing but the seed all the same. A process ends with the first seed that fails, and a seed that failed
after others is played again by itself, as `--replay` does. A child that dies is an outcome too.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Final

from tests.simulation.seeds.play import Outcome

_CHUNK: Final = 1 << 16
_CPU_SECONDS: Final = 20.0  # a seed costs half a second; what loops without letting time pass would never end

_LENGTH: Final = 4  # bytes before each outcome
_TOGETHER: Final = 8
_WORTH: Final = 10  # the processes of each processor from which on several seeds in each pay for their servers

Run = Callable[[int], Outcome]


def together(seeds: int, *, jobs: int) -> int:
    """How many seeds a process plays when so many are to be played."""
    return max(1, min(_TOGETHER, seeds // (_WORTH * jobs)))


@dataclass(slots=True)
class _Child:
    """A process and what it has sent."""

    pid: int
    seeds: tuple[int, ...]
    sent: bytearray = field(default_factory=bytearray)
    played: int = 0

    def outcomes(self) -> Iterator[Outcome]:
        """Those that have come whole."""
        while len(self.sent) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self.sent[:_LENGTH])
            if len(self.sent) < end:
                return
            outcome: Outcome = pickle.loads(bytes(self.sent[_LENGTH:end]))
            del self.sent[:end]
            self.played += 1
            yield outcome


def outcomes(run: Run, seeds: Iterable[int], *, jobs: int, together: int = 1) -> Iterator[Outcome]:
    """The outcome of each seed, as they end; at most `jobs` processes at a time. Leaving early ends those that run.

    A process plays at most `together` seeds: it calls `run` for each of them.
    """
    return _Children(run, tuple(seeds), jobs=jobs, together=together).outcomes()


class _Children:
    def __init__(self, run: Run, seeds: Sequence[int], *, jobs: int, together: int) -> None:
        self._run = run
        self._jobs = jobs
        self._waiting = deque(tuple(seeds[at : at + together]) for at in range(0, len(seeds), together))
        self._running: dict[int, _Child] = {}
        self._failed_after: dict[int, tuple[Outcome, tuple[int, ...]]] = {}
        """Those that failed after others in their process, and are played by themselves now."""

    def outcomes(self) -> Iterator[Outcome]:
        with selectors.DefaultSelector() as ends:
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self._jobs:
                        read = self._begin(self._waiting.popleft())
                        ends.register(read, selectors.EVENT_READ)
                    for key, _ in ends.select():
                        yield from self._read(key.fd, ends)
            finally:
                for end, child in self._running.items():
                    os.kill(child.pid, 9)
                    os.waitpid(child.pid, 0)
                    os.close(end)

    def _begin(self, seeds: tuple[int, ...]) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            _child(self._run, seeds, write)
        os.close(write)
        self._running[read] = _Child(pid, seeds)
        return read

    def _read(self, end: int, ends: selectors.DefaultSelector) -> Iterator[Outcome]:
        child = self._running[end]
        chunk = os.read(end, _CHUNK)
        if chunk:
            child.sent += chunk
            for outcome in child.outcomes():
                yield from self._judged(outcome, child.seeds[: child.played - 1])
            return
        ends.unregister(end)
        os.close(end)
        del self._running[end]
        _, status = os.waitpid(child.pid, 0)
        played = child.played
        if status and played < len(child.seeds):
            died = Outcome(child.seeds[played], f"the process of the seed died, status {status}", (), 0.0)
            yield from self._judged(died, child.seeds[:played])
            played += 1
        if child.seeds[played:]:
            self._waiting.appendleft(child.seeds[played:])

    def _judged(self, outcome: Outcome, before: tuple[int, ...]) -> Iterator[Outcome]:
        """The outcome; later, if the seed has to be played by itself first."""
        earlier = self._failed_after.pop(outcome.seed, None)
        if outcome.problem and before:
            self._failed_after[outcome.seed] = outcome, before
            self._waiting.appendleft((outcome.seed,))
        elif earlier is not None and not outcome.problem:
            failed, after = earlier
            named = ", ".join(map(str, after))
            yield replace(failed, problem=f"only after the seeds {named} in one process: {failed.problem}")
        else:
            yield outcome


def _child(run: Run, seeds: tuple[int, ...], write: int) -> None:
    """Play, say how it was, and leave without any clean-up of what belongs to the parent."""
    signal.signal(signal.SIGPROF, _too_long)
    with os.fdopen(write, "wb") as pipe:
        for seed in seeds:
            signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
            try:
                outcome = run(seed)
                said = pickle.dumps(outcome)
            except Stuck as error:
                outcome = Outcome(seed, str(error), (), 0.0)
                said = pickle.dumps(outcome)
            except BaseException:
                outcome = Outcome(seed, traceback.format_exc(), (), 0.0)
                said = pickle.dumps(outcome)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            pipe.write(len(said).to_bytes(_LENGTH) + said)
            pipe.flush()
            if outcome.problem:
                break
    os._exit(0)


class Stuck(BaseException):
    """A seed that lets no time pass; not an `Exception`, which the code under test might catch."""


def _too_long(_: int, frame: FrameType | None) -> None:
    frames = traceback.extract_stack(frame)[-12:]
    where = " < ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in reversed(frames))
    raise Stuck(f"not at its end after {_CPU_SECONDS:.0f} s of CPU, at {where}")
