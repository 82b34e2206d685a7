# SPDX-License-Identifier: Apache-2.0
"""The time that requests may take of the manager's."""

from __future__ import annotations

import anyio
import pytest

from manager.visibility.budget import AT_ONCE, SHARE, WorkBudget
from multikueue.core.clock import ManualClock

pytestmark = pytest.mark.anyio


async def has_turn(budget: WorkBudget) -> bool:
    with anyio.move_on_after(0.1) as waited:
        await budget.turn()
    return not waited.cancelled_caught


async def test_a_little_work_waits_for_nothing() -> None:
    budget = WorkBudget(ManualClock())
    for _ in range(10):
        assert await has_turn(budget)
        budget.spend(AT_ONCE / 11)


async def test_more_work_has_its_share_of_the_time() -> None:
    clock = ManualClock()
    budget = WorkBudget(clock)
    budget.spend(AT_ONCE)
    worked = 0.0
    for _ in range(1000):
        clock.advance(0.1)
        if await has_turn(budget):
            budget.spend(0.05)
            worked += 0.05
            if worked >= 1.0:
                break
    assert clock.monotonic() * SHARE == pytest.approx(worked, rel=0.15)


async def test_a_manager_that_was_idle_for_long_has_no_more_than_its_burst() -> None:
    clock = ManualClock()
    budget = WorkBudget(clock)
    clock.advance(1e6)
    budget.spend(AT_ONCE)
    assert not await has_turn(budget)


async def test_requests_that_wait_together_do_not_work_together() -> None:
    clock = ManualClock()
    budget = WorkBudget(clock)
    worked: list[int] = []

    async def work(number: int) -> None:
        await budget.turn()
        worked.append(number)
        budget.spend(2 * AT_ONCE)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(work, number)
        await anyio.sleep(0.1)
        assert len(worked) == 1
        tasks.cancel_scope.cancel()
