# SPDX-License-Identifier: Apache-2.0
"""Fair sharing: order of admission and preemption (`docs/spec/engine.md §4.5`, §4.6, §5); examples 9 and 10 of §13."""

from __future__ import annotations

import pytest

from multikueue.engine import Decision, Gates, Outcome, Settings
from multikueue.engine.settings import FairStrategy
from multikueue.engine.values import ClusterQueue
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import Bench, group, holding, pods, preemption, queue, workload

FAIR = Settings(fair_sharing=True, pods_ready=None)


def held(name: str, at_queue: str, cpu: str, *, priority: int = 0, since: float = 0) -> Workload:
    return holding(workload(name, at_queue, pods(cpu=cpu), priority=priority), at_queue, since)


def victims(decision: Decision) -> dict[str, str]:
    return {victim.workload.name: str(victim.reason) for victim in decision.victims}


def three(**cpu: str) -> list[ClusterQueue]:
    policy = preemption("LowerPriority", "Any")
    return [queue(name, group(default=amount), cohort="co", preemption=policy) for name, amount in cpu.items()]


def nine(*workloads: Workload, settings: Settings = FAIR) -> Bench:
    bench = Bench(*three(a="3", b="3", c="3"), settings=settings)
    units = {"a": 3, "b": 5, "c": 1}
    for name, count in units.items():
        bench.add(*(held(f"{name}{i}", name, "1", since=i) for i in range(count)))
    return bench.add(*workloads)


def test_example_9_a_victim_whose_queue_ends_no_worse_than_the_preemptor() -> None:
    decision = nine(workload("w", "a", pods(cpu="1"))).decide("w")
    assert victims(decision) == {"b4": "InCohortFairSharing"}


def test_example_9_more_would_not_be_fair() -> None:
    decision = nine(workload("w", "a", pods(cpu="2"))).decide("w")
    assert (decision.outcome, decision.reason, victims(decision)) == (Outcome.PENDING, "WaitingForQuota", {})


def test_example_9_within_nominal_no_share_is_compared() -> None:
    decision = nine(workload("w", "c", pods(cpu="1"))).decide("w")
    assert victims(decision) == {"b4": "InCohortReclamation"}


def test_example_9_unless_the_gate_is_off() -> None:
    off = Settings(fair_sharing=True, pods_ready=None, gates=Gates(fair_preempt_within_nominal=False))
    assert victims(nine(workload("w", "c", pods(cpu="1")), settings=off).decide("w")) == {"b4": "InCohortFairSharing"}


def test_example_10_the_workload_whose_loss_is_fair_and_not_the_first() -> None:
    bench = Bench(*three(a="3", b="3", c="3"), settings=FAIR)
    bench.add(held("b-two", "b", "2", since=3), held("b-one", "b", "1", since=2), held("b-last", "b", "2", since=1))
    bench.add(held("c0", "c", "1"), workload("w", "a", pods(cpu="3500m")))
    assert victims(bench.decide("w")) == {"b-one": "InCohortFairSharing"}


@pytest.mark.parametrize(
    ("strategies", "want"),
    [
        pytest.param((FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,), {}, id="not by the final share"),
        pytest.param(
            (FairStrategy.LESS_THAN_INITIAL_SHARE,), {"big": "InCohortFairSharing"}, id="by the initial share"
        ),
        pytest.param(tuple(FairStrategy), {"big": "InCohortFairSharing"}, id="by the second of both"),
    ],
)
def test_strategies(strategies: tuple[FairStrategy, ...], want: dict[str, str]) -> None:
    # b borrows 4 of 9 with one workload: without it nothing. a would borrow 1, less than b does now.
    bench = Bench(
        *three(a="2", b="1", c="6"), settings=Settings(fair_sharing=True, fair_strategies=strategies, pods_ready=None)
    )
    bench.add(held("big", "b", "5"), held("a0", "a", "2"), held("c0", "c", "2"), workload("w", "a", pods(cpu="1")))
    assert victims(bench.decide("w")) == want


def test_who_has_no_weight_gets_nothing_that_others_borrowed() -> None:
    policy = preemption("LowerPriority", "Any")
    bench = Bench(
        queue("a", group(default="1"), cohort="co", preemption=policy, weight=0.0),
        queue("b", group(default="1"), cohort="co", preemption=policy),
        settings=FAIR,
    )
    bench.add(held("b0", "b", "2"), workload("w", "a", pods(cpu="2")))
    assert victims(bench.decide("w")) == {}
    within = Bench(
        queue("a", group(default="1"), cohort="co", preemption=policy, weight=0.0),
        queue("b", group(default="1"), cohort="co", preemption=policy),
        settings=FAIR,
    )
    within.add(held("b0", "b", "2"), workload("w", "a", pods(cpu="1")))
    assert victims(within.decide("w")) == {"b0": "InCohortReclamation"}


def test_the_queue_with_the_highest_share_gives_first() -> None:
    bench = Bench(*three(mine="6", a="0", b="0"), settings=FAIR)
    bench.add(
        *(held(f"a{i}", "a", "1", since=i) for i in range(2)), *(held(f"b{i}", "b", "1", since=i) for i in range(4))
    )
    assert victims(bench.add(workload("w", "mine", pods(cpu="2"))).decide("w")).keys() == {"b3", "b2"}


def test_a_cohort_gives_before_a_queue_of_the_same_share() -> None:
    bench = Bench(*three(mine="8", flat="0"), settings=FAIR)
    bench.add_queue(queue("deep", group(default="0"), cohort="sub"))
    bench.add_cohort("sub", parent="co")
    bench.engine.flush(bench.now)
    bench.add(held("flat0", "flat", "4", since=9), held("deep0", "deep", "4", since=1))
    assert victims(bench.add(workload("w", "mine", pods(cpu="4"))).decide("w")).keys() == {"deep0"}


def test_a_queue_without_a_cohort_preempts_its_own() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")), settings=FAIR)
    bench.add(held("low", "q", "2"), workload("w", "q", pods(cpu="2"), priority=1))
    assert victims(bench.decide("w")) == {"low": "InClusterQueue"}


def order(bench: Bench) -> list[str]:
    return [decision.workload.name for decision in bench.cycle().decisions]


def test_the_lower_share_goes_first_whatever_the_priority() -> None:
    bench = Bench(*three(a="0", b="0", lender="10"), settings=FAIR)
    bench.add(workload("wa", "a", pods(cpu="6"), priority=9), workload("wb", "b", pods(cpu="2")))
    assert order(bench) == ["wb", "wa"]


def test_weights_divide_shares() -> None:
    bench = Bench(*three(lender="10"), settings=FAIR)
    bench.add_queue(queue("a", group(default="0"), cohort="co", weight=4.0))
    bench.add_queue(queue("b", group(default="0"), cohort="co"))
    bench.engine.flush(bench.now)
    bench.add(workload("wa", "a", pods(cpu="6")), workload("wb", "b", pods(cpu="2")))
    assert order(bench) == ["wa", "wb"]


def test_workloads_that_need_not_borrow_go_before_those_that_must() -> None:
    bench = Bench(*three(a="0", b="4", lender="10"), settings=FAIR)
    bench.add(workload("wa", "a", pods(cpu="1"), priority=9), workload("wb", "b", pods(cpu="4")))
    assert order(bench) == ["wb", "wa"]


def test_priority_and_time_decide_between_equal_shares() -> None:
    bench = Bench(*three(a="2", b="2", c="2"), settings=FAIR)
    bench.add(
        workload("wa", "a", pods(cpu="1"), created=2),
        workload("wb", "b", pods(cpu="1"), created=1),
        workload("wc", "c", pods(cpu="1"), priority=1, created=3),
    )
    assert order(bench) == ["wc", "wb", "wa"]


def test_a_subtree_competes_as_a_whole() -> None:
    # left's queues are poor, but left as a whole borrows more than right would.
    bench = Bench(
        queue("l1", group(default="0"), cohort="left"),
        queue("l2", group(default="0"), cohort="left"),
        queue("r1", group(default="0"), cohort="right"),
        queue("lender", group(default="20"), cohort="root"),
        settings=FAIR,
    )
    bench.add_cohort("left", parent="root")
    bench.add_cohort("right", parent="root")
    bench.engine.flush(bench.now)
    bench.add(held("h", "l1", "6"))
    bench.add(workload("wl", "l2", pods(cpu="1"), priority=9), workload("wr", "r1", pods(cpu="3")))
    assert order(bench) == ["wr", "wl"]


def test_each_admission_changes_the_shares_of_those_that_follow() -> None:
    bench = Bench(
        queue("l1", group(default="0"), cohort="left"),
        queue("l2", group(default="0"), cohort="left"),
        queue("r1", group(default="0"), cohort="right"),
        queue("lender", group(default="20"), cohort="root"),
        settings=FAIR,
    )
    bench.add_cohort("left", parent="root")
    bench.add_cohort("right", parent="root")
    bench.engine.flush(bench.now)
    bench.add(
        workload("l-a", "l1", pods(cpu="2"), created=1),
        workload("l-b", "l2", pods(cpu="2"), created=2),
        workload("r", "r1", pods(cpu="3"), created=3),
    )
    assert order(bench) == ["l-a", "r", "l-b"]


def test_the_weighted_share_is_shown_and_only_under_fair_sharing() -> None:
    bench = Bench(*three(a="3", b="3", c="3"), settings=FAIR)
    bench.add(held("x", "a", "4"))
    assert bench.engine.cluster_queue_state("a").weighted_share == 112
    assert bench.engine.cluster_queue_state("b").weighted_share == 0
    assert bench.engine.cohort_state("co").weighted_share == 0
    assert Bench(*three(a="3")).engine.cluster_queue_state("a").weighted_share is None
