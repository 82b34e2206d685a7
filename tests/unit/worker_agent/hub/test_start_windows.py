# SPDX-License-Identifier: Apache-2.0
"""How long the start of a job waits, after what ran before it."""

from __future__ import annotations

import pytest

from multikueue.core.clock import ManualClock
from worker_agent.hub.start_windows import StartWindows

WINDOW = 2.0
USUAL = 1.5 * WINDOW
LONGEST = 10 * WINDOW


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def windows(clock: ManualClock) -> StartWindows:
    return StartWindows(window=WINDOW, clock=clock)


def ran(windows: StartWindows, clock: ManualClock, *, seconds: float, jobs: int) -> None:
    started = [windows.started() for _ in range(jobs)]
    clock.advance(seconds)
    for each in started:
        windows.ended(each)


def start(windows: StartWindows, jobs: int) -> None:
    for _ in range(jobs):
        windows.started()


def test_a_start_now_and_then_waits_until_its_pods_are_ready(windows: StartWindows, clock: ManualClock) -> None:
    ran(windows, clock, seconds=4.0, jobs=3)
    clock.advance(LONGEST + 1)
    start(windows, 5)
    assert windows.seconds() == USUAL


def test_while_many_start_that_end_soon_each_waits_for_its_end(windows: StartWindows, clock: ManualClock) -> None:
    ran(windows, clock, seconds=LONGEST - 1, jobs=3)
    clock.advance(LONGEST)
    start(windows, 6)
    assert windows.seconds() == LONGEST


def test_while_many_start_that_run_on_none_waits_for_its_end(windows: StartWindows, clock: ManualClock) -> None:
    ran(windows, clock, seconds=LONGEST + 1, jobs=3)
    start(windows, 100)
    assert windows.seconds() == USUAL


def test_the_median_of_the_last_ones_counts(windows: StartWindows, clock: ManualClock) -> None:
    ran(windows, clock, seconds=LONGEST + 1, jobs=25)
    ran(windows, clock, seconds=1.0, jobs=12)
    start(windows, 100)
    assert windows.seconds() == USUAL
    ran(windows, clock, seconds=1.0, jobs=1)
    assert windows.seconds() == LONGEST


@pytest.mark.parametrize(("jobs", "windows_waited"), [(6, 1.8), (20, 6.0), (1000, 10.0)])
def test_as_long_as_none_has_ended_starts_wait_in_proportion_to_their_number(
    windows: StartWindows, jobs: int, windows_waited: float
) -> None:
    start(windows, jobs)
    assert windows.seconds() == pytest.approx(windows_waited * WINDOW)
