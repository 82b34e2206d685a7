# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from random import Random

import anyio
import pytest

from multikueue.core.backoff import Backoff
from multikueue.core.clock import ManualClock
from multikueue.core.errors import MultikueueError
from multikueue.kube.controller import Controller, Result, TerminalError
from multikueue.kube.workqueue import Closed, WorkQueue


async def take(queue: WorkQueue[str], count: int) -> list[str]:
    taken = []
    for _ in range(count):
        with anyio.fail_after(30):
            key = await queue.get()
        taken.append(key)
        queue.done(key)
    return taken


async def test_keys_come_once_in_the_order_of_their_first_add() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert await take(queue, 3) == ["a", "b", "c"]
    assert len(queue) == 0


async def test_a_higher_priority_overtakes_also_when_it_is_asked_for_later() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("b")
    queue.add("b", priority=5)
    queue.add("b", priority=1)
    assert await take(queue, 2) == ["b", "a"]
    assert len(queue) == 0


async def test_a_key_that_is_added_while_it_is_worked_on_comes_again_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done(key)
    assert await take(queue, 1) == ["a"]
    assert len(queue) == 0


async def test_a_delayed_key_waits_for_its_time_and_the_earliest_wins() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock=clock)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    queue.add("now")
    assert await take(queue, 1) == ["now"]
    clock.advance(4.9)
    with anyio.move_on_after(0.02) as scope:
        await queue.get()
    assert scope.cancelled_caught
    clock.advance(0.2)
    assert await take(queue, 1) == ["a"]
    clock.advance(60)
    assert queue.delayed == 0


async def test_the_highest_priority_of_all_adds_wins_also_when_its_time_is_later() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock=clock)
    queue.add_after("a", 5)
    queue.add_after("b", 5, priority=1)
    queue.add_after("a", 20, priority=9)
    queue.add("waiting")
    queue.add_after("waiting", 60, priority=5)
    assert queue.delayed == 2
    clock.advance(5)
    assert await take(queue, 3) == ["a", "waiting", "b"]


async def test_an_add_now_takes_the_place_of_a_delayed_one() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock=clock)
    queue.add_after("a", 10)
    queue.add("a")
    assert await take(queue, 1) == ["a"]
    clock.advance(20)
    queue.add("b")
    assert await take(queue, 1) == ["b"]
    assert len(queue) == 0


async def test_a_failing_key_waits_longer_each_time_until_it_is_forgotten() -> None:
    queue: WorkQueue[str] = WorkQueue(backoff=Backoff(base=1, cap=4), random=Random(1), clock=ManualClock())
    assert [queue.retry("a") for _ in range(4)] == [1, 2, 4, 4]
    queue.forget("a")
    assert queue.retry("a") == 1


async def test_closing_hands_out_what_is_ready_and_then_ends_everybody() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.close()
    assert await take(queue, 1) == ["a"]
    with pytest.raises(Closed):
        await queue.get()


@pytest.mark.parametrize(
    ("outcome", "want_calls", "want_delayed"),
    [
        pytest.param(None, 1, 0, id="done is done"),
        pytest.param(Result(after=60), 1, 1, id="a result with a time comes again then"),
        pytest.param(TerminalError("never"), 1, 0, id="a terminal error waits for a change"),
        pytest.param(MultikueueError("later"), 1, 1, id="an error of ours is tried again"),
        pytest.param(RuntimeError("bug"), 1, 1, id="a bug is tried again and harms no other key"),
    ],
)
async def test_the_outcomes_of_a_reconcile(
    outcome: Result | Exception | None, want_calls: int, want_delayed: int
) -> None:
    calls: list[str] = []

    async def reconcile(key: str) -> Result | None:
        calls.append(key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    queue: WorkQueue[str] = WorkQueue(backoff=Backoff(base=60, cap=60))
    controller = Controller("test", reconcile, queue=queue, workers=2)
    controller.enqueue("a")
    controller.queue.close()
    with anyio.fail_after(30):
        await controller.run()
    assert (len(calls), queue.delayed) == (want_calls, want_delayed)


async def test_no_key_is_reconciled_by_two_workers_at_once() -> None:
    active, most = 0, 0

    async def reconcile(key: str) -> Result | None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        controller.enqueue("a") if active_runs.pop() else None
        await anyio.sleep(0.001)
        active -= 1
        return None

    active_runs = [False, True, True, True]
    controller: Controller[str] = Controller("test", reconcile, workers=4)
    controller.enqueue("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        with anyio.fail_after(30):
            while active_runs or active:
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert most == 1


async def test_a_key_is_not_lost_with_the_worker_that_it_woke() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=ManualClock())
    got: list[str] = []

    async def work() -> None:
        got.append(await queue.get())

    async with asyncio.TaskGroup() as tasks:
        first, _, _, last = (tasks.create_task(work()) for _ in range(4))
        await asyncio.sleep(0)
        queue.add("a")  # wakes the first
        first.cancel()
        last.cancel()  # asleep
        queue.add("b")
        await asyncio.sleep(0.01)
        assert sorted(got) == ["a", "b"]


async def test_a_delayed_key_comes_although_the_worker_that_waited_for_it_has_other_work() -> None:
    queue: WorkQueue[str] = WorkQueue()
    busy = asyncio.Event()

    async def work() -> str:
        key = await queue.get()
        if key == "long":
            await busy.wait()
        return key

    async with asyncio.TaskGroup() as tasks:
        first, second = (tasks.create_task(work()) for _ in range(2))
        await asyncio.sleep(0)
        queue.add_after("later", 0.01)
        queue.add("long")
        with anyio.fail_after(60):
            assert await second == "later"
        busy.set()
    assert first.result() == "long"
