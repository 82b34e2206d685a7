# SPDX-License-Identifier: Apache-2.0
"""Many seeds, each in a process of its own, forked from one in which everything has been built.

Owns the processes and nothing of what they play. A child gets memory that nobody else has touched and ends with its
seed, so that a seed's outcome depends on nothing but the seed. A child that dies is an outcome too.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Final

from tests.simulation.play import Outcome

_CHUNK: Final = 1 << 16
_CPU_SECONDS: Final = 20.0  # a seed costs half a second; what loops without letting time pass would never end

Run = Callable[[int], Outcome]


def outcomes(run: Run, seeds: Iterable[int], *, jobs: int) -> Iterator[Outcome]:
    """The outcome of each seed, as they end; at most `jobs` at a time. Leaving early ends those that run."""
    waiting = iter(seeds)
    running: dict[int, tuple[int, int, bytearray]] = {}
    with selectors.DefaultSelector() as ends:
        try:
            for seed in waiting:
                _begin(run, seed, running, ends)
                if len(running) < jobs:
                    continue
                yield from _finished(running, ends)
            while running:
                yield from _finished(running, ends)
        finally:
            for end, (child, _, _) in running.items():
                os.kill(child, 9)
                os.waitpid(child, 0)
                os.close(end)


def _begin(
    run: Run, seed: int, running: dict[int, tuple[int, int, bytearray]], ends: selectors.DefaultSelector
) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _child(run, seed, write)
    os.close(write)
    running[read] = (child, seed, bytearray())
    ends.register(read, selectors.EVENT_READ)


def _child(run: Run, seed: int, write: int) -> None:
    """Play, say how it was, and leave without any clean-up of what belongs to the parent."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
    try:
        said = pickle.dumps(run(seed))
    except Stuck as error:
        said = pickle.dumps(Outcome(seed, str(error), (), 0.0))
    except BaseException:
        said = pickle.dumps(Outcome(seed, traceback.format_exc(), (), 0.0))
    with os.fdopen(write, "wb") as pipe:
        pipe.write(said)
    os._exit(0)


class Stuck(BaseException):
    """A seed that lets no time pass; not an `Exception`, which the code under test might catch."""


def _too_long(_: int, frame: FrameType | None) -> None:
    frames = traceback.extract_stack(frame)[-12:]
    where = " < ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in reversed(frames))
    raise Stuck(f"not at its end after {_CPU_SECONDS:.0f} s of CPU, at {where}")


def _finished(running: dict[int, tuple[int, int, bytearray]], ends: selectors.DefaultSelector) -> Iterator[Outcome]:
    """Wait until at least one has ended."""
    found = False
    while not found:
        for key, _ in ends.select():
            end = key.fd
            chunk = os.read(end, _CHUNK)
            child, seed, said = running[end]
            if chunk:
                said += chunk
                continue
            ends.unregister(end)
            os.close(end)
            del running[end]
            _, status = os.waitpid(child, 0)
            found = True
            if said:
                outcome: Outcome = pickle.loads(bytes(said))
                yield outcome
            else:
                yield Outcome(seed, f"the process of the seed died, status {status}", (), 0.0)
