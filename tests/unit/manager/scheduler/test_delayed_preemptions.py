# SPDX-License-Identifier: Apache-2.0
"""Preemptions that wait for their delay: how long, and what becomes of their victims."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from manager.scheduler.delayed_preemptions import (
    DelayedPreemptions,
    delay_for_releases,
    delay_for_runs,
    delay_for_victims,
)
from multikueue.api.reasons import PreemptedReason
from multikueue.core.keys import Key
from multikueue.engine.decisions import Victim
from tests.support.engine_builders import Bench, group, key, pods, queue, workload

URGENT, OTHER = Key("team", "urgent"), Key("team", "other")
A, B, C = (Key("team", name) for name in "abc")


def pending(*keys: Key) -> Callable[[Key], bool]:
    return lambda key: key in keys


def test_victims_are_chosen_again_when_the_delay_ends_and_evicted_then() -> None:
    delayed = DelayedPreemptions()
    delayed.delay(URGENT, [A, B], until=10.0)
    assert not delayed.take_due(URGENT, 12.0)
    assert delayed.end(9.9, is_pending=pending(URGENT)) == []
    assert delayed.end(10.0, is_pending=pending(URGENT)) == [A, B]
    assert delayed.take_due(URGENT, 12.0)


def test_a_delay_that_has_ended_counts_for_one_decision() -> None:
    delayed = DelayedPreemptions()
    delayed.delay(URGENT, [A], until=10.0)
    delayed.end(10.0, is_pending=pending(URGENT))
    assert delayed.take_due(URGENT, 12.0)
    assert not delayed.take_due(URGENT, 12.0)


@pytest.mark.parametrize(("moment", "evicts"), [(21.0, True), (21.1, False)])
def test_a_preemptor_that_needed_no_victims_for_ten_seconds_has_a_new_delay(moment: float, evicts: bool) -> None:
    delayed = DelayedPreemptions()
    delayed.delay(URGENT, [A], until=10.0)
    delayed.end(10.0, is_pending=pending(URGENT))
    delayed.needs_no_victims(URGENT, 11.0)
    delayed.needs_no_victims(URGENT, 15.0)
    assert delayed.take_due(URGENT, moment) == evicts
    assert not delayed.take_due(URGENT, moment)


def test_a_preemptor_that_is_decided_again_much_later_has_no_new_delay() -> None:
    delayed = DelayedPreemptions()
    delayed.needs_no_victims(URGENT, 1.0)
    delayed.delay(URGENT, [A], until=10.0)
    delayed.needs_no_victims(URGENT, 5.0)
    delayed.end(10.0, is_pending=pending(URGENT))
    assert delayed.take_due(URGENT, 1000.0)


def test_more_victims_of_the_same_preemptor_do_not_make_its_delay_longer() -> None:
    delayed = DelayedPreemptions()
    delayed.delay(URGENT, [A], until=10.0)
    delayed.delay(URGENT, [B], until=15.0)
    assert delayed.next_end == 10.0
    assert delayed.end(10.0, is_pending=pending(URGENT)) == [A, B]
    assert delayed.next_end is None


def test_the_victims_of_a_preemptor_that_is_no_longer_pending_are_released_at_once() -> None:
    delayed = DelayedPreemptions()
    delayed.delay(URGENT, [A], until=10.0)
    delayed.delay(OTHER, [B, C], until=12.0)
    assert delayed.end(1.0, is_pending=pending(OTHER)) == [A]
    assert not delayed.take_due(URGENT, 12.0)
    assert delayed.next_end == 12.0


def test_a_preemptor_that_leaves_after_its_delay_has_a_new_delay_when_it_comes_back() -> None:
    delayed = DelayedPreemptions()
    delayed.delay(URGENT, [A], until=10.0)
    delayed.end(10.0, is_pending=pending(URGENT))
    delayed.end(11.0, is_pending=pending())
    assert not delayed.take_due(URGENT, 12.0)


def test_nothing_is_left_of_an_engine_that_is_gone() -> None:
    delayed = DelayedPreemptions()
    delayed.delay(URGENT, [A], until=10.0)
    delayed.delay(OTHER, [B], until=1.0)
    delayed.end(1.0, is_pending=pending(URGENT, OTHER))
    delayed.clear()
    assert delayed.next_end is None
    assert delayed.end(20.0, is_pending=pending(URGENT, OTHER)) == []
    assert not delayed.take_due(OTHER, 12.0)


@pytest.mark.parametrize(
    ("runs", "delay"),
    [
        pytest.param([0.3, 0.8], 1.6, id="all end soon"),
        pytest.param([0.3, 60.0], 4.0, id="all end within a minute"),
        pytest.param([0.02, 0.03], 0.1, id="all end sooner than the shortest delay"),
        pytest.param([0.3, 60.1], 0.1, id="one is of a queue of longer ones"),
        pytest.param([0.3, None], 0.1, id="none of a queue has ended yet"),
        pytest.param([], 0.1, id="no victims"),
    ],
)
def test_the_delay_is_as_long_as_two_runs_where_workloads_end_soon(runs: list[float | None], delay: float) -> None:
    assert delay_for_runs(runs, 0.1) == pytest.approx(delay)


@pytest.mark.parametrize(
    ("seconds", "delay"),
    [
        pytest.param(0.3, 3.0, id="soon"),
        pytest.param(4.0, 4.0, id="within four seconds"),
        pytest.param(4.1, 0.1, id="later"),
        pytest.param(0.0, 0.1, id="nothing is held"),
        pytest.param(None, 0.1, id="not known"),
    ],
)
def test_the_delay_is_ten_times_as_long_as_the_cohort_needs_to_release_as_much(
    seconds: float | None, delay: float
) -> None:
    assert delay_for_releases(seconds, 0.1) == pytest.approx(delay)


def test_no_delay_stays_none_however_soon_workloads_end() -> None:
    assert delay_for_runs([0.0], 0.0) == 0.0
    assert delay_for_releases(0.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("ended_in", "delay"),
    [
        pytest.param("its", 4.0, id="its own queue, which releases as much in each run"),
        pytest.param("next", 1.8, id="another queue of its cohort"),
        pytest.param("far", 0.1, id="a queue of another cohort"),
    ],
)
def test_a_victim_has_the_time_of_the_runs_of_its_queue_or_else_of_its_cohort(ended_in: str, delay: float) -> None:
    cohorts = {"its": "cohort", "next": "cohort", "far": "elsewhere"}
    bench = Bench(*(queue(name, group(default="4"), cohort=cohort) for name, cohort in cohorts.items()))
    bench.add(workload("short", ended_in, pods(cpu="1"))).settle()
    bench.pass_time(0.9)
    bench.finish("short")
    bench.add(workload("running", "its", pods(cpu="1"))).settle()
    assert bench.has_quota("running")
    victim = Victim(
        workload=key("running"), uid="uid", cluster_queue="its", reason=PreemptedReason.IN_COHORT_RECLAMATION
    )
    assert delay_for_victims([victim], bench.engine, 0.1) == pytest.approx(delay)
