# SPDX-License-Identifier: Apache-2.0
"""How many heads may be evaluated early, by what a head has cost."""

from __future__ import annotations

import pytest

from manager.scheduler.cycle_cost import CycleCost, pause_after


def test_before_the_first_cycle_and_in_virtual_time_it_is_the_most() -> None:
    cost = CycleCost()
    assert cost.heads_per_second == 1000.0
    cost.add(seconds=0.0, heads=7)
    assert cost.heads_per_second == 1000.0


def test_heads_that_cost_milliseconds_take_a_fifth_of_the_time_at_most() -> None:
    cost = CycleCost()
    cost.add(seconds=0.5, heads=50)
    assert cost.heads_per_second == pytest.approx(20.0)


def test_cheap_heads_are_limited_too() -> None:
    cost = CycleCost()
    cost.add(seconds=0.001, heads=100)
    assert cost.heads_per_second == 1000.0


def test_one_slow_cycle_changes_little_and_many_change_it() -> None:
    cost = CycleCost()
    for _ in range(100):
        cost.add(seconds=0.004, heads=10)
    before = cost.heads_per_second
    cost.add(seconds=0.04, heads=10)
    assert before * 0.6 < cost.heads_per_second < before
    for _ in range(100):
        cost.add(seconds=0.04, heads=10)
    assert cost.heads_per_second == pytest.approx(50.0, rel=0.1)


def test_a_cycle_without_a_head_says_nothing() -> None:
    cost = CycleCost()
    cost.add(seconds=0.01, heads=10)
    cost.add(seconds=1.0, heads=0)
    assert cost.heads_per_second == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("seconds", "unsuccessful", "pause"),
    [
        pytest.param(0.001, 0, 0.0, id="none after a short cycle that admits"),
        pytest.param(0.001, 1, 0.001, id="a short one after one that does not"),
        pytest.param(0.001, 50, 0.010, id="ten milliseconds at most after many"),
        pytest.param(0.060, 0, 0.060, id="as long as a long cycle took"),
        pytest.param(0.006, 50, 0.010, id="the longer of both"),
        pytest.param(3.0, 0, 0.5, id="half a second at most"),
    ],
)
def test_others_run_between_two_cycles(seconds: float, unsuccessful: int, pause: float) -> None:
    assert pause_after(seconds, unsuccessful=unsuccessful) == pause
