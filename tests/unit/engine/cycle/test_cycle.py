# SPDX-License-Identifier: Apache-2.0
"""Cycles (`docs/spec/engine.md §3.2`, §3.7 to §3.12) and the worked examples 12 and 14 of §13."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import CheckState
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import LabelSelector
from multikueue.engine import Gates, Outcome, RequeueReason, Settings
from multikueue.engine.values import AdmissionCheck, CheckRule, Cohort, LimitRange, LimitRangeItem, Namespace
from multikueue.engine.workloads import CheckStatus, ContainerRequests, PodSet, PodShape, Workload
from tests.support.engine_builders import (
    START,
    STRICT,
    Bench,
    checks,
    group,
    holding,
    key,
    pods,
    preemption,
    queue,
    workload,
)

ONE = pods(cpu="1")
ELASTIC = Settings(pods_ready=None, gates=Gates(elastic_jobs=True))
GATED = Settings(pods_ready=None, gates=Gates(preemption_gates=True))


def held(name: str, at_queue: str, cpu: str, *, priority: int = 0, since: float = 0) -> Workload:
    return holding(workload(name, at_queue, pods(cpu=cpu), priority=priority), at_queue, since)


def container(**changes: dict[str, str]) -> ContainerRequests:
    amounts = {name: {r: Quantity.parse(text) for r, text in values.items()} for name, values in changes.items()}
    return ContainerRequests(requests=amounts.get("requests", {}), limits=amounts.get("limits", {}))


def failed_check() -> tuple[CheckStatus, ...]:
    return (CheckStatus(name="c", state=CheckState.RETRY),)


OVER = PodSet(shape=PodShape(containers=(container(requests={"cpu": "2"}, limits={"cpu": "1"}),), fingerprint="over"))


@pytest.mark.parametrize(
    ("value", "selector", "reason", "message", "requeue"),
    [
        pytest.param(
            workload("w", "q", ONE, checks=failed_check()),
            LabelSelector(),
            "PendingEvaluation",
            "The workload has failed admission checks",
            RequeueReason.GENERIC,
            id="a check that failed",
        ),
        pytest.param(
            workload("w", "q", ONE),
            LabelSelector.of({"team": "x"}),
            "Misconfigured",
            "workload namespace doesn't match ClusterQueue selector",
            RequeueReason.NAMESPACE_MISMATCH,
            id="a namespace that is not selected",
        ),
        pytest.param(
            workload("w", "q", ONE),
            None,
            "Misconfigured",
            "workload namespace doesn't match ClusterQueue selector",
            RequeueReason.NAMESPACE_MISMATCH,
            id="no selector selects nothing",
        ),
        pytest.param(
            workload("w", "q", OVER),
            LabelSelector(),
            "Misconfigured",
            'resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: requests'
            " must not exceed its limits",
            RequeueReason.GENERIC,
            id="a request above its limit",
        ),
    ],
)
def test_rejections(
    value: Workload, selector: LabelSelector | None, reason: str, message: str, requeue: RequeueReason
) -> None:
    bench = Bench(queue("q", group(default="9"), namespace_selector=selector)).add(value)
    decision = bench.decide("w")
    assert (decision.outcome, decision.reason, decision.message) == (Outcome.INADMISSIBLE, reason, message)
    assert decision.requeue_reason is requeue
    assert bench.waits("q") == ["[w]"]


def test_a_namespace_that_is_gone() -> None:
    bench = Bench(queue("q", group(default="9")))
    bench.engine.delete_namespace("default", bench.now)
    decision = bench.add(workload("w", "q", ONE)).decide("w")
    assert decision.message.startswith('workload namespace "default" does not exist: ')
    bench.engine.upsert_namespace(Namespace("default"), bench.now)
    bench.pass_time(1)
    assert bench.decide("w").outcome is Outcome.RESERVED


def test_a_queue_under_a_cycle_of_cohorts_admits_nothing() -> None:
    bench = Bench(queue("q", group(default="9"), cohort="a"))
    bench.engine.upsert_cohort(Cohort(name="a", parent="b"), bench.now)
    bench.engine.upsert_cohort(Cohort(name="b", parent="a"), bench.now)
    decision = bench.add(workload("w", "q", ONE)).decide("w")
    assert (decision.reason, decision.message) == ("Suspended", "ClusterQueue q is inactive")
    state = bench.engine.cohort_state("a")
    assert (state.active, state.reason) == (False, "CohortCycle")
    bench.engine.upsert_cohort(Cohort(name="b"), bench.now)
    bench.pass_time(1)
    assert bench.decide("w").outcome is Outcome.RESERVED


@pytest.mark.parametrize(
    ("item", "request_", "want"),
    [
        pytest.param(
            {"max": "2"}, {"cpu": "3"}, "requests must not be above the limitRange max", id="above the maximum"
        ),
        pytest.param(
            {"min": "2"}, {"cpu": "1"}, "requests must not be below the limitRange min", id="below the minimum"
        ),
        pytest.param({"min": "1", "max": "3"}, {"cpu": "2"}, "", id="between both"),
    ],
)
@pytest.mark.parametrize("kind", ["Container", "Pod"])
def test_limit_ranges(kind: str, item: dict[str, str], request_: dict[str, str], want: str) -> None:
    bench = Bench(queue("q", group(default="9")))
    amounts = {name: {"cpu": Quantity.parse(text)} for name, text in item.items()}
    limits = LimitRange(key("limits"), (LimitRangeItem(type=kind, **amounts),))
    bench.engine.upsert_limit_range(limits, bench.now)
    decision = bench.add(workload("w", "q", pods(cpu=request_["cpu"]))).decide("w")
    if not want:
        assert decision.outcome is Outcome.RESERVED
        return
    where = "spec.podSets[0].template.spec" + (".containers[0]" if kind == "Container" else "")
    assert decision.message == (
        f'resources didn\'t satisfy LimitRange constraints: {where}: Invalid value: ["cpu"]: {want}'
    )
    bench.engine.delete_limit_range(key("limits"), bench.now)
    assert bench.decide("w").outcome is Outcome.RESERVED


def test_a_reservation_lists_what_was_assigned() -> None:
    bench = Bench(queue("q", group(default={"cpu": "9", "memory": "9Gi"})))
    decision = bench.add(workload("w", "q", pods(2, cpu="1", memory="1Gi"))).decide("w")
    assert (decision.reason, decision.message) == ("QuotaReserved", "Quota reserved in ClusterQueue q")
    given = decision.pod_sets[0]
    assert (given.name, given.count, given.flavors, given.resource_usage) == (
        "main",
        2,
        {"cpu": "default", "memory": "default"},
        {"cpu": 2000, "memory": 2**31},
    )
    assert bench.engine.cluster_queue_state("q").admitted == 1


def test_a_pending_workload_shows_its_requests() -> None:
    decision = Bench(queue("q", group(default="1"))).add(workload("w", "q", pods(3, cpu="1"))).decide("w")
    assert decision.resource_requests == (("main", {"cpu": 3000}),)


def test_the_checks_of_a_workload_are_those_of_its_flavors() -> None:
    rules = (CheckRule("all"), CheckRule("only-a", frozenset({"a"})), CheckRule("only-b", frozenset({"b"})))
    bench = Bench(queue("q", group(a="1", b="9"), checks=rules))
    for rule in rules:
        bench.engine.upsert_admission_check(AdmissionCheck(name=rule.name, controller="x", active=True), bench.now)
    decision = bench.add(workload("w", "q", pods(cpu="2"))).decide("w")
    assert decision.admission_checks == ("all", "only-b")
    state = bench.engine.cluster_queue_state("q")
    assert (state.reserving, state.admitted) == (1, 0)


def test_a_check_may_be_missing_or_inactive_and_holds_its_queue() -> None:
    bench = Bench(queue("q", group(default="9"), checks=checks("c")))
    bench.add(workload("w", "q", ONE))
    assert bench.cycle().decisions == ()
    bench.engine.upsert_admission_check(AdmissionCheck(name="c", controller="x", active=False), bench.now)
    assert bench.cycle().decisions == ()
    bench.engine.upsert_admission_check(AdmissionCheck(name="c", controller="x", active=True), bench.now)
    assert bench.decide("w").outcome is Outcome.RESERVED


def ordered(*workloads: Workload, settings: Settings | None = None) -> list[str]:
    bench = Bench(
        *(queue(name, group(default="2"), cohort="co") for name in "abc"),
        queue("lender", group(default="20"), cohort="co"),
        settings=settings,
    )
    return [decision.workload.name for decision in bench.add(*workloads).cycle().decisions]


@pytest.mark.parametrize(
    ("workloads", "want"),
    [
        pytest.param(
            [workload("borrows", "a", pods(cpu="3"), priority=9), workload("not", "b", ONE)],
            ["not", "borrows"],
            id="who need not borrow goes first",
        ),
        pytest.param(
            [workload("low", "a", ONE), workload("high", "b", ONE, priority=1)],
            ["high", "low"],
            id="then higher priority",
        ),
        pytest.param(
            [workload("late", "a", ONE, created=2), workload("early", "b", ONE, created=1)],
            ["early", "late"],
            id="then the older",
        ),
        pytest.param([workload("z", "a", ONE), workload("y", "b", ONE)], ["y", "z"], id="then the smaller uid"),
    ],
)
def test_entry_order(workloads: list[Workload], want: list[str]) -> None:
    assert ordered(*workloads) == want


def test_without_priorities_across_queues_time_decides() -> None:
    settings = Settings(gates=Gates(priority_sorting_within_cohort=False), pods_ready=None)
    both = [workload("high", "a", ONE, priority=9, created=2), workload("low", "b", ONE, created=1)]
    assert ordered(*both, settings=settings) == ["low", "high"]


@pytest.mark.parametrize(
    ("capacity", "want"),
    [
        pytest.param("30", [10, 20], id="all if they fit"),
        pytest.param("25", [10, 15], id="example 12: the most that fits"),
        pytest.param("14", [10, 4], id="no fewer than the minimum"),
        pytest.param("13", None, id="and nothing below it"),
    ],
)
def test_example_12_partial_admission(capacity: str, want: list[int] | None) -> None:
    bench = Bench(queue("q", group(default=capacity)))
    bench.add(workload("w", "q", pods(10, "a", cpu="1"), pods(20, "b", 4, cpu="1")))
    decision = bench.decide("w")
    if want is None:
        assert decision.outcome is Outcome.PENDING
        return
    assert [pod_set.count for pod_set in decision.pod_sets] == want
    assert decision.pod_sets[1].resource_usage == {"cpu": want[1] * 1000}


def test_partial_admission_may_be_off() -> None:
    settings = Settings(gates=Gates(partial_admission=False), pods_ready=None)
    bench = Bench(queue("q", group(default="5")), settings=settings)
    assert bench.add(workload("w", "q", pods(9, "a", 1, cpu="1"))).decide("w").outcome is Outcome.PENDING


def test_fewer_pods_may_still_need_victims() -> None:
    bench = Bench(queue("q", group(default="5"), preemption=preemption("LowerPriority")))
    bench.add(held("low", "q", "3"), held("high", "q", "2", priority=9))
    decision = bench.add(workload("w", "q", pods(9, "a", 3, cpu="1"), priority=5)).decide("w")
    assert decision.outcome is Outcome.PREEMPTING
    assert [victim.workload.name for victim in decision.victims] == ["low"]
    assert decision.pod_sets[0].count == 3


def two_preemptors(capacity: str, *more: Workload) -> Bench:
    policy = preemption("LowerPriority", "Any")
    bench = Bench(
        queue("x", group(default=capacity), cohort="co", preemption=policy),
        queue("y", group(default="2"), cohort="co", preemption=policy),
        queue("loose", group(default="0"), cohort="co"),
    )
    return bench.add(*more)


def test_example_14_one_victim_for_two_preemptors_is_enough_where_it_is_large() -> None:
    bench = two_preemptors("2", held("v", "loose", "4"))
    bench.add(workload("wx", "x", pods(cpu="2"), priority=1), workload("wy", "y", pods(cpu="2")))
    first, second = bench.cycle().decisions
    assert (first.workload.name, [v.workload.name for v in first.victims]) == ("wx", ["v"])
    assert (second.outcome, second.reason, second.requeue_reason, second.victims) == (
        Outcome.PENDING,
        "WaitingForPreemptedWorkloads",
        RequeueReason.PENDING_PREEMPTION,
        (),
    )
    assert second.message == (
        "Workload has overlapping preemption targets with another workload,"
        " but will fit after these preemptions complete"
    )
    bench.evict("v")
    assert {d.workload.name: d.outcome for d in bench.cycle().decisions} == {
        "wx": Outcome.RESERVED,
        "wy": Outcome.RESERVED,
        "v": Outcome.SKIPPED,
    }


def test_example_14_another_victim_is_taken_in_the_same_cycle() -> None:
    bench = two_preemptors("2", held("v", "loose", "2", since=2), held("u", "loose", "2", since=1))
    bench.add(workload("wx", "x", pods(cpu="2"), priority=1), workload("wy", "y", pods(cpu="2")))
    found = {d.workload.name: [v.workload.name for v in d.victims] for d in bench.cycle().decisions}
    assert found == {"wx": ["v"], "wy": ["u"]}


def test_example_14_without_recomputation_the_second_is_skipped() -> None:
    policy = preemption("LowerPriority", "Any")
    settings = Settings(gates=Gates(recompute_on_overlap=False), pods_ready=None)
    bench = Bench(
        queue("x", group(default="2"), cohort="co", preemption=policy),
        queue("y", group(default="2"), cohort="co", preemption=policy),
        queue("loose", group(default="0"), cohort="co"),
        settings=settings,
    )
    bench.add(held("v", "loose", "4"))
    bench.add(workload("wx", "x", pods(cpu="2"), priority=1), workload("wy", "y", pods(cpu="2")))
    second = bench.cycle().decisions[1]
    assert (second.outcome, second.message) == (
        Outcome.SKIPPED,
        "Workload has overlapping preemption targets with another workload",
    )


def test_quota_that_a_preemptor_waits_for_is_not_taken_by_others() -> None:
    bench = two_preemptors("4", held("v", "loose", "4"))
    bench.add(workload("wx", "x", pods(cpu="4"), priority=1))
    assert bench.decide("wx").outcome is Outcome.PREEMPTING
    bench.add(workload("sneak", "loose", pods(cpu="2"), created=-5))
    decisions = {d.workload.name: d for d in bench.cycle().decisions}
    assert decisions["wx"].outcome is Outcome.PREEMPTING
    assert decisions["sneak"].outcome is not Outcome.PREEMPTING


def test_quota_of_victims_may_be_taken_by_a_later_entry_of_the_cycle() -> None:
    policy = preemption("LowerPriority", "Any")
    bench = Bench(
        queue("x", group(default="2"), cohort="co", preemption=policy),
        queue("y", group(default="2/0"), cohort="co"),
        queue("loose", group(default="0"), cohort="co"),
    )
    bench.add(held("v", "loose", "3"), workload("wx", "x", pods(cpu="2"), priority=1), workload("wy", "y", ONE))
    assert {d.workload.name: d.outcome for d in bench.cycle().decisions} == {
        "wx": Outcome.PREEMPTING,
        "wy": Outcome.RESERVED,
    }


def test_a_blocked_preemptor_holds_what_it_could_have() -> None:
    policy = preemption("LowerPriority", "LowerPriority")
    bench = Bench(
        queue("a", group(default="0/3"), cohort="co", preemption=policy),
        queue("b", group(default="0"), cohort="co"),
        queue("shared", group(default="4"), cohort="co"),
    )
    bench.add(held("used", "a", "2", priority=5))
    bench.add(workload("wa", "a", pods(cpu="3"), created=1), workload("wb", "b", pods(cpu="1"), created=2))
    decisions = {d.workload.name: d for d in bench.cycle().decisions}
    assert decisions["wb"].outcome is Outcome.RESERVED


@pytest.mark.parametrize(
    ("reclaim", "want"),
    [
        pytest.param("LowerPriority", Outcome.SKIPPED, id="its nominal quota is held"),
        pytest.param("Any", Outcome.RESERVED, id="nothing is held for who can always reclaim"),
    ],
)
def test_capacity_held_for_a_preemptor_without_candidates(reclaim: str, want: Outcome) -> None:
    bench = Bench(
        queue("a", group(default="4"), cohort="co", preemption=preemption("LowerPriority", reclaim)),
        queue("b", group(default="0"), cohort="co"),
    )
    bench.add(held("own", "a", "1", priority=9))
    bench.add(workload("wa", "a", pods(cpu="4"), priority=5), workload("wb", "b", pods(cpu="3")))
    decisions = {d.workload.name: d for d in bench.cycle().decisions}
    assert (decisions["wa"].outcome, decisions["wa"].requeue_reason) == (
        Outcome.PENDING,
        RequeueReason.PREEMPTION_NO_CANDIDATES,
    )
    assert decisions["wb"].outcome is want
    free = bench.engine.cluster_queue_state("a").reservation
    assert list(free.values()) == [1000]


def test_a_closed_preemption_gate_keeps_a_workload_from_preempting() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")), settings=GATED)
    bench.add(held("low", "q", "2"), workload("w", "q", pods(cpu="2"), priority=1, preemption_gate_closed=True))
    decision = bench.decide("w")
    assert (decision.reason, decision.message, decision.requeue_reason, decision.victims) == (
        "AdmissionGated",
        "Workload requires preemption, but it's gated",
        RequeueReason.PREEMPTION_GATED,
        (),
    )
    assert decision.blocked_on_preemption_gates


def test_a_workload_whose_preemption_gate_opens_is_tried_at_once() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")), settings=GATED)
    gated = workload("w", "q", pods(cpu="2"), priority=1, preemption_gate_closed=True)
    bench.add(held("low", "q", "2"), gated)
    bench.cycle()
    assert not bench.engine.has_heads(bench.now), "it is inadmissible"
    bench.add(replace(gated, preemption_gate_closed=False))
    assert [victim.workload.name for victim in bench.decide("w").victims] == ["low"]


def test_a_new_slice_of_an_elastic_job_takes_the_place_of_the_old_one() -> None:
    bench = Bench(queue("q", group(default="5")), settings=ELASTIC)
    bench.add(holding(workload("old", "q", pods(3, cpu="1")), "q"))
    bench.add(workload("new", "q", pods(5, cpu="1"), replaces="default/old"))
    decision = bench.decide("new")
    assert (decision.outcome, decision.replaced_slice) == (Outcome.RESERVED, key("old"))
    state = bench.engine.cluster_queue_state("q")
    assert (list(state.reservation.values()), state.reserving) == ([5000], 1)


def test_a_new_slice_keeps_the_flavors_of_the_old_one() -> None:
    bench = Bench(queue("q", group(a="4", b="9")), settings=ELASTIC)
    bench.add(holding(workload("old", "q", pods(3, cpu="1")), "q", flavor="a"))
    bench.add(workload("new", "q", pods(6, cpu="1"), replaces="default/old"))
    decision = bench.decide("new")
    assert decision.outcome is Outcome.PENDING
    assert "could not assign b flavor since the original workload is assigned: a" in decision.message


def test_one_head_of_each_queue_in_a_cycle() -> None:
    bench = Bench(queue("a", group(default="9")), queue("b", group(default="9")))
    bench.add(*(workload(f"w{i}", "ab"[i % 2], ONE, created=i) for i in range(4)))
    assert [d.workload.name for d in bench.cycle().decisions] == ["w0", "w1"]
    assert [d.workload.name for d in bench.cycle().decisions] == ["w2", "w3"]
    assert not bench.engine.has_heads(bench.now)


def test_a_cycle_that_only_issues_preemptions_is_no_success() -> None:
    bench = Bench(queue("q", group(default="2"), preemption=preemption("LowerPriority")))
    bench.add(held("low", "q", "2"), workload("w", "q", pods(cpu="2"), priority=1))
    assert not bench.cycle().success
    bench.evict("low")
    assert bench.cycle().success


def test_a_strict_queue_may_lend_though_its_head_waits() -> None:
    bench = Bench(
        queue("a", group(default="4"), cohort="co", strategy=STRICT), queue("b", group(default="0"), cohort="co")
    )
    bench.add(workload("big", "a", pods(cpu="9")), workload("wb", "b", pods(cpu="4")))
    decisions = {d.workload.name: d.outcome for d in bench.cycle().decisions}
    assert decisions == {"big": Outcome.PENDING, "wb": Outcome.RESERVED}


def test_without_observability_there_are_only_the_reasons_of_old() -> None:
    bench = Bench(queue("q", group(default="1")), settings=Settings(gates=Gates(observability=False), pods_ready=None))
    assert bench.add(workload("w", "q", pods(cpu="2"))).decide("w").reason == "Pending"


def test_an_admission_that_borrows_lists_the_flavors_considered() -> None:
    bench = Bench(queue("q", group(a="1", b="1"), cohort="co"), queue("lender", group(b="4"), cohort="co"))
    decision = bench.add(workload("w", "q", pods(cpu="3"))).decide("w")
    assert decision.flavors_considered == (
        "main: a(NoFit;insufficient quota for cpu in flavor a, previously considered podsets requests (0) + current"
        " podset request (3) > maximum capacity (1)), b(Fit;borrow=1)"
    )
    assert Bench(queue("q", group(a="9"))).add(workload("w", "q", ONE)).decide("w").flavors_considered == ""


def test_unlimited_quota_admits_anything() -> None:
    bench = Bench(queue("q", group(default="9223372036854775807")))
    assert bench.add(workload("w", "q", pods(1000, cpu="1M"))).decide("w").outcome is Outcome.RESERVED
    assert bench.now == START
