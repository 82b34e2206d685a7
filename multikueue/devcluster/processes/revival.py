# SPDX-License-Identifier: Apache-2.0
"""Processes that end unasked are started again, as a kubelet would.

Owns the watching of a set of processes and the back-off between starts. A process that was stopped or killed through
its own methods is left alone.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.devcluster.errors import ComponentFailed
from multikueue.devcluster.processes.process import Process

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 0.5  # how long a process that is stopped on purpose is left before it is looked at again
_CALM_SECONDS: Final = 60.0  # one that ran for so long starts again without delay


async def revive(
    processes: Sequence[Process],
    *,
    backoff: Backoff,
    clock: Clock | None = None,
    changed: Callable[[Process], None] | None = None,
) -> None:
    """Keep the processes running until cancelled; `changed` is told of every end and every start."""
    async with anyio.create_task_group() as tasks:
        for process in processes:
            tasks.start_soon(_keep, process, backoff, clock or SystemClock(), changed)


async def _keep(process: Process, backoff: Backoff, clock: Clock, changed: Callable[[Process], None] | None) -> None:
    attempt = 0
    while True:
        started = clock.monotonic()
        status = await process.wait()
        if not process.wanted:
            await anyio.sleep(_IDLE_SECONDS)
            continue
        if clock.monotonic() - started > _CALM_SECONDS:
            attempt = 0
        attempt += 1
        delay = backoff.delay(attempt, random.SystemRandom())
        log.warning("%s ended with status %s; started again in %.1f s", process.name, status, delay)
        if changed is not None:
            changed(process)
        await anyio.sleep(delay)
        try:
            if process.wanted:
                await process.start()
        except ComponentFailed as error:
            log.warning("%s", error)
        if changed is not None:
            changed(process)
