# SPDX-License-Identifier: Apache-2.0
"""Slices of elastic jobs, of which a newer one takes the quota of an older over (`docs/spec/engine.md §3.7`, §3.11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.engine import Gates, Outcome, Settings
from multikueue.engine.workloads import Workload
from tests.support.engine_builders import Bench, group, holding, key, pods, preemption, queue, workload

ELASTIC = Settings(pods_ready=None, gates=Gates(elastic_jobs=True))
BY_TIME = replace(ELASTIC, gates=Gates(elastic_jobs=True, priority_sorting_within_cohort=False))


def slice_of(
    job: str, name: str, count: int, *, after: str = "", at_queue: str = "q", priority: int = 0, created: float = 0
) -> Workload:
    """A slice of so many pods of one CPU; `after` is the one that it replaces."""
    replaces = f"default/{after}" if after else ""
    pod_set = pods(count, cpu="1")
    return workload(
        name, at_queue, pod_set, job_uid=job, replaces=replaces, priority=priority, created=created, generation=1
    )


def lending(settings: Settings) -> Bench:
    """Queue `loose` uses four of the cohort's six CPUs with one slice; `strict` may reclaim by priority."""
    policy = preemption(reclaim="LowerPriority", borrow="LowerPriority")
    bench = Bench(
        queue("loose", group(default="2"), cohort="c"),
        queue("strict", group(default="2"), cohort="c", preemption=policy),
        queue("idle", group(default="2"), cohort="c"),
        settings=settings,
    )
    return bench.add(holding(slice_of("j", "old", 4, at_queue="loose"), "loose"))


@pytest.mark.parametrize(
    ("settings", "priority"),
    [
        pytest.param(ELASTIC, 10, id="first by its priority"),
        pytest.param(BY_TIME, 0, id="first by its time"),
    ],
)
def test_a_slice_that_was_replaced_in_a_cycle_is_no_victim_of_a_later_head(settings: Settings, priority: int) -> None:
    bench = lending(settings)
    bench.add(
        slice_of("j", "new", 5, after="old", at_queue="loose", priority=priority),
        workload("preemptor", "strict", pods(3, cpu="1"), priority=5, created=5),
    )
    new, preemptor = bench.cycle().decisions
    assert (new.outcome, new.replaced_slice) == (Outcome.RESERVED, key("old"))
    assert (preemptor.outcome, preemptor.victims) == (Outcome.PENDING, ())
    assert "2 more needed" in preemptor.message, "what the old slice held is not free"
    assert list(bench.engine.cluster_queue_state("loose").reservation.values()) == [5000]


def test_a_preemptor_takes_another_victim_than_a_slice_that_was_replaced_in_its_cycle() -> None:
    bench = lending(ELASTIC)
    bench.add(holding(workload("other", "loose", pods(2, cpu="1"), priority=1), "loose"))
    bench.engine.upsert_cluster_queue(queue("idle", group(default="4"), cohort="c"), bench.now)
    bench.add(
        slice_of("j", "new", 5, after="old", at_queue="loose", priority=10),
        workload("preemptor", "strict", pods(3, cpu="1"), priority=5, created=5),
    )
    decisions = {decision.workload.name: decision for decision in bench.cycle().decisions}
    assert decisions["new"].outcome is Outcome.RESERVED
    assert [victim.workload.name for victim in decisions["preemptor"].victims] == ["other"]


def test_a_preemptor_that_comes_first_keeps_a_slice_from_being_replaced() -> None:
    bench = lending(ELASTIC)
    bench.add(
        slice_of("j", "new", 5, after="old", at_queue="loose"),
        workload("preemptor", "strict", pods(3, cpu="1"), priority=5, created=5),
    )
    decisions = {decision.workload.name: decision for decision in bench.cycle().decisions}
    assert [victim.workload.name for victim in decisions["preemptor"].victims] == ["old"]
    assert decisions["new"].outcome is Outcome.PENDING
    assert decisions["new"].replaced_slice is None
