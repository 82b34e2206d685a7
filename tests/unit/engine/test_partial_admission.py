# SPDX-License-Identifier: Apache-2.0
"""Workloads that preempt others for a part of their pods (`docs/spec/engine.md §3.7` and §3.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.reasons import PreemptedReason
from multikueue.engine import Outcome, Settings
from multikueue.engine import workload_conditions as conditions
from tests.support.engine_builders import Bench, group, holding, key, pods, preemption, queue, workload

PLAIN = Settings(pods_ready=None)
FAIR = replace(PLAIN, fair_sharing=True)


def lent(settings: Settings = PLAIN, *, reclaim: str = "Never") -> Bench:
    """Queue `large` borrows one of the two CPUs of `small`, in which `partial` wants five or two.

    It has a right to two, and has to borrow the others: more than its victim borrows.
    """
    bench = Bench(
        queue("large", group(default="7"), cohort="c", preemption=preemption(reclaim=reclaim)),
        queue("small", group(default="2"), cohort="c", preemption=preemption(reclaim="Any")),
        settings=settings,
    )
    bench.add(
        holding(workload("kept", "large", pods(4, cpu="1"), priority=1), "large", 1),
        holding(workload("victim", "large", pods(4, cpu="1"), priority=1), "large", 2),
    )
    return bench.add(workload("partial", "small", pods(5, minimum=2, cpu="1")))


def count_of(bench: Bench, name: str) -> int | None:
    value = bench.engine.workload(key(name))
    assert value is not None
    assert value.admission is not None
    return value.admission.pod_sets[0].count


@pytest.mark.parametrize("defers", [pytest.param(False, id="as upstream"), pytest.param(True, id="deferring")])
@pytest.mark.parametrize("settings", [pytest.param(PLAIN, id="classical"), pytest.param(FAIR, id="fair sharing")])
def test_who_preempted_for_a_part_of_its_pods_comes_before_its_victim_with_all(
    settings: Settings, defers: bool
) -> None:
    bench = lent(settings)
    if defers:
        bench.engine.defer_admissions()
    assert bench.carry_out() == ["victim"]
    assert count_of(bench, "partial") == 5
    assert bench.waits("large") == ["[victim]"]


def test_it_comes_before_its_victim_though_its_status_was_written_meanwhile() -> None:
    bench = lent()
    (decision,) = bench.cycle().decisions
    assert (decision.outcome, decision.pod_sets[0].count) == (Outcome.PREEMPTING, 2)
    assert decision.reason is not None
    value = bench.engine.workload(key("partial"))
    assert value is not None
    shown = conditions.quota_not_reserved(value.conditions, reason=decision.reason, message="", now=bench.now)
    bench.add(replace(value, conditions=shown))
    bench.evict("victim", PreemptedReason.IN_COHORT_RECLAMATION)
    assert [each.workload.name for each in bench.cycle().decisions if each.outcome is Outcome.RESERVED] == ["partial"]


def test_it_has_the_place_of_all_its_pods_again_once_it_found_no_quota() -> None:
    bench = lent()
    assert bench.decide("partial").outcome is Outcome.PREEMPTING
    bench.engine.upsert_cluster_queue(queue("small", group(default="2"), cohort="c"), bench.now)
    bench.engine.eviction_failed(key("victim"), bench.now)
    assert bench.decide("partial").outcome is Outcome.PENDING
    bench.evict("victim", PreemptedReason.IN_COHORT_RECLAMATION)
    bench.pass_time(2)
    assert [each.workload.name for each in bench.cycle().decisions if each.outcome is Outcome.RESERVED] == ["victim"]


@pytest.mark.parametrize("settings", [pytest.param(PLAIN, id="classical"), pytest.param(FAIR, id="fair sharing")])
def test_it_gets_no_more_pods_than_it_preempted_for_if_its_victim_may_reclaim_the_others(settings: Settings) -> None:
    bench = lent(settings, reclaim="Any")
    assert bench.carry_out() == ["victim"]
    assert count_of(bench, "partial") == 2


def test_it_gets_all_its_pods_once_its_victim_is_gone_for_good() -> None:
    bench = lent(reclaim="Any")
    assert bench.decide("partial").outcome is Outcome.PREEMPTING
    bench.finish("victim")
    assert bench.carry_out() == []
    assert count_of(bench, "partial") == 5
