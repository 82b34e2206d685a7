# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.security.fuzz`: fuzz for some minutes, or write again what a file lists.

    python -m tests.security.fuzz --minutes 10 --seed 7
    python -m tests.security.fuzz --replay tests/security/fuzz/found/adopts.jsonl

The manager and the agent are processes here, so that their memory is known. Exit code 0 when everything held; 1 and the
writes that broke it otherwise, also in a file that `--replay` takes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, time
from typing import Final

from tests.security.fuzz import catalogue, strategies
from tests.security.fuzz.campaign import Counts
from tests.security.fuzz.running import breaks, run
from tests.security.fuzz.writes import Write, read_file

_SIZE: Final = 150
_AT_ONCE: Final = 8  # batches that are drawn together


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    flags = argparse.ArgumentParser(prog="python -m tests.security.fuzz", description="fuzz a federation")
    flags.add_argument("--minutes", type=float, default=10.0, help="how long (%(default)s)")
    flags.add_argument("--seed", type=int, default=int(time()), help="what is drawn; printed at the start")
    flags.add_argument("--size", type=int, default=_SIZE, help="writes in a batch (%(default)s)")
    flags.add_argument("--replay", type=Path, help="write what this file lists, and nothing else")
    flags.add_argument("--in-loop", action="store_true", help="the parts as tasks, as the test in CI has them")
    options = flags.parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)
    if options.replay is not None:
        problem = asyncio.run(_replay(read_file(options.replay)))
        print(problem or "everything held", flush=True)
        return 1 if problem else 0
    return asyncio.run(_fuzz(options))


async def _replay(writes: Sequence[Write]) -> str | None:
    for silent_agent in (True, False):
        problem = await breaks(writes, silent_agent=silent_agent)
        if problem is not None:
            return problem
    return None


async def _fuzz(options: argparse.Namespace) -> int:
    began = monotonic()
    counts = Counts()
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)

    def over() -> bool:
        return bool(monotonic() - began > 60 * options.minutes)

    with tempfile.TemporaryDirectory(prefix="mk-fuzz-") as folder:
        try:
            await run(
                _batches(options.seed, options.size),
                counts=counts,
                report=lambda text: print(f"{monotonic() - began:5.0f} s  {text}", flush=True),
                enough=over,
                processes=None if options.in_loop else Path(folder),
                shrink_tries=40,
            )
        except AssertionError as error:
            print(error, flush=True)
            return 1
    print(counts.text())
    for answer, times in counts.server_errors.most_common():
        print(f"{times} times {answer}")
    return 0


def _batches(seed: int, size: int) -> Iterator[list[Write]]:
    targets = catalogue.targets()
    for number in range(10**6):
        yield from strategies.drawn(targets, count=_AT_ONCE, size=size, number=seed * 1000 + number)


if __name__ == "__main__":
    sys.exit(main())
