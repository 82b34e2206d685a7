# SPDX-License-Identifier: Apache-2.0
"""A whole run of the fuzz: federations, batches, the first failure made small.

Owns what the test and the command have in common. A failure is an AssertionError that names a file of the writes for
`--replay`.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.security.fuzz.campaign import VALID_JOBS, Broken, Campaign, Counts
from tests.security.fuzz.federation import fuzzed_federation
from tests.security.fuzz.shrinking import shrink
from tests.security.fuzz.writes import Write, save

_CLEAR_EVERY: Final = 2
_LINES: Final = 20
_LINE: Final = 300
Report = Callable[[str], None]


async def run(
    batches: Iterable[Sequence[Write]],
    *,
    counts: Counts,
    report: Report,
    enough: Callable[[], bool] = lambda: False,
    webhooks: bool = True,
    processes: Path | None = None,
    shrink_tries: int = 0,
) -> None:
    """Play batches on one federation until `enough`, or one breaks it. Raises `AssertionError` with the writes.

    With a folder in `processes` the manager and the agent run as processes, whose logs are there.
    """
    failed: tuple[list[Write], bool, bool, str] | None = None
    since: list[Write] = []
    async with fuzzed_federation(webhooks=webhooks, processes=processes) as made:
        campaign = Campaign(made, counts=counts)
        with campaign.watched():
            for number, batch in enumerate(batches):
                abruptly, silent = number % 2 == 1, number % 4 > 1
                since += batch
                try:
                    await campaign.play(batch, abruptly=abruptly, silent_agent=silent)
                except Broken as error:
                    failed = (since, abruptly, silent, str(error))
                    break
                report(f"batch {number}: {counts.text()}")
                if enough():
                    break
                if number % _CLEAR_EVERY == _CLEAR_EVERY - 1:
                    await campaign.clear()
                    since = []
    if failed is None:
        return
    writes, abruptly, silent, problem = failed
    report(f"{problem}\n{counts.text()}")
    if shrink_tries:
        report(f"{len(writes)} writes broke it; looking for fewer")

        async def fails(candidate: Sequence[Write]) -> bool:
            return await breaks(candidate, webhooks=webhooks, abruptly=abruptly, silent_agent=silent) is not None

        writes = await shrink(writes, fails, keep=VALID_JOBS, budget=shrink_tries)
    path = Path(tempfile.gettempdir()) / f"mk-fuzz-{os.getpid()}.jsonl"
    save(path, writes, comment=f"{problem.splitlines()[0]}\nsilent agent: {silent}, abruptly: {abruptly}")
    lines = "\n".join(write.text()[:_LINE] for write in writes[:_LINES])
    raise AssertionError(
        f"{problem}\n{counts.text()}\n{len(writes)} writes do it, kept for --replay in {path}; such as\n{lines}"
    )


async def breaks(
    writes: Sequence[Write], *, webhooks: bool = True, abruptly: bool = False, silent_agent: bool = False
) -> str | None:
    """What does not hold after these writes on a new federation; None when everything does."""
    async with fuzzed_federation(webhooks=webhooks) as made:
        campaign = Campaign(made, counts=Counts())
        with campaign.watched():
            try:
                await campaign.play(writes, abruptly=abruptly, silent_agent=silent_agent)
            except Broken as error:
                logging.getLogger(__name__).info("%s", error)
                return str(error)
    return None
