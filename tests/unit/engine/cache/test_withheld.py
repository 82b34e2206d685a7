# SPDX-License-Identifier: Apache-2.0
"""Quota of ended workloads, which no head takes before the next flush of its tree (ADR 0032)."""

from __future__ import annotations

import pytest

from multikueue.engine import Outcome
from tests.support.engine_builders import Bench, group, pods, preemption, queue, workload

WINDOW = 1.0
QUOTA = 6


def full(*, large: str = "4", withholds: bool = True) -> Bench:
    """A queue of six cpu with a workload on each, a queue that borrows, and an inadmissible large one.

    The tree was just flushed: its next flush is a window later, whatever ends.
    """
    bench = Bench(
        queue("q", group(default=str(QUOTA)), cohort="c", preemption=preemption(within="LowerPriority")),
        queue("other", group(default="0"), cohort="c"),
    )
    if withholds:
        bench.engine.defer_admissions()
    for number in range(QUOTA + 1):
        bench.add(workload(f"first-{number}", "q", pods(cpu="1"), priority=10, created=number))
        bench.settle()
    if large:
        bench.add(workload("large", "q", pods(cpu=large), priority=10, created=20))
    bench.settle()
    bench.pass_time(5)
    ends(bench, "first-0")
    bench.pass_time(0.02)
    bench.settle()
    assert bench.waits("q") == (["[large]"] if large else [])
    return bench


def ends(bench: Bench, name: str) -> None:
    bench.finish(name)
    bench.settle()


def comes(bench: Bench, name: str, *, cluster_queue: str = "q", cpu: str = "1", priority: int = 0) -> None:
    bench.add(workload(name, cluster_queue, pods(cpu=cpu), priority=priority, created=30))
    bench.settle()


def four_end_and_small_ones_come(bench: Bench) -> None:
    for number in range(1, 5):
        bench.settle_after(0.1)
        ends(bench, f"first-{number}")
        comes(bench, f"small-{number}", cluster_queue="other" if number == 3 else "q")


def test_what_is_freed_in_a_window_goes_to_the_large_one_that_waits_for_it() -> None:
    bench = full()
    four_end_and_small_ones_come(bench)
    bench.settle_after(WINDOW)
    assert bench.has_quota("large")
    assert bench.waits("q") == ["[small-1]", "[small-2]", "[small-4]"]


def test_without_that_small_ones_take_it_piece_by_piece() -> None:
    bench = full(withholds=False)
    four_end_and_small_ones_come(bench)
    assert bench.has_quota("small-4")
    bench.settle_after(WINDOW)
    assert not bench.has_quota("large")


def test_what_is_freed_where_nothing_is_inadmissible_is_free_at_once() -> None:
    bench = full(large="")
    bench.settle_after(0.1)
    ends(bench, "first-1")
    comes(bench, "new")
    assert bench.has_quota("new")


def test_what_was_free_before_is_not_withheld() -> None:
    bench = full(large="7")
    comes(bench, "fills")
    assert not bench.has_quota("fills"), "all is used"
    for number in (1, 2):
        ends(bench, f"first-{number}")
    bench.settle_after(WINDOW)
    assert bench.has_quota("fills")
    bench.settle_after(0.1)
    ends(bench, "first-3")
    comes(bench, "takes-what-was-free")
    comes(bench, "would-take-what-is-withheld", cluster_queue="other")
    assert bench.has_quota("takes-what-was-free")
    assert not bench.has_quota("would-take-what-is-withheld")
    bench.settle_after(WINDOW)
    assert bench.has_quota("would-take-what-is-withheld")


def test_a_head_waits_for_a_window_at_most_however_often_quota_is_freed() -> None:
    bench = full(large="7")
    bench.settle_after(0.1)
    ends(bench, "first-1")
    comes(bench, "new")
    assert not bench.has_quota("new")
    for step in range(1, 101):
        bench.settle_after(WINDOW / 100)
        if step % 30 == 0:
            ends(bench, f"first-{1 + step // 30}")
    assert bench.has_quota("new")


def test_a_head_behind_one_that_never_fits_gets_its_turn_while_quota_is_freed_all_the_time() -> None:
    bench = full(large="7")
    comes(bench, "behind", cpu="2")
    for number in range(1, 40):
        bench.finish(f"first-{number}")
        # It takes the place of the ended one at once, so that something is withheld in every cycle.
        comes(bench, f"first-{number + QUOTA}", cluster_queue="other", priority=-1)
        bench.settle_after(WINDOW / 5)
        if bench.has_quota("behind"):
            return
    pytest.fail(f"not admitted: {bench.waits('q')}")


def test_a_workload_that_fits_into_what_is_withheld_preempts_nobody() -> None:
    bench = full()
    bench.settle_after(0.1)
    ends(bench, "first-1")
    bench.add(workload("urgent", "q", pods(cpu="1"), priority=100, created=30))
    assert not any(decision.victims for decision in bench.cycle().decisions)
    assert not bench.has_quota("urgent")
    bench.settle_after(WINDOW)
    assert bench.has_quota("urgent")


def test_a_workload_that_needs_more_than_what_is_withheld_preempts_for_the_rest_at_once() -> None:
    bench = full()
    bench.settle_after(0.1)
    ends(bench, "first-1")
    bench.add(workload("urgent", "q", pods(cpu="2"), priority=100, created=30))
    decision = bench.decide("urgent")
    assert decision.outcome is Outcome.PREEMPTING
    assert len(decision.victims) == 1


def test_what_a_victim_used_is_free_at_once_even_if_it_has_ended() -> None:
    bench = full()
    bench.settle_after(0.1)
    bench.add(workload("urgent", "q", pods(cpu="1"), priority=100, created=30))
    victim = bench.decide("urgent").victims[0].workload
    ends(bench, victim.name)
    assert bench.has_quota("urgent")


def test_figures_show_what_is_withheld_as_free() -> None:
    bench = full()
    ends(bench, "first-1")
    comes(bench, "new")
    state = bench.engine.cluster_queue_state("q")
    assert list(state.reservation.values()) == [(QUOTA - 1) * 1000]
    assert list(bench.engine.cohort_state("c").usage.values()) == [(QUOTA - 1) * 1000]


def test_a_head_within_the_quota_of_its_own_queue_does_not_wait_for_those_of_other_queues() -> None:
    bench = full()
    bench.add_queue(queue("owner", group(default="1"), cohort="c"))
    comes(bench, "borrows", cluster_queue="other")
    bench.settle_after(WINDOW)
    assert bench.has_quota("borrows"), "the quota of the owner"
    bench.settle_after(0.1)
    ends(bench, "borrows")
    comes(bench, "owned", cluster_queue="owner")
    assert bench.waits("owner") == []


def test_an_edit_of_the_tree_ends_it() -> None:
    bench = full()
    ends(bench, "first-1")
    comes(bench, "new")
    assert not bench.has_quota("new")
    bench.add_queue(queue("third", group(default="0"), cohort="c"))
    bench.settle()
    assert bench.has_quota("new")


def test_a_queue_that_is_deleted_meanwhile_withholds_nothing() -> None:
    bench = full()
    ends(bench, "first-1")
    bench.engine.delete_cluster_queue("q", bench.now)
    bench.add_queue(queue("q", group(default="9"), cohort="c"))
    comes(bench, "new")
    assert bench.has_quota("new")


def test_the_engine_asks_to_be_called_when_it_ends() -> None:
    bench = full()
    bench.settle_after(0.1)
    ends(bench, "first-1")
    comes(bench, "new", priority=10)
    assert not bench.engine.has_heads(bench.now, repeat=False), "the same heads are not decided again"
    wake = bench.engine.next_wake(bench.now)
    assert wake is not None
    assert (wake - bench.now).total_seconds() <= WINDOW
    bench.now = wake
    bench.settle()
    assert bench.has_quota("new")


def small_comes_after_the_end_of(first: str) -> Bench:
    """A large workload waits for all of its queue's quota, of which one of so many cpu ends; two are free elsewhere."""
    bench = Bench(
        queue("q", group(default=str(QUOTA)), cohort="c", preemption=preemption(within="LowerPriority")),
        queue("lends", group(default="2"), cohort="c"),
    )
    bench.engine.defer_admissions()
    comes(bench, "first", cpu=first, priority=10)
    comes(bench, "large", cpu=str(QUOTA), priority=10)
    assert bench.waits("q") == ["[large]"]
    bench.settle_after(5)
    ends(bench, "first")
    comes(bench, "small")
    return bench


def test_what_was_freed_of_a_queues_own_quota_is_left_to_it_even_if_as_much_is_free_elsewhere() -> None:
    bench = small_comes_after_the_end_of(str(QUOTA))
    assert not bench.has_quota("small")
    bench.settle_after(WINDOW)
    assert bench.has_quota("large")
    assert bench.engine.cluster_queue_state("q").borrowed_reservation == {("default", "cpu"): 1000}
    assert bench.has_quota("small")


def test_a_queue_takes_of_its_own_quota_what_was_not_in_use() -> None:
    bench = small_comes_after_the_end_of(str(QUOTA - 1))
    assert bench.has_quota("small")
