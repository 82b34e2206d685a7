# SPDX-License-Identifier: Apache-2.0
"""Quota that a flush has offered is kept for a while for inadmissible workloads of higher priorities (ADR 0032)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.engine_builders import START, Bench, group, pods, preemption, queue, workload

WINDOW = 1.0
QUOTA = 6
LONGEST = 15.0
PRIORITY = 10


def full(*, runs: float = 60.0, large: str = "4", defers: bool = True) -> Bench:
    """A queue of six cpu with a workload on each, which run for a while, and a large one of priority 10 that waits."""
    bench = Bench(
        queue("q", group(default=str(QUOTA)), cohort="c", preemption=preemption(within="LowerPriority")),
        queue("other", group(default="0"), cohort="c"),
    )
    if defers:
        bench.engine.defer_admissions()
    for number in range(QUOTA):
        comes(bench, f"first-{number}", "q", priority=PRIORITY)
    comes(bench, "large", "q", priority=PRIORITY, cpu=large)
    bench.settle_after(runs)
    return bench


def ends(bench: Bench, *numbers: int) -> None:
    """Some of the first ones end, and the flush comes that offers what they used."""
    for number in numbers:
        bench.finish(f"first-{number}")
    bench.settle()
    bench.settle_after(WINDOW)


def comes(bench: Bench, name: str, where: str = "other", *, priority: int = 0, cpu: str = "1") -> None:
    bench.add(workload(name, where, pods(cpu=cpu), priority=priority, created=(bench.now - START).total_seconds()))
    bench.settle()


def test_what_one_flush_after_another_offers_adds_up_for_a_larger_workload() -> None:
    bench = full()
    comes(bench, "small")
    for number in range(4):
        assert not bench.has_quota("large")
        ends(bench, number)
    assert bench.has_quota("large")
    assert not bench.has_quota("small")


def test_without_that_a_small_one_takes_it() -> None:
    bench = full(defers=False)
    comes(bench, "small")
    ends(bench, 0)
    assert bench.has_quota("small")


def test_a_smaller_one_gets_what_was_not_enough_after_fifteen_seconds() -> None:
    bench = full()
    comes(bench, "small")
    ends(bench, 0)
    bench.settle_after(LONGEST - WINDOW)
    assert not bench.has_quota("small")
    bench.settle_after(WINDOW)
    assert bench.has_quota("small")


def test_where_workloads_run_for_two_seconds_it_is_kept_for_one() -> None:
    bench = full(runs=2)
    bench.add(workload("small", "other", pods(cpu="1"), created=30))
    ends(bench, 0)
    bench.settle_after(1.1)
    assert bench.has_quota("small")


def test_the_engine_asks_to_be_called_when_it_is_not_kept_any_more() -> None:
    bench = full()
    comes(bench, "small")
    ends(bench, 0)
    wake = bench.engine.next_wake(bench.now)
    assert wake is not None
    assert 0 < (wake - bench.now).total_seconds() <= LONGEST
    bench.now = wake
    bench.settle()
    assert bench.has_quota("small")


def test_the_engine_does_not_ask_to_be_called_if_no_workload_waits_for_it() -> None:
    bench = full()
    ends(bench, 0)
    assert bench.engine.next_wake(bench.now) is None


def test_one_of_the_same_priority_takes_it_at_once() -> None:
    bench = full()
    comes(bench, "small", priority=PRIORITY)
    ends(bench, 0)
    assert bench.has_quota("small")


def test_nothing_is_kept_for_a_workload_that_exceeds_all_quota() -> None:
    bench = full(large=str(QUOTA + 1))
    comes(bench, "small")
    ends(bench, 0)
    assert bench.has_quota("small")


def test_what_was_free_before_is_not_kept() -> None:
    bench = full(large=str(QUOTA))
    ends(bench, 0)
    bench.settle_after(LONGEST)
    ends(bench, 1)
    comes(bench, "small")
    comes(bench, "next")
    assert bench.has_quota("small")
    assert not bench.has_quota("next")


def test_what_an_urgent_workload_takes_is_of_what_was_kept() -> None:
    bench = full(large=str(QUOTA))
    ends(bench, 0)
    bench.settle_after(LONGEST)
    ends(bench, 1)
    comes(bench, "urgent", priority=PRIORITY)
    comes(bench, "small")
    assert bench.has_quota("urgent")
    assert bench.has_quota("small"), "of what is not kept any more"


def test_a_queue_does_not_leave_its_own_quota_to_other_queues() -> None:
    bench = full()
    bench.add_queue(queue("owner", group(default="1"), cohort="c"))
    comes(bench, "lent")
    assert bench.has_quota("lent"), "borrowed of the owner"
    bench.settle_after(60)
    bench.finish("lent")
    bench.settle_after(WINDOW)
    bench.add(workload("owned", "owner", pods(cpu="1"), created=200))
    bench.settle()
    assert bench.waits("owner") == []


def test_a_queue_leaves_its_own_quota_to_its_own_workloads_of_a_higher_priority() -> None:
    bench = full()
    ends(bench, 0)
    comes(bench, "small", "q")
    assert not bench.has_quota("small")
    bench.settle_after(LONGEST)
    assert bench.has_quota("small")


@pytest.mark.parametrize(("small", "waits"), [({"cpu": "1"}, False), ({"cpu": "1", "gpu": "1"}, True)])
def test_a_workload_that_lacks_gpus_keeps_gpus_and_no_cpu_from_lower_priorities(
    small: dict[str, Any], waits: bool
) -> None:
    bench = Bench(
        queue("q", group(default={"cpu": "9", "gpu": "3"}), cohort="c"),
        queue("other", group(default={"cpu": "0", "gpu": "0"}), cohort="c"),
    )
    bench.engine.defer_admissions()
    for number in range(3):
        bench.add(workload(f"first-{number}", "q", pods(cpu="3", gpu="1"), priority=PRIORITY, created=number))
        bench.settle()
    bench.add(workload("training", "q", pods(cpu="1", gpu="2"), priority=PRIORITY, created=4))
    bench.settle_after(60)
    ends(bench, 0)
    assert not bench.has_quota("training")
    bench.add(workload("small", "other", pods(**small), created=5))
    bench.settle()
    assert bench.has_quota("small") is not waits


def test_an_edit_of_the_tree_ends_it() -> None:
    bench = full()
    comes(bench, "small")
    ends(bench, 0)
    assert not bench.has_quota("small")
    bench.add_queue(queue("third", group(default="0"), cohort="c"))
    bench.settle()
    assert bench.has_quota("small")


def test_a_preemption_does_not_wait_for_what_is_kept() -> None:
    bench = full()
    comes(bench, "small")
    ends(bench, 0)
    bench.add(workload("urgent", "q", pods(cpu="2"), priority=100, created=300))
    assert len(bench.decide("urgent").victims) == 1


@pytest.mark.parametrize("steps", [3, 40])
def test_a_smaller_one_waits_for_sixteen_seconds_at_most_however_often_quota_is_freed(steps: int) -> None:
    bench = full(large=str(QUOTA))
    comes(bench, "small")
    since = bench.now
    for number in range(4):
        bench.finish(f"first-{number}")
        for _ in range(steps):
            bench.settle_after(5.0 / steps)
            if bench.has_quota("small"):
                assert (bench.now - since).total_seconds() <= WINDOW + LONGEST + 5.0 / steps
                return
    pytest.fail("it still waits")
