# SPDX-License-Identifier: Apache-2.0
"""Admission fair sharing between local queues (`docs/spec/engine.md §1.10`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from multikueue.api.constants import AdmissionMode, CheckState
from multikueue.engine import Cycle, Settings, lifecycle
from multikueue.engine.queue.usage_order import UsageOrder
from multikueue.engine.settings import AdmissionFairSharing
from multikueue.engine.values import AdmissionCheck, LocalQueue
from multikueue.engine.workloads import CheckStatus
from tests.support.engine_builders import (
    STRICT,
    Bench,
    at,
    checks,
    group,
    holding,
    key,
    pods,
    preemption,
    queue,
    workload,
)

HALF_HOUR = AdmissionFairSharing(half_life_seconds=1800, sampling_seconds=300)
LQ = key("lq")


def test_the_past_fades_by_half_in_a_half_life() -> None:
    order = UsageOrder(HALF_HOUR)
    order.sample(LQ, {"cpu": 8000}, at(0))
    order.sample(LQ, {"cpu": 8000}, at(1800))
    assert order.of(LQ).consumed == {"cpu": pytest.approx(4.0)}
    order.sample(LQ, {}, at(3600))
    assert order.of(LQ).consumed == {"cpu": pytest.approx(2.0)}


def test_time_that_runs_backwards_changes_nothing() -> None:
    order = UsageOrder(HALF_HOUR)
    order.sample(LQ, {"cpu": 8000}, at(100))
    order.sample(LQ, {"cpu": 8000}, at(50))
    assert order.usage(LQ) == 0


def test_without_a_half_life_there_is_no_memory() -> None:
    order = UsageOrder(replace(HALF_HOUR, half_life_seconds=0))
    order.sample(LQ, {"cpu": 8000}, at(0))
    order.sample(LQ, {"cpu": 8000}, at(300))
    assert order.usage(LQ) == 0
    assert order.alpha(300) == 0


def test_usage_is_weighted_by_resource_and_divided_by_the_weight_of_the_queue() -> None:
    order = UsageOrder(replace(HALF_HOUR, resource_weights={"cpu": 2.0, "memory": 0.0}))
    order.of(LQ).consumed = {"cpu": 3.0, "memory": 1e9, "gpu": 1.0}
    assert order.usage(LQ) == 7.0
    order.of(LQ).weight = 2.0
    assert order.usage(LQ) == 3.5
    order.of(LQ).weight = 0.0
    assert order.usage(LQ) == math.inf


def test_a_penalty_counts_once_and_becomes_consumption_or_goes() -> None:
    order = UsageOrder(HALF_HOUR)
    want = 4.0 * order.alpha(300)
    for _ in range(2):
        order.add_penalty(LQ, key("w"), {"cpu": 4000})
    assert order.usage(LQ) == pytest.approx(want)
    assert order.settle_penalty(LQ, key("w"))
    assert not order.settle_penalty(LQ, key("w"))
    assert order.of(LQ).consumed == {"cpu": pytest.approx(want)}
    order.add_penalty(LQ, key("x"), {"cpu": 4000})
    order.remove_penalty(LQ, key("x"))
    assert order.usage(LQ) == pytest.approx(want)


def shared(**changes: Any) -> Bench:
    settings = Settings(admission_fair_sharing=HALF_HOUR, pods_ready=None)
    value = queue("q", group(default="4"), admission_mode=AdmissionMode.USAGE_BASED, **changes)
    bench = Bench(value, settings=settings)
    bench.engine.upsert_local_queue(LocalQueue(key=key("second"), cluster_queue="q"), bench.now)
    return bench


def test_the_local_queue_that_used_less_goes_first_whatever_the_priority() -> None:
    bench = shared()
    bench.add(
        workload("a", "q", pods(cpu="1"), priority=9, created=1),
        workload("b", "q", pods(cpu="1"), priority=9, created=2),
        workload("c", "second", pods(cpu="1"), created=3),
    )
    order = [decision.workload.name for _ in range(3) for decision in bench.cycle().decisions]
    assert order == ["a", "c", "b"]
    assert bench.waits("q") == []


def test_queues_without_the_mode_do_not_care() -> None:
    bench = shared()
    known = bench.engine.cluster_queues["q"].value
    assert known is not None
    bench.engine.upsert_cluster_queue(replace(known, admission_mode=None), bench.now)
    bench.add(
        workload("a", "q", pods(cpu="1"), priority=9, created=1),
        workload("b", "q", pods(cpu="1"), priority=9, created=2),
        workload("c", "second", pods(cpu="1"), created=3),
    )
    assert [decision.workload.name for _ in range(3) for decision in bench.cycle().decisions] == ["a", "b", "c"]


def test_a_failed_admission_takes_its_penalty_back() -> None:
    bench = shared()
    bench.add(workload("a", "q", pods(cpu="1")))
    bench.cycle()
    state = bench.engine.local_queue_state(key("q"))
    assert state.weighted_share is not None
    assert state.weighted_share > 0
    bench.engine.admission_failed(key("a"), bench.now)
    assert bench.engine.local_queue_state(key("q")).weighted_share == 0


def written(bench: Bench, name: str, cycle: Cycle) -> None:
    """The API has what a cycle decided about a workload, and shows it."""
    (decision,) = (each for each in cycle.decisions if each.workload == key(name))
    value = bench.engine.workload(key(name))
    assert value is not None
    bench.engine.admission_written(key(name), bench.now)
    bench.add(lifecycle.reserved(value, decision, bench.now))


def charges(bench: Bench, local_queue: str) -> tuple[dict[str, float], list[str]]:
    """What a local queue has consumed, and the workloads that it is still charged for."""
    order = bench.engine.usage_order
    assert order is not None
    record = order.of(key(local_queue))
    return dict(record.consumed), [each.name for each in record.penalties]


def test_a_charge_becomes_consumption_once_the_workload_is_seen_admitted_with_no_checks_to_wait_for() -> None:
    bench = shared()
    bench.add(workload("a", "q", pods(cpu="4")))
    cycle = bench.cycle()
    assert charges(bench, "q") == ({}, ["a"])
    written(bench, "a", cycle)
    settled = charges(bench, "q")
    assert settled == ({"cpu": 4.0 * UsageOrder(HALF_HOUR).alpha(300)}, [])
    held = bench.engine.workload(key("a"))
    assert held is not None
    bench.add(replace(held, generation=2))
    bench.finish("a")
    assert charges(bench, "q") == settled, "once, and its end does not take it back"


def test_a_charge_stays_while_admission_checks_are_pending() -> None:
    bench = shared(checks=checks("c"))
    bench.engine.upsert_admission_check(AdmissionCheck(name="c", controller="x", active=True), bench.now)
    bench.add(workload("a", "q", pods(cpu="4")))
    written(bench, "a", bench.cycle())
    assert charges(bench, "q") == ({}, ["a"])
    held = bench.engine.workload(key("a"))
    assert held is not None
    ready = replace(held, checks=(CheckStatus(name="c", state=CheckState.READY),))
    bench.add(lifecycle.with_admission(ready, ("c",), bench.now))
    assert charges(bench, "q")[1] == []


def test_sampling_returns_when_to_sample_next() -> None:
    bench = shared()
    bench.add(holding(workload("held", "q", pods(cpu="2")), "q"))
    first = bench.engine.sample_usage(bench.now)
    assert first[0] == at(300)
    assert key("q") in first[1]
    assert bench.engine.sample_usage(bench.now) == (at(300), ())
    bench.pass_time(300)
    assert bench.engine.sample_usage(bench.now)[0] == at(600)
    consumed = bench.engine.local_queue_state(key("q")).consumed
    assert consumed is not None
    assert 0 < consumed["cpu"] < 2


def test_a_new_leader_continues_from_the_status() -> None:
    bench = shared()
    recorded = LocalQueue(key=key("q"), cluster_queue="q", consumed={"cpu": 8.0}, sampled_at=at(-1800))
    bench.engine.upsert_local_queue(recorded, bench.now)
    assert bench.engine.sample_usage(bench.now)[0] == at(300)
    assert bench.engine.local_queue_state(key("q")).consumed == pytest.approx({"cpu": 4.0})
    bench.engine.upsert_local_queue(replace(recorded, consumed={"cpu": 99.0}), bench.now)
    assert bench.engine.local_queue_state(key("q")).consumed == pytest.approx({"cpu": 4.0}), (
        "the engine has a newer sample"
    )


def test_victims_come_from_the_local_queue_that_used_more() -> None:
    bench = shared(preemption=preemption("LowerPriority"))
    bench.add(
        holding(workload("poor", "second", pods(cpu="2")), "q", 9),
        holding(workload("rich", "q", pods(cpu="2")), "q", 1),
    )
    order = bench.engine.usage_order
    assert order is not None
    order.of(key("q")).consumed = {"cpu": 9.0}
    bench.add(workload("w", "second", pods(cpu="2"), priority=5))
    assert [victim.workload.name for victim in bench.decide("w").victims] == ["rich"]


def contended(**changes: Any) -> Bench:
    """`preemptor` of a local queue that used much preempts `victim`, whose local queue used nothing."""
    bench = shared(preemption=preemption("LowerPriority"), **changes)
    bench.add(holding(workload("victim", "second", pods(cpu="3")), "q"))
    order = bench.engine.usage_order
    assert order is not None
    order.of(key("q")).consumed = {"cpu": 9.0}
    return bench.add(workload("preemptor", "q", pods(cpu="4"), priority=5))


@pytest.mark.parametrize(
    "changes", [pytest.param({}, id="best effort"), pytest.param({"strategy": STRICT}, id="strict")]
)
def test_a_victim_does_not_come_before_its_preemptor_because_its_local_queue_used_less(changes: dict[str, Any]) -> None:
    bench = contended(**changes)
    assert bench.carry_out() == ["victim"]
    assert bench.has_quota("preemptor")


def test_a_preemptor_goes_first_once_what_it_has_preempted_waits_again() -> None:
    bench = contended()
    bench.cycle()
    bench.add(workload("other", "second", pods(cpu="1"), created=9))
    assert bench.waits("q") == ["other", "preemptor"]
    bench.evict("victim")
    assert bench.waits("q") == ["preemptor", "victim", "other"]


def test_a_victim_of_another_queue_does_not_get_its_quota_back_while_others_are_evaluated() -> None:
    bench = shared(cohort="c", preemption=preemption(reclaim="Any"))
    bench.add_queue(queue("lender", group(default="6"), cohort="c"))
    bench.add(
        holding(workload("kept", "lender", pods(cpu="5")), "lender", 1),
        holding(workload("victim", "lender", pods(cpu="2")), "lender", 2),
        workload("large", "second", pods(cpu="6")),
    )
    order = bench.engine.usage_order
    assert order is not None
    order.of(key("q")).consumed = {"cpu": 9.0}
    bench.settle()
    bench.add(workload("preemptor", "q", pods(cpu="4")))
    assert bench.carry_out() == ["victim"]
    assert bench.has_quota("preemptor")
