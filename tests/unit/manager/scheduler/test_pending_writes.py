# SPDX-License-Identifier: Apache-2.0
"""Reasons to wait are few writes a second, after all others, and none of them is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from manager.scheduler.pending_writes import News, PendingSender, PendingWrite, PendingWrites
from multikueue.api.resource import WORKLOADS
from multikueue.core.keys import Key
from multikueue.kube.errors import Unreachable
from multikueue.kube.rest.limiter import Limiter
from multikueue.kube.runtime.quarantine import Quarantine
from tests.simulation.world.virtual_time import SimClock, VirtualLoop

A, B = Key("ns", "a"), Key("ns", "b")


@dataclass(slots=True)
class Others:
    """The writes of others."""

    under_way: int = 0
    overloaded: bool = False


class Stage:
    """Pending writes in virtual time, and when each was sent."""

    def __init__(self, loop: VirtualLoop, *, per_second: float) -> None:
        self.clock = SimClock(loop)
        self.others = Others()
        self.quarantine = Quarantine(clock=self.clock)
        self.news: dict[str, News] = {}
        self.sent: list[tuple[float, str]] = []
        self.failing: set[str] = set()
        self.writes = PendingWrites(
            clock=self.clock,
            limiter=Limiter(qps=per_second, burst=2, clock=self.clock) if per_second else None,
            others_under_way=lambda own: self.others.under_way > 0,
            server_overloaded=lambda: self.others.overloaded,
            quarantine=self.quarantine,
        )

    def put(self, key: Key, name: str, *, slot: str = "reason", news: News = News.REASON) -> PendingWrite:
        """A write that is sent under a name."""
        self.news[name] = news

        write = PendingSender(self.news.__getitem__, self._send).about(name)
        self.writes.put(key, write, slot=slot)
        return write

    async def _send(self, name: str) -> None:
        if name in self.failing:
            raise Unreachable("the server is away")
        self.sent.append((round(self.clock.monotonic(), 1), name))

    async def elapse(self, seconds: float) -> None:
        """Let so much virtual time pass; the clock of the loop is set forward, and nothing waits."""
        await anyio.sleep(seconds)

    @property
    def names(self) -> list[str]:
        """What was sent, in order."""
        return [name for _, name in self.sent]


def play(script: Callable[[Stage], Awaitable[None]], *, per_second: float = 10.0) -> Stage:
    """What comes of a script; two writes at once, and then so many a second."""
    loop = VirtualLoop()
    stage = Stage(loop, per_second=per_second)

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.writes.run)
            await script(stage)
            tasks.cancel_scope.cancel()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return stage


def test_at_rest_a_reason_is_sent_at_once() -> None:
    async def script(stage: Stage) -> None:
        stage.put(A, "a")
        await stage.elapse(0.01)

    assert play(script).sent == [(0.0, "a")]


def test_more_than_the_budget_is_sent_at_its_pace_and_all_of_it_in_the_end() -> None:
    async def script(stage: Stage) -> None:
        for number in range(22):
            stage.put(Key("ns", str(number)), str(number))
        await stage.elapse(1.05)
        assert len(stage.sent) == 12
        await stage.elapse(1.0)

    stage = play(script)
    assert stage.names == [str(number) for number in range(22)]
    assert stage.sent[-1] == (2.0, "21")
    assert len(stage.writes) == 0


def test_without_a_budget_nothing_is_held_back() -> None:
    async def script(stage: Stage) -> None:
        for number in range(500):
            stage.put(Key("ns", str(number)), str(number))
        await stage.elapse(0.01)

    assert len(play(script, per_second=0).sent) == 500


def test_namespaces_take_turns() -> None:
    async def script(stage: Stage) -> None:
        for number in range(100):
            stage.put(Key("flood", str(number)), f"flood-{number}")
        stage.put(B, "b")
        await stage.elapse(1.0)

    assert play(script).names.index("b") < 5


def test_only_the_newest_of_a_key_and_slot_is_sent_and_costs_the_budget_once() -> None:
    async def script(stage: Stage) -> None:
        stage.put(B, "first")
        stage.put(B, "second", slot="another")
        await stage.elapse(0.01)
        for number in range(50):  # the budget is spent, so that these wait for it
            stage.put(A, f"a-{number}")
            await stage.elapse(0.001)
        stage.put(B, "b")
        await stage.elapse(0.3)

    assert play(script).sent == [(0.0, "first"), (0.0, "second"), (0.1, "a-49"), (0.2, "b")]


def test_what_has_come_true_already_costs_no_budget() -> None:
    async def script(stage: Stage) -> None:
        for number in range(50):
            stage.put(Key("ns", str(number)), str(number), news=News.NOTHING)
        stage.put(A, "a")
        await stage.elapse(0.01)

    stage = play(script)
    assert stage.sent == [(0.0, "a")]
    assert len(stage.writes) == 0


def test_a_dropped_write_is_not_sent() -> None:
    async def script(stage: Stage) -> None:
        stage.put(A, "a")
        stage.put(A, "other", slot="another")
        stage.writes.drop(A, slot="reason")
        await stage.elapse(100)

    assert play(script).names == ["other"]


def test_figures_that_moved_are_sent_once_in_a_minute_with_the_newest_values() -> None:
    async def script(stage: Stage) -> None:
        for number in range(600):
            stage.put(A, f"a-{number}", news=News.FIGURES)
            await stage.elapse(0.25)
        await stage.elapse(60)

    assert play(script).sent == [(60.0, "a-239"), (120.0, "a-479"), (180.0, "a-599")]


def test_a_new_reason_does_not_wait_for_the_minute_of_figures() -> None:
    async def script(stage: Stage) -> None:
        stage.put(A, "figures", news=News.FIGURES)
        await stage.elapse(5)
        stage.put(A, "reason")
        await stage.elapse(100)

    assert play(script).sent == [(5.0, "reason")]


def test_other_writes_go_before_for_a_second_at_most() -> None:
    async def script(stage: Stage) -> None:
        stage.others.under_way = 3
        stage.put(A, "a")
        await stage.elapse(0.5)
        assert not stage.sent
        stage.others.under_way = 0
        await stage.elapse(0.1)
        assert stage.names == ["a"]
        stage.others.under_way = 3
        stage.put(B, "b")
        await stage.elapse(1.1)

    assert play(script).names == ["a", "b"]


def test_a_failed_write_is_sent_again_unless_a_newer_one_was_put() -> None:
    async def script(stage: Stage) -> None:
        a, b = stage.put(A, "a", news=News.NOTHING), stage.put(B, "b", news=News.NOTHING)
        await stage.elapse(0.01)
        stage.news.update(a=News.REASON, b=News.REASON)
        stage.writes.retry(A, a, slot="reason", seconds=5)
        stage.writes.retry(B, b, slot="reason", seconds=5)
        stage.put(A, "newer")
        stage.writes.retry(A, a, slot="reason", seconds=1)
        await stage.elapse(20)

    assert play(script).sent == [(0.0, "newer"), (5.0, "b")]


def test_trouble_that_the_sender_does_not_handle_loses_nothing() -> None:
    async def script(stage: Stage) -> None:
        stage.failing.add("a")
        stage.put(A, "a")
        await stage.elapse(15)
        stage.failing.clear()
        await stage.elapse(15)

    assert play(script).sent == [(20.0, "a")]


@pytest.mark.breaks_on_purpose
def test_a_workload_that_cannot_be_understood_holds_up_no_other() -> None:
    def broken(number: int) -> News:
        raise TypeError(f"conditions of {number} is no list")

    async def send(number: int) -> None:
        raise AssertionError(f"{number} is sent")

    async def script(stage: Stage) -> None:
        for number in range(10):
            stage.writes.put(Key("ns", str(number)), PendingSender(broken, send).about(number), slot="reason")
        stage.put(A, "a")
        await stage.elapse(1)
        assert stage.quarantine.get("status", WORKLOADS, Key("ns", "7")) is not None

    stage = play(script)
    assert stage.names == ["a"]
    assert len(stage.writes) == 0


def test_at_rest_a_changed_reason_is_sent_at_once() -> None:
    async def script(stage: Stage) -> None:
        stage.put(A, "a", news=News.CHANGED)
        await stage.elapse(0.01)

    assert play(script).sent == [(0.0, "a")]


def test_a_changed_reason_leaves_a_used_up_budget_to_first_ones_for_half_a_minute() -> None:
    async def script(stage: Stage) -> None:
        stage.put(Key("ns", "first"), "first")
        stage.put(Key("ns", "second"), "second")
        stage.put(A, "changed", news=News.CHANGED)
        await stage.elapse(0.01)
        for number in range(600):  # as many as the budget allows, all the time
            stage.put(Key("ns", str(number)), str(number))
            await stage.elapse(0.1)

    stage = play(script)
    assert {name: at for at, name in stage.sent}["changed"] >= 30.0
    assert len(stage.names) > 400


def test_a_changed_reason_that_is_replaced_meanwhile_is_sent_once_as_it_is_then() -> None:
    async def script(stage: Stage) -> None:
        stage.put(Key("ns", "first"), "first")
        stage.put(Key("ns", "second"), "second")
        for number in range(9):
            stage.put(A, f"changed-{number}", news=News.CHANGED)
            await stage.elapse(0.01)
        await stage.elapse(40.0)

    assert play(script).names == ["first", "second", "changed-8"]


def test_an_overloaded_server_gets_a_reason_after_three_seconds() -> None:
    async def script(stage: Stage) -> None:
        stage.others.overloaded = True
        stage.put(A, "a")
        await stage.elapse(4.0)

    assert play(script).sent == [(3.0, "a")]


def test_a_reason_is_sent_as_soon_as_the_server_is_no_longer_overloaded() -> None:
    async def script(stage: Stage) -> None:
        stage.others.overloaded = True
        stage.put(A, "a")
        await stage.elapse(0.5)
        stage.others.overloaded = False
        await stage.elapse(0.1)

    assert play(script).sent == [(0.5, "a")]
