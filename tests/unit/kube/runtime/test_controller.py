# SPDX-License-Identifier: Apache-2.0
"""A controller lets others run."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio.lowlevel
import pytest

from multikueue.core.clock import ManualClock
from multikueue.kube.runtime.controller import Controller, Result

pytestmark = pytest.mark.anyio

COUNT = 1000


async def test_reconciles_that_await_nothing_do_not_starve_the_rest() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    done: list[int] = []
    seen_at: list[int] = []

    async def reconcile(key: int) -> Result | None:
        done.append(key)
        clock.advance(0.001)
        return None

    controller = Controller[int]("busy", reconcile, clock=clock)
    for key in range(COUNT):
        controller.enqueue(key)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        while len(done) < COUNT:
            await anyio.lowlevel.checkpoint()
            seen_at.append(len(done))
        tasks.cancel_scope.cancel()
    assert len(seen_at) > COUNT // 100, "others had their turn every few dozen reconciles"
