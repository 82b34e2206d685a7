# SPDX-License-Identifier: Apache-2.0
"""Workloads that were preempted and wait again, with the one that preempted them (`docs/spec/engine.md §3.8`)."""

from __future__ import annotations

from dataclasses import replace

from multikueue.engine import Outcome, Settings
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import Bench, fungibility, group, holding, pods, preemption, queue, workload

PLAIN = Settings(pods_ready=None)
FAIR = replace(PLAIN, fair_sharing=True)


def of(count: int, name: str, queue_name: str, *, priority: int = 0) -> Workload:
    """A workload of so many CPUs."""
    return workload(name, queue_name, pods(count, cpu="1"), priority=priority)


def borrowers() -> Bench:
    """`near` borrows from the cohort that it shares with `far`, which needs more than that: from the whole tree."""
    bench = Bench(
        queue("lender", group(default="2"), cohort="top"),
        queue("near", group(default="0"), cohort="part"),
        queue("far", group(default="5"), cohort="part", preemption=preemption(reclaim="Any", borrow="LowerPriority")),
    )
    bench.add_cohort("part", parent="top")
    return bench


def test_a_victim_that_borrows_less_comes_after_its_preemptor() -> None:
    bench = borrowers().add(holding(of(4, "victim", "near"), "near"), of(6, "preemptor", "far", priority=1))
    assert bench.carry_out() == ["victim"]
    assert bench.has_quota("preemptor")
    assert bench.waits("near") == ["[victim]"]


def test_a_victim_of_higher_priority_comes_after_its_preemptor_with_fair_sharing() -> None:
    bench = Bench(
        queue("lender", group(a="1", b="5"), cohort="c"),
        queue("victims", group(a="1"), cohort="c"),
        queue(
            "owner",
            group(a="2", b="0"),
            cohort="c",
            preemption=preemption(reclaim="Any"),
            fungibility=fungibility(preempt="MayStopSearch"),
        ),
        settings=FAIR,
    )
    # It has a right to two of `a`, and borrows more of `b` than its victim borrows of `a`.
    preemptor = workload("preemptor", "owner", pods(2, "x", cpu="1"), pods(5, "y", cpu="1"))
    bench.add(holding(of(3, "victim", "victims", priority=1), "victims", flavor="a"), preemptor)
    assert bench.carry_out() == ["victim"]
    assert bench.has_quota("preemptor")


def test_others_keep_their_place_before_the_preemptor() -> None:
    bench = borrowers()
    bench.add_queue(queue("next", group(default="0"), cohort="part"))
    bench.add(holding(of(4, "victim", "near"), "near"), of(6, "preemptor", "far", priority=1))
    assert bench.decide("preemptor").outcome is Outcome.PREEMPTING
    bench.evict("victim")
    bench.add(of(1, "first", "next"))
    bench.pass_time(2)
    assert [str(each.workload.name) for each in bench.cycle().decisions] == ["first", "preemptor", "victim"]


def test_a_victim_has_its_own_place_again_once_its_preemptor_found_no_quota() -> None:
    bench = borrowers().add(holding(of(4, "victim", "near"), "near"), of(6, "preemptor", "far", priority=1))
    assert bench.decide("preemptor").outcome is Outcome.PREEMPTING
    bench.add_queue(queue("lender", group(default="0"), cohort="top"))
    assert bench.decide("preemptor").outcome is Outcome.PENDING
    bench.evict("victim")
    bench.add_queue(queue("lender", group(default="2"), cohort="top"))
    bench.pass_time(2)
    assert [str(each.workload.name) for each in bench.cycle().decisions] == ["victim", "preemptor"]


def test_a_preemptor_gets_the_flavors_that_it_preempted_for() -> None:
    bench = Bench(
        queue("lender", group(a="5"), cohort="c"),
        queue("borrower", group(a="0"), cohort="c"),
        queue(
            "owner",
            group(a="3", b="6"),
            cohort="c",
            preemption=preemption(reclaim="Any", borrow="LowerPriority"),
            fungibility=fungibility(borrow="TryNextFlavor"),
        ),
    )
    bench.add(
        holding(of(4, "kept", "lender"), "lender", flavor="a"),
        holding(of(4, "own", "owner", priority=1), "owner", flavor="b"),
        holding(of(2, "victim", "borrower"), "borrower", flavor="a"),
        # Both pod sets do not fit on `a` even without the victim; for `x` on `b` it is preempted. When it is gone, the
        # search gives `x` the flavor `a` again.
        workload("preemptor", "owner", pods(1, "x", cpu="1100m"), pods(3, "y", cpu="1100m"), priority=1),
    )
    assert bench.carry_out() == ["victim"]
    assert bench.has_quota("preemptor")
