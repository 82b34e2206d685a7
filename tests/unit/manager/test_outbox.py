# SPDX-License-Identifier: Apache-2.0
"""The queue of writes: in order for each key, several keys at once, newer reasons in the place of older ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from manager.outbox import Outbox
from multikueue.core.keys import Key

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
async def running(outbox: Outbox) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        yield
        tasks.cancel_scope.cancel()


async def empty(outbox: Outbox) -> None:
    with anyio.fail_after(30):
        while len(outbox):
            await anyio.lowlevel.checkpoint()


async def test_jobs_of_one_key_run_in_order_and_those_of_others_beside_them() -> None:
    outbox, writes = Outbox(runners=4), Writes()
    async with running(outbox):
        outbox.put(A, writes.job("a1"), slot="x")
        outbox.put(A, writes.job("a2"), slot="y")
        outbox.put(B, writes.job("b1"), slot="x")
        await anyio.wait_all_tasks_blocked()
        assert writes.begun == ["a1", "b1"]
        writes.gate.set()
        await empty(outbox)
    assert [name for name in writes.ended if name.startswith("a")] == ["a1", "a2"]


async def test_a_newer_reason_takes_the_place_of_one_that_waits() -> None:
    outbox, writes = Outbox(runners=1), Writes()
    async with running(outbox):
        outbox.put(A, writes.job("first"), slot="pend", replace=True)
        await anyio.wait_all_tasks_blocked()
        outbox.put(A, writes.job("second"), slot="pend", replace=True)
        outbox.put(A, writes.job("third"), slot="pend", replace=True)
        assert outbox.holds(A, "pend")
        assert len(outbox) == 2
        writes.gate.set()
        await empty(outbox)
    assert writes.ended == ["first", "third"]


async def test_no_more_jobs_run_at_once_than_there_are_runners() -> None:
    outbox, writes = Outbox(runners=2), Writes()
    async with running(outbox):
        for number in range(5):
            outbox.put(Key("ns", str(number)), writes.job(str(number)), slot="x")
        await anyio.wait_all_tasks_blocked()
        assert len(writes.begun) == 2
        writes.gate.set()
        await empty(outbox)
    assert len(writes.ended) == 5
