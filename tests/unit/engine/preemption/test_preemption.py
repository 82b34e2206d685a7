# SPDX-License-Identifier: Apache-2.0
"""Preemption without fair sharing (`docs/spec/engine.md §4.1` to §4.4, §4.7) and examples 8 and 11 of §13."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import StopPolicy
from multikueue.api.reasons import PreemptedReason
from multikueue.engine import Decision, Outcome, lifecycle
from multikueue.engine.settings import Settings
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import Bench, at, group, holding, key, pods, preemption, queue, workload


def held(
    name: str,
    at_queue: str,
    cpu: str,
    *,
    priority: int = 0,
    since: float = 0,
    created: float = 0,
    flavor: str = "default",
) -> Workload:
    return holding(workload(name, at_queue, pods(cpu=cpu), priority=priority, created=created), at_queue, since, flavor)


def victims(decision: Decision) -> dict[str, str]:
    return {victim.workload.name: str(victim.reason) for victim in decision.victims}


@pytest.mark.parametrize(
    ("policy", "priority", "created", "want"),
    [
        pytest.param("Never", 9, 0, False, id="never spares everybody"),
        pytest.param("LowerPriority", 1, 0, True, id="lower priority gives way"),
        pytest.param("LowerPriority", 0, 0, False, id="equal priority does not"),
        pytest.param("LowerOrNewerEqualPriority", 0, 1, True, id="equal priority does when it is newer"),
        pytest.param("LowerOrNewerEqualPriority", 0, 5, False, id="not when it is as old"),
        pytest.param("LowerOrNewerEqualPriority", -1, 0, False, id="and never for lower priority"),
    ],
)
def test_within_the_own_queue(policy: str, priority: int, created: float, want: bool) -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption(policy)))
    bench.add(held("old", "q", "2", created=5), workload("w", "q", pods(cpu="2"), priority=priority, created=created))
    decision = bench.decide("w")
    assert victims(decision) == ({"old": "InClusterQueue"} if want else {})
    assert decision.outcome is (Outcome.PREEMPTING if want else Outcome.PENDING)


@pytest.mark.parametrize(
    ("policy", "priority", "want"),
    [
        pytest.param("Never", 9, False, id="never reclaims nothing"),
        pytest.param("LowerPriority", 1, True, id="lower priority gives back"),
        pytest.param("LowerPriority", 0, False, id="equal priority keeps"),
        pytest.param("Any", -5, True, id="any gives back to anybody"),
    ],
)
def test_reclaiming_what_others_borrowed(policy: str, priority: int, want: bool) -> None:
    bench = Bench(
        queue("mine", group(default="2"), cohort="co", preemption=preemption(reclaim=policy)),
        queue("other", group(default="2"), cohort="co"),
    )
    bench.add(held("b", "other", "4"), workload("w", "mine", pods(cpu="2"), priority=priority))
    decision = bench.decide("w")
    assert victims(decision) == ({"b": "InCohortReclamation"} if want else {})


def test_who_stays_within_nominal_is_left_alone() -> None:
    bench = Bench(
        queue("mine", group(default="2"), cohort="co", preemption=preemption(reclaim="Any")),
        queue("modest", group(default="2"), cohort="co"),
        queue("greedy", group(default="0"), cohort="co"),
    )
    bench.add(held("m", "modest", "2"), held("g1", "greedy", "1"), held("g2", "greedy", "1"))
    assert victims(bench.add(workload("w", "mine", pods(cpu="2"))).decide("w")) == {
        "g1": "InCohortReclamation",
        "g2": "InCohortReclamation",
    }


@pytest.mark.parametrize("fair", [False, True])
def test_what_runs_in_a_held_queue_is_preempted_once_that_is_open_again(*, fair: bool) -> None:
    borrower = queue("held", group(default="0"), cohort="co")
    bench = Bench(
        queue("mine", group(default="2"), cohort="co", preemption=preemption(reclaim="Any")),
        borrower,
        settings=Settings(fair_sharing=fair, pods_ready=None),
    )
    bench.add(held("b", "held", "2"))
    bench.engine.upsert_cluster_queue(replace(borrower, stop_policy=StopPolicy.HOLD), bench.now)
    bench.add(workload("w", "mine", pods(cpu="2")))
    bench.settle()
    assert bench.waits("mine") == ["[w]"]
    bench.engine.upsert_cluster_queue(borrower, bench.now)
    bench.engine.flush(bench.now)
    assert list(victims(bench.decide("w"))) == ["b"]


def test_a_borrower_is_taken_from_only_until_it_is_within_nominal() -> None:
    bench = Bench(
        queue("mine", group(default="4"), cohort="co", preemption=preemption(reclaim="Any")),
        queue("a", group(default="2"), cohort="co"),
        queue("b", group(default="0"), cohort="co"),
    )
    bench.add(held("a1", "a", "3", since=9), held("a2", "a", "1", since=8), held("b1", "b", "2", since=1))
    assert victims(bench.add(workload("w", "mine", pods(cpu="4"))).decide("w")).keys() == {"a1", "b1"}


@pytest.mark.parametrize(
    ("workloads", "want"),
    [
        pytest.param([held("p1", "q", "2", priority=1), held("p0", "q", "2")], "p0", id="lower priority goes first"),
        pytest.param(
            [held("old", "q", "2", since=1), held("new", "q", "2", since=2)], "new", id="later reservation goes first"
        ),
        pytest.param([held("b", "q", "2"), held("a", "q", "2")], "a", id="the smaller uid goes first"),
        pytest.param(
            [held("own", "q", "2"), held("theirs", "other", "2", priority=1, since=0)],
            "theirs",
            id="other queues go before the own",
        ),
    ],
)
def test_who_goes_first(workloads: list[Workload], want: str) -> None:
    bench = Bench(
        queue("q", group(default="4"), cohort="co", preemption=preemption("LowerPriority", "LowerPriority")),
        queue("other", group(default="0"), cohort="co"),
    )
    bench.add(*workloads, workload("w", "q", pods(cpu="2"), priority=5))
    assert list(victims(bench.decide("w"))) == [want]


def test_an_evicted_workload_is_the_first_victim_and_not_evicted_again() -> None:
    bench = Bench(queue("q", group(default="4"), preemption=preemption("LowerPriority")))
    bench.add(held("a", "q", "2", since=1), held("b", "q", "2", since=2), workload("w", "q", pods(cpu="2"), priority=5))
    assert [(v.workload.name, v.evicted) for v in bench.decide("w").victims] == [("b", False)]
    bench.add(held("c", "q", "0", since=3))
    again = bench.decide("w")
    assert [(v.workload.name, v.evicted) for v in again.victims] == [("b", True)]
    assert again.message.endswith("2 more needed. Pending the preemption of 1 workload(s)")
    bench.evict("b")
    assert bench.decide("w").outcome is Outcome.RESERVED


def test_reservations_of_one_moment_are_ordered_by_number() -> None:
    bench = Bench(
        queue("a", group(default="0"), cohort="co"),
        queue("b", group(default="0"), cohort="co"),
        queue("mine", group(default="4"), cohort="co", preemption=preemption(reclaim="Any")),
    )
    bench.add(workload("z", "a", pods(cpu="2"), created=1), workload("y", "b", pods(cpu="2"), created=2))
    bench.cycle()
    assert list(victims(bench.add(workload("w", "mine", pods(cpu="2"))).decide("w"))) == ["y"]


def test_example_11_what_turns_out_not_to_be_needed_is_kept() -> None:
    bench = Bench(queue("q", group(default="6"), preemption=preemption("LowerPriority")))
    bench.add(held("old", "q", "4", since=1), held("newer", "q", "1", since=2), held("newest", "q", "1", since=3))
    assert victims(bench.add(workload("w", "q", pods(cpu="4"), priority=1)).decide("w")) == {"old": "InClusterQueue"}


def test_example_8_hierarchical_advantage() -> None:
    def decided(quota_of_c: str) -> Decision:
        bench = Bench(
            queue("q", group(default="0"), cohort="c", preemption=preemption(reclaim="Any")),
            queue("q-b", group(default="0"), cohort="r"),
            queue("lender", group(default="0"), cohort="r"),
        )
        bench.add_cohort("c", group(default=quota_of_c), parent="r")
        bench.add_cohort("r", group(default="0" if quota_of_c == "2" else "2"))
        bench.engine.flush(bench.now)
        bench.add(held("b", "q-b", "2", priority=100), workload("w", "q", pods(cpu="2")))
        return bench.decide("w")

    assert victims(decided("2")) == {"b": "InCohortReclamation"}
    without = decided("0")
    assert (without.outcome, victims(without)) == (Outcome.PENDING, {})


def borrower(policy: str | None, threshold: int | None = None, *, victim_priority: int = 0) -> Decision:
    """A preemptor that must borrow, against another borrower."""
    bench = Bench(
        queue(
            "mine",
            group(default="0"),
            cohort="co",
            preemption=preemption(reclaim="Any", borrow=policy, threshold=threshold),
        ),
        queue("other", group(default="0"), cohort="co"),
        queue("lender", group(default="4"), cohort="co"),
    )
    bench.add(held("b", "other", "4", priority=victim_priority), workload("w", "mine", pods(cpu="4"), priority=5))
    return bench.decide("w")


@pytest.mark.parametrize(
    ("policy", "threshold", "victim_priority", "want"),
    [
        pytest.param(None, None, 0, False, id="without the policy it may not"),
        pytest.param("Never", None, 0, False, id="nor with never"),
        pytest.param("LowerPriority", None, 0, True, id="with it lower priority gives way"),
        pytest.param("LowerPriority", None, 5, False, id="equal priority does not"),
        pytest.param("LowerPriority", 1, 1, True, id="up to the threshold"),
        pytest.param("LowerPriority", 1, 2, False, id="not above it"),
    ],
)
def test_preempting_others_while_borrowing(
    policy: str | None, threshold: int | None, victim_priority: int, want: bool
) -> None:
    decision = borrower(policy, threshold, victim_priority=victim_priority)
    assert victims(decision) == ({"b": "InCohortReclaimWhileBorrowing"} if want else {})


def test_above_the_threshold_a_preemptor_may_still_reclaim_without_borrowing() -> None:
    policy = preemption(reclaim="Any", borrow="LowerPriority", threshold=1)
    bench = Bench(
        queue("mine", group(default="4"), cohort="co", preemption=policy),
        queue("other", group(default="0"), cohort="co"),
    )
    bench.add(held("b", "other", "4", priority=3), workload("w", "mine", pods(cpu="4"), priority=5))
    assert victims(bench.decide("w")) == {"b": "InCohortReclamation"}


def test_only_those_on_a_contested_flavor_are_candidates() -> None:
    groups = group(a="2", b="2")
    bench = Bench(queue("q", groups, preemption=preemption("LowerPriority")))
    bench.add(held("on-a", "q", "2", flavor="a", since=1), held("on-b", "q", "2", flavor="b", since=2))
    bench.add(workload("w", "q", pods(cpu="2"), priority=1))
    assert list(victims(bench.decide("w"))) == ["on-a"]


def test_the_messages_of_a_preemption() -> None:
    bench = Bench(
        queue("mine", group(default="2"), cohort="team", preemption=preemption(reclaim="Any")),
        queue("other", group(default="0"), cohort="team"),
    )
    bench.add_cohort("team", parent="org")
    bench.engine.flush(bench.now)
    bench.add(held("b", "other", "2"), workload("w", "mine", pods(cpu="2"), job_uid="job-7"))
    victim = bench.decide("w").victims[0]
    assert (victim.workload, victim.uid, victim.cluster_queue) == (key("b"), "uid-b", "other")
    assert victim.message == (
        "Preempted to accommodate a workload (UID: uid-w, JobUID: job-7) due to reclamation within the cohort;"
        " preemptor path: /org/team/mine; preemptee path: /org/team/other"
    )


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        pytest.param(PreemptedReason.IN_CLUSTER_QUEUE, "prioritization in the ClusterQueue", id="own queue"),
        pytest.param(PreemptedReason.IN_COHORT_RECLAMATION, "reclamation within the cohort", id="reclaim"),
        pytest.param(PreemptedReason.IN_COHORT_FAIR_SHARING, "Fair Sharing within the cohort", id="fair sharing"),
        pytest.param(
            PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
            "reclamation within the cohort while borrowing",
            id="while borrowing",
        ),
    ],
)
def test_each_preemption_reason_has_its_message(reason: PreemptedReason, text: str) -> None:
    from multikueue.engine import messages
    from multikueue.engine.cache.tree import QuotaNode

    node = QuotaNode("q", is_cohort=False)
    message = messages.preempted(workload("w", "q", uid=""), reason, preemptor_node=node, victim_node=node)
    assert message == (
        f"Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to {text};"
        " preemptor path: /q; preemptee path: /q"
    )


def test_a_victim_keeps_its_quota_until_its_job_has_stopped() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")))
    bench.add(held("b", "q", "2"), workload("w", "q", pods(cpu="2"), priority=1))
    for _ in range(3):
        assert bench.decide("w").outcome is Outcome.PREEMPTING
        assert bench.engine.cluster_queue_state("q").reserving == 1
    bench.engine.eviction_failed(key("b"), bench.now)
    assert [victim.evicted for victim in bench.decide("w").victims] == [False]


def test_a_victim_that_was_evicted_before_is_evicted_once_more_after_an_eviction_that_failed() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")))
    before = lifecycle.released(lifecycle.evicted(held("b", "q", "2"), "Preempted", "", bench.now), bench.now)
    bench.add(before)
    reserved = bench.decide("b")
    bench.add(workload("w", "q", pods(cpu="2"), priority=1))
    assert list(victims(bench.decide("w"))) == ["b"], "its reservation is still being written"
    bench.engine.eviction_failed(key("b"), bench.now)
    bench.engine.admission_written(key("b"), bench.now)
    bench.add(lifecycle.reserved(before, reserved, bench.now))
    assert [victim.evicted for victim in bench.decide("w").victims] == [False]


def test_a_victim_whose_eviction_is_refused_is_passed_over_for_a_while() -> None:
    bench = Bench(queue("q", group(default="4"), preemption=preemption("LowerPriority")))
    bench.add(held("a", "q", "2", since=1), held("b", "q", "2", since=2), workload("w", "q", pods(cpu="2"), priority=1))
    assert list(victims(bench.decide("w"))) == ["b"]
    bench.engine.eviction_failed(key("b"), bench.now, exempt_until=at(60))
    assert list(victims(bench.decide("w"))) == ["a"]
    bench.engine.eviction_failed(key("a"), bench.now, exempt_until=at(30))
    decision = bench.decide("w")
    assert (decision.outcome, decision.victims) == (Outcome.PENDING, ())
    assert bench.engine.next_wake(bench.now) == at(30)
    bench.pass_time(31)
    assert not bench.engine.has_heads(bench.now)
    bench.pass_time(1)  # the flush happens a moment later
    assert list(victims(bench.decide("w"))) == ["a"]


def test_a_refused_eviction_that_another_writer_brings_about_counts() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")))
    bench.add(held("b", "q", "2"), workload("w", "q", pods(cpu="2"), priority=1))
    bench.decide("w")
    bench.engine.eviction_failed(key("b"), bench.now, exempt_until=at(60))
    assert bench.decide("w").victims == ()
    value = bench.engine.workload(key("b"))
    assert value is not None
    bench.add(lifecycle.evicted(value, "Deactivated", "", bench.now))
    bench.add(workload("other", "q", pods(cpu="2"), priority=2))
    assert [(victim.workload.name, victim.evicted) for victim in bench.decide("other").victims] == [("b", True)]


def test_searching_for_victims_leaves_no_trace() -> None:
    bench = Bench(
        queue(
            "mine", group(default="4/3/1"), cohort="co", preemption=preemption("LowerPriority", "Any", "LowerPriority")
        ),
        queue("other", group(default="1/9/1"), cohort="co"),
    )
    bench.add(held("a", "mine", "2"), held("b", "other", "2"), held("c", "other", "1", since=2))
    cells = [cell for node in bench.engine.forest.queues.values() for cell in node.cells.values()]
    cells += [cell for node in bench.engine.forest.cohorts.values() for cell in node.cells.values()]
    before = [cell.usage for cell in cells]
    for cpu in ("1", "3", "5", "7", "9"):
        bench.add(workload(f"w{cpu}", "mine", pods(cpu=cpu), priority=3))
        bench.engine.explain(key(f"w{cpu}"), bench.now)
        assert [cell.usage for cell in cells] == before
