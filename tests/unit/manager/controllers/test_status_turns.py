# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections import Counter

import pytest

from manager.controllers.status_turns import StatusTurns

STEP = 0.1


class Figures:
    """Objects whose figures change, and a clock; what has its turn is written `answer` seconds later."""

    def __init__(self, *, answer: float = 0.005) -> None:
        self.turns: StatusTurns[str] = StatusTurns()
        self.now = 1000.0
        self.answer = answer
        self.written: list[tuple[str, float]] = []

    def step(self, *changing: str) -> None:
        """A tenth of a second in which these change."""
        for key in changing:
            self.turns.changed(key, now=self.now)
        for key in self.turns.due(now=self.now):
            self.turns.wrote(key, now=self.now, seconds=self.answer)
            self.written.append((key, self.now))
        self.now += STEP

    def run(self, *changing: str, seconds: float) -> list[tuple[str, float]]:
        """What is written while these change all the time, with the seconds since the start of it."""
        began, before = self.now, len(self.written)
        while self.now - began < seconds - STEP / 2:
            self.step(*changing)
        return [(key, round(at - began, 1)) for key, at in self.written[before:]]


def names(count: int) -> list[str]:
    return [f"queue-{number}" for number in range(count)]


def test_figures_that_changed_once_are_written_once_after_a_second() -> None:
    figures = Figures()
    figures.step("queue")
    assert figures.run(seconds=60.0) == [("queue", 0.9)]
    assert figures.turns.wait(now=figures.now) == math.inf


def test_figures_of_few_queues_that_change_all_the_time_are_written_each_second_and_a_half() -> None:
    figures = Figures()
    times = [at for key, at in figures.run(*names(6), seconds=12.0) if key == "queue-0"]
    assert times == pytest.approx([1.0, 2.5, 4.0, 5.5, 7.0, 8.5, 10.0, 11.5], abs=2 * STEP)


def test_the_last_of_many_changes_is_written_within_two_seconds() -> None:
    figures = Figures()
    figures.run("queue", seconds=10.3)
    (last,) = figures.run(seconds=60.0)
    assert last[1] <= 1.5


def test_the_figures_of_many_queues_share_ten_writes_a_second() -> None:
    figures = Figures()
    figures.run(*names(100), seconds=30.0)
    written = figures.run(*names(100), seconds=60.0)
    assert len(written) == pytest.approx(600, abs=20)
    assert set(Counter(key for key, _ in written).values()) <= {5, 6, 7}, "each in its turn"


@pytest.mark.parametrize(("answer", "oldest"), [(0.005, 30), (0.04, 60), (0.5, 120)])
def test_no_figures_of_thousands_of_queues_are_older_than_the_server_s_answers_allow(
    answer: float, oldest: int
) -> None:
    figures = Figures(answer=answer)
    keys = names(3000)
    figures.run(*keys, seconds=300.0)
    shown = dict.fromkeys(keys, 0.0)
    figures.run(*keys, seconds=150.0)
    shown.update(figures.written)
    ages = [figures.now - at for at in shown.values()]
    assert max(ages) == pytest.approx(oldest, rel=0.15)


def test_a_queue_at_rest_is_shown_soon_while_a_thousand_others_are_busy() -> None:
    figures = Figures(answer=0.5)
    figures.run(*names(1000), seconds=200.0)
    figures.step("another")
    assert [at for key, at in figures.run(*names(1000), seconds=3.0) if key == "another"] == [
        pytest.approx(1.0, abs=0.2)
    ]


@pytest.mark.parametrize("pause", [60, 450])
def test_figures_that_change_now_and_then_do_not_keep_those_waiting_that_always_change(pause: int) -> None:
    figures = Figures(answer=0.5)
    always = names(50)
    for second in range(900):
        now_and_then = [f"other-{number}" for number in range(second % pause, 20 * pause, pause)]
        figures.run(*always, *now_and_then, seconds=1.0)
    last = dict.fromkeys(always, 0.0) | {key: at for key, at in figures.written if key in always}
    assert max(figures.now - at for at in last.values()) < 150.0


def test_what_changes_while_it_is_written_waits_as_well() -> None:
    turns: StatusTurns[str] = StatusTurns()
    turns.changed("queue", now=10.0)
    assert turns.due(now=11.0) == ["queue"]
    turns.changed("queue", now=11.02)
    assert turns.due(now=11.04) == []
    turns.wrote("queue", now=11.05, seconds=0.05)
    assert turns.due(now=12.5) == ["queue"]


def test_a_turn_without_anything_to_write_is_another_one_s() -> None:
    turns: StatusTurns[str] = StatusTurns()
    for key in names(40):
        turns.changed(key, now=0.0)
    first = turns.due(now=1.0)
    assert turns.due(now=1.0) == []
    for key in first:
        turns.unchanged(key)
    assert len(turns.due(now=1.0)) == len(first)


def test_what_is_gone_is_forgotten() -> None:
    turns: StatusTurns[str] = StatusTurns()
    turns.changed("queue", now=0.0)
    assert turns.due(now=1.0) == ["queue"]
    turns.forget("queue")
    turns.changed("queue", now=1.1)
    assert turns.due(now=2.0) == [], "a new one of that name is fresh"
    assert turns.due(now=2.1) == ["queue"]
