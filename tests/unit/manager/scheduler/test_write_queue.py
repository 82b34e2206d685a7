# SPDX-License-Identifier: Apache-2.0
"""The queue of writes: in order for each key, several keys at once, newer reasons in the place of older ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from manager.scheduler.write_concurrency import WriteConcurrency
from manager.scheduler.write_queue import NamespaceTurns, WriteQueue
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.errors import Details, TooManyRequests

pytestmark = pytest.mark.anyio
A, B = Key("ns", "a"), Key("ns", "b")


class Writes:
    """Jobs that log their name and wait for a gate."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gate = anyio.Event()

    def job(self, name: str):  # type: ignore[no-untyped-def]
        async def run() -> None:
            self.begun.append(name)
            await self.gate.wait()
            self.ended.append(name)

        return run


@asynccontextmanager
async def running(write_queue: WriteQueue) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_queue.run)
        yield
        tasks.cancel_scope.cancel()


async def empty(write_queue: WriteQueue) -> None:
    with anyio.fail_after(30):
        while len(write_queue):
            await anyio.lowlevel.checkpoint()


async def test_jobs_of_one_key_run_in_order_and_those_of_others_beside_them() -> None:
    write_queue, writes = WriteQueue(runners=4), Writes()
    async with running(write_queue):
        write_queue.put(A, writes.job("a1"), slot="x")
        write_queue.put(A, writes.job("a2"), slot="y")
        write_queue.put(B, writes.job("b1"), slot="x")
        await anyio.wait_all_tasks_blocked()
        assert writes.begun == ["a1", "b1"]
        writes.gate.set()
        await empty(write_queue)
    assert [name for name in writes.ended if name.startswith("a")] == ["a1", "a2"]


async def test_a_withdrawn_job_never_runs_and_others_of_its_key_do() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    async with running(write_queue):
        write_queue.put(B, writes.job("b"), slot="reserve")
        await anyio.wait_all_tasks_blocked()
        write_queue.put(A, writes.job("reserve"), slot="reserve")
        write_queue.put(A, writes.job("preempt"), slot="preempt")
        assert write_queue.holds_unbegun(A, "reserve")
        write_queue.withdraw(A, "reserve")
        assert not write_queue.holds(A, "reserve")
        writes.gate.set()
        await empty(write_queue)
    assert writes.ended == ["b", "preempt"]


async def test_a_job_that_runs_or_is_retried_is_not_withdrawn() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    async with running(write_queue):
        write_queue.put(A, writes.job("runs"), slot="reserve")
        await anyio.wait_all_tasks_blocked()
        write_queue.postpone(A, writes.job("again"), slot="reserve", seconds=0)
        assert not write_queue.holds_unbegun(A, "reserve")
        write_queue.withdraw(A, "reserve")
        writes.gate.set()
        await empty(write_queue)
    assert writes.ended == ["runs", "again"]


async def test_a_job_that_was_postponed_is_not_withdrawn_once_it_waits_again() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    async with running(write_queue):
        write_queue.put(B, writes.job("b"), slot="reserve")
        await anyio.wait_all_tasks_blocked()
        for number in range(4):
            write_queue.put(Key("ns", f"other-{number}"), writes.job("other"), slot="reserve")
        write_queue.postpone(A, writes.job("again"), slot="reserve", seconds=0.001)
        with anyio.fail_after(30):
            while not write_queue.behind:  # with A, more wait than four for each runner
                await anyio.sleep(0.001)
        write_queue.withdraw(A, "reserve")
        writes.gate.set()
        await empty(write_queue)
    assert "again" in writes.ended


@pytest.mark.parametrize("former", ["runs", "is postponed"])
async def test_a_job_whose_former_attempt_may_have_reached_the_server_is_not_withdrawn(former: str) -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    async with running(write_queue):
        write_queue.put(A if former == "runs" else B, writes.job("former"), slot="reserve")
        await anyio.wait_all_tasks_blocked()
        if former == "is postponed":
            write_queue.postpone(A, writes.job("dropped"), slot="reserve", seconds=60)
        write_queue.put(A, writes.job("newer"), slot="reserve", replace=True)
        assert not write_queue.holds_unbegun(A, "reserve")
        write_queue.withdraw(A, "reserve")
        writes.gate.set()
        await empty(write_queue)
    assert writes.ended == ["former", "newer"]


async def test_a_key_that_is_put_again_after_a_withdrawal_runs_one_job_at_a_time() -> None:
    write_queue, writes = WriteQueue(runners=3), Writes()
    blocked = Writes()
    async with running(write_queue):
        for number in range(3):
            write_queue.put(Key("ns", f"other-{number}"), blocked.job("other"), slot="x")
        await anyio.wait_all_tasks_blocked()
        write_queue.put(A, writes.job("dropped"), slot="reserve")
        write_queue.withdraw(A, "reserve")
        write_queue.put(A, writes.job("first"), slot="reserve")
        write_queue.put(A, writes.job("second"), slot="preempt")
        blocked.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert writes.begun == ["first"]
        writes.gate.set()
        await empty(write_queue)
    assert writes.ended == ["first", "second"]


async def test_who_waits_for_the_end_of_all_jobs_does_not_wait_for_withdrawn_ones() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    write_queue.put(A, writes.job("dropped"), slot="reserve")
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_queue.drained)
            await anyio.wait_all_tasks_blocked()
            write_queue.withdraw(A, "reserve")


async def test_a_newer_reason_takes_the_place_of_one_that_waits() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    async with running(write_queue):
        write_queue.put(A, writes.job("first"), slot="pend", replace=True)
        await anyio.wait_all_tasks_blocked()
        write_queue.put(A, writes.job("second"), slot="pend", replace=True)
        write_queue.put(A, writes.job("third"), slot="pend", replace=True)
        assert write_queue.holds(A, "pend")
        assert len(write_queue) == 2
        writes.gate.set()
        await empty(write_queue)
    assert writes.ended == ["first", "third"]


async def test_no_more_jobs_run_at_once_than_there_are_runners() -> None:
    write_queue, writes = WriteQueue(runners=2), Writes()
    async with running(write_queue):
        for number in range(5):
            write_queue.put(Key("ns", str(number)), writes.job(str(number)), slot="x")
        await anyio.wait_all_tasks_blocked()
        assert len(writes.begun) == 2
        writes.gate.set()
        await empty(write_queue)
    assert len(writes.ended) == 5


async def test_a_postponed_job_leaves_its_runner_to_others_and_comes_after_its_time() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    writes.gate.set()

    async def first() -> None:
        write_queue.postpone(A, writes.job("again"), slot="x", seconds=0.01)
        write_queue.put(B, writes.job("b1"), slot="x")

    async with running(write_queue):
        write_queue.put(A, first, slot="x")
        await empty(write_queue)
    assert writes.ended == ["b1", "again"]


async def test_a_newer_job_takes_the_place_of_a_postponed_one() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    writes.gate.set()

    async def first() -> None:
        write_queue.postpone(A, writes.job("old"), slot="pend", seconds=3600)
        assert write_queue.holds(A, "pend")
        write_queue.put(A, writes.job("new"), slot="pend", replace=True)

    async with running(write_queue):
        write_queue.put(A, first, slot="pend")
        await empty(write_queue)
    assert writes.ended == ["new"]


async def test_a_job_is_not_postponed_when_a_newer_one_waits() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    writes.gate.set()

    async def first() -> None:
        write_queue.put(A, writes.job("new"), slot="pend", replace=True)
        write_queue.postpone(A, writes.job("old"), slot="pend", seconds=0.0)

    async with running(write_queue):
        write_queue.put(A, first, slot="pend")
        await empty(write_queue)
    assert writes.ended == ["new"]


async def test_a_job_that_is_postponed_by_no_time_is_put_at_once() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    writes.gate.set()
    async with running(write_queue):
        write_queue.postpone(A, writes.job("at once"), slot="pend", seconds=0.0)
        assert write_queue.busy
        await empty(write_queue)
    assert writes.ended == ["at once"]


def put_jobs(write_queue: WriteQueue, writes: Writes, count: int) -> None:
    for number in range(count):
        write_queue.put(Key("ns", str(number)), writes.job(str(number)), slot="x")


async def test_no_more_jobs_run_at_once_than_the_concurrency_allows_and_all_are_run() -> None:
    concurrency, writes = WriteConcurrency(most=48), Writes()
    write_queue = WriteQueue(runners=48, concurrency=concurrency)
    async with running(write_queue):
        put_jobs(write_queue, writes, 40)
        await anyio.wait_all_tasks_blocked()
        assert len(writes.begun) == concurrency.limit < 40
        writes.gate.set()
        await empty(write_queue)
    assert len(writes.ended) == 40


async def test_more_jobs_start_when_the_concurrency_has_grown() -> None:
    concurrency, writes = WriteConcurrency(most=48), Writes()
    write_queue = WriteQueue(runners=48, concurrency=concurrency)

    async def grow() -> None:
        for _ in range(2000):
            concurrency.allows(concurrency.limit)
            concurrency.answered(0.01, now=0.0)

    async with running(write_queue):
        write_queue.put(A, grow, slot="x")
        put_jobs(write_queue, writes, 60)
        await anyio.wait_all_tasks_blocked()
        assert len(writes.begun) == 48
        writes.gate.set()
        await empty(write_queue)


async def test_jobs_wait_as_long_as_the_server_asks_and_start_then() -> None:
    concurrency, clock, writes = WriteConcurrency(most=48), ManualClock(), Writes()
    details = Details(retry_after=0.01)
    asked = TooManyRequests(request="hub: APPLY", status=429, reason="", message="", details=details)
    concurrency.answered(0.001, now=clock.monotonic(), error=asked)
    write_queue = WriteQueue(runners=4, concurrency=concurrency, clock=clock)
    writes.gate.set()
    async with running(write_queue):
        put_jobs(write_queue, writes, 10)
        await anyio.wait_all_tasks_blocked()
        assert not writes.begun
        clock.advance(0.01)
        await empty(write_queue)
    assert len(writes.ended) == 10


async def test_a_job_of_higher_priority_runs_before_those_that_wait_and_a_postponed_one_keeps_its_own() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()

    async def fails() -> None:
        write_queue.postpone(A, writes.job("again"), slot="x", seconds=0.0, priority=5)

    writes.gate.set()
    write_queue.put(A, fails, slot="x", priority=5)
    async with running(write_queue):
        for name, priority in (("low", 1), ("high", 9)):
            write_queue.put(Key("ns", name), writes.job(name), slot="x", priority=priority)
        await empty(write_queue)
    assert writes.ended == ["high", "again", "low"]


async def test_it_is_behind_while_more_jobs_wait_than_will_run_soon() -> None:
    concurrency, writes = WriteConcurrency(most=48), Writes()
    write_queue = WriteQueue(runners=48, concurrency=concurrency)
    at_once = concurrency.limit
    caught_up = anyio.Event()

    async def wait() -> None:
        await write_queue.caught_up()
        caught_up.set()

    def is_behind() -> bool:
        return write_queue.behind

    async with running(write_queue):
        put_jobs(write_queue, writes, 5 * at_once)
        await anyio.wait_all_tasks_blocked()
        assert not is_behind()  # a fifth of them runs
        write_queue.put(A, writes.job("one more"), slot="x")
        assert is_behind()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not caught_up.is_set()
            writes.gate.set()
            with anyio.fail_after(30):
                await caught_up.wait()
        await empty(write_queue)


async def test_what_is_postponed_does_not_count_as_behind() -> None:
    write_queue, writes = WriteQueue(runners=1), Writes()
    async with running(write_queue):
        await anyio.wait_all_tasks_blocked()
        for number in range(100):
            write_queue.postpone(Key("ns", str(number)), writes.job("later"), slot="x", seconds=3600)
        assert not write_queue.behind
        await write_queue.caught_up()


def test_keys_of_a_namespace_come_by_priority_while_namespaces_take_turns() -> None:
    turns = NamespaceTurns()
    for name, priority in (("low", -1), ("none", 0), ("high", 7)):
        turns.append(Key("a", name), priority=priority)
    turns.append(Key("b", "lowest"), priority=-100)
    assert [str(turns.popleft()) for _ in range(4)] == ["a/high", "b/lowest", "a/none", "a/low"]


def test_a_key_waits_for_one_of_another_namespace_however_many_there_are() -> None:
    turns = NamespaceTurns()
    for number in range(1000):
        turns.append(Key("flood", str(number)))
    turns.append(Key("other", "a"))
    turns.append(Key("other", "b"))
    found = [str(turns.popleft()) for _ in range(5)]
    assert found == ["flood/0", "other/a", "flood/1", "other/b", "flood/2"]


def test_a_key_of_a_low_priority_does_not_wait_for_as_long_as_others_come() -> None:
    turns = NamespaceTurns()
    turns.append(Key("a", "low"), priority=-1)
    turns.append(Key("a", "next"), priority=-2)
    found = []
    for number in range(8):
        for more in range(2):
            turns.append(Key("a", f"{number}-{more}"), priority=7)
        found.append(turns.popleft().name)
    assert found == ["0-0", "0-1", "1-0", "low", "1-1", "2-0", "2-1", "next"]


def test_a_key_that_was_taken_out_of_its_order_does_not_come_again() -> None:
    turns = NamespaceTurns()
    for number in range(50):
        turns.append(Key("a", str(number)), priority=number % 5)
    assert sorted(int(turns.popleft().name) for _ in range(50)) == list(range(50))
    assert not turns


def test_it_is_empty_when_each_key_was_taken() -> None:
    turns = NamespaceTurns()
    turns.append(Key("a", "b"))
    assert turns
    turns.popleft()
    assert not turns
    with pytest.raises(KeyError):
        turns.popleft()
