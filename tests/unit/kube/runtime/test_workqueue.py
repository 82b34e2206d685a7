# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from random import Random

import anyio
import pytest

from multikueue.core.backoff import Backoff
from multikueue.core.clock import ManualClock
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import Closed, WorkQueue


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


async def test_namespaces_take_turns_however_many_keys_one_of_them_has() -> None:
    queue: WorkQueue[Key] = WorkQueue()
    for number in range(1000):
        queue.add(Key("flood", str(number)))
    first = await queue.get()
    queue.add(Key("other", "a"))
    queue.add(Key("other", "b"))
    order = [first, *[await queue.get() for _ in range(5)]]
    assert [str(key) for key in order] == ["flood/0", "flood/1", "other/a", "flood/2", "other/b", "flood/3"]


async def test_an_urgent_key_of_a_flood_puts_no_other_namespace_behind_the_rest_of_it() -> None:
    queue: WorkQueue[Key] = WorkQueue()
    for number in range(1000):
        queue.add(Key("flood", str(number)))
    for number in range(100):
        queue.add(Key("flood", f"urgent-{number}"), priority=1)
    for _ in range(100):
        assert (await queue.get()).name.startswith("urgent")
    queue.add(Key("other", "a"))
    assert Key("other", "a") in [await queue.get() for _ in range(2)]


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


async def test_keys_of_one_namespace_leave_a_worker_to_others() -> None:
    queue: WorkQueue[Key] = WorkQueue(share=2)
    for number in range(5):
        queue.add(Key("flood", str(number)))
    held = [await queue.get(), await queue.get()]
    waiting = asyncio.create_task(queue.get())
    await anyio.wait_all_tasks_blocked()
    queue.add(Key("flood", "5"))
    assert not waiting.done()
    queue.add(Key("other", "a"))
    assert await waiting == Key("other", "a")
    queue.done(held[0])
    assert await queue.get() == Key("flood", "2")
    assert [str(key) for key in held] == ["flood/0", "flood/1"]


async def test_a_key_that_is_over_the_share_and_becomes_urgent_is_the_next_of_its_namespace() -> None:
    queue: WorkQueue[Key] = WorkQueue(share=1)
    for number in range(4):
        queue.add(Key("flood", str(number)))
    order = [await queue.get()]
    waiting = asyncio.create_task(queue.get())
    await anyio.wait_all_tasks_blocked()
    queue.add(Key("flood", "3"), priority=1)
    queue.done(order[0])
    order.append(await waiting)
    for _ in range(2):
        queue.done(order[-1])
        order.append(await queue.get())
    assert [key.name for key in order] == ["0", "3", "1", "2"]


async def test_keys_without_a_namespace_have_no_share() -> None:
    queue: WorkQueue[Key] = WorkQueue(share=1)
    for number in range(3):
        queue.add(Key("", str(number)))
    assert [(await queue.get()).name for _ in range(3)] == ["0", "1", "2"]


@pytest.mark.parametrize("seed", range(20))
async def test_shares_lose_no_key(seed: int) -> None:
    random = Random(seed)
    queue: WorkQueue[Key] = WorkQueue(share=2)
    keys = [Key(f"ns-{number % 3}", str(number)) for number in range(60)]
    working: list[Key] = []
    done: set[Key] = set()

    async def work() -> None:
        while True:
            key = await queue.get()
            working.append(key)
            assert sum(each.namespace == key.namespace for each in working) <= 2
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            working.remove(key)
            done.add(key)
            queue.done(key)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(work)
        for _ in range(300):
            queue.add(random.choice(keys), priority=random.randrange(3))
            if random.random() < 0.3:
                await asyncio.sleep(0)
        for key in keys:
            queue.add(key)
        await anyio.wait_all_tasks_blocked()
        assert done == set(keys)
        assert len(queue) == 0
        tasks.cancel_scope.cancel()
