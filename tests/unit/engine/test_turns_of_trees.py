# SPDX-License-Identifier: Apache-2.0
"""Cycles that evaluate the heads of some trees only: which ones, and that the outcome is that of whole cycles."""

from __future__ import annotations

from random import Random

import pytest

from multikueue.engine import Cycle, Outcome, Settings
from multikueue.engine.settings import PodsReady
from tests.support.engine_builders import Bench, group, key, pods, preemption, queue, workload

TREES, QUEUES = 3, 4


def forest(settings: Settings | None = None) -> Bench:
    """Three cohorts of four queues that lend each other all they have, and may take it back."""
    rules = preemption(within="LowerPriority", reclaim="Any")
    names = [(f"c{tree}", f"q{tree}{number}") for tree in range(TREES) for number in range(QUEUES)]
    queues = (queue(name, group(default="4"), cohort=cohort, preemption=rules) for cohort, name in names)
    return Bench(*queues, settings=settings)


def fill(bench: Bench, *, each: int = 1) -> None:
    """Workloads in each queue that fit."""
    for tree in range(TREES):
        for number in range(QUEUES):
            name = f"q{tree}{number}"
            bench.add(*(workload(f"{name}-{n}", name, pods(cpu="1"), created=n) for n in range(each)))


def evaluated(bench: Bench, *, most: int) -> list[str]:
    """The trees of the queues that a cycle decides about."""
    cycle: Cycle = bench.engine.cycle(bench.now, repeat=False, most_heads=most)
    return sorted({decision.cluster_queue[1] for decision in cycle.decisions})


@pytest.mark.parametrize("most", [1, QUEUES])
def test_trees_are_evaluated_whole_and_take_turns(most: int) -> None:
    bench = forest()
    fill(bench, each=2)
    assert [evaluated(bench, most=most) for _ in range(6)] == [["0"], ["1"], ["2"], ["0"], ["1"], ["2"]]
    assert not bench.engine.has_heads(bench.now, repeat=False)


def test_a_cycle_takes_as_many_trees_as_have_so_many_heads() -> None:
    bench = forest()
    fill(bench)
    assert evaluated(bench, most=QUEUES + 1) == ["0", "1"]
    assert evaluated(bench, most=QUEUES + 1) == ["2"]


def test_all_trees_are_evaluated_if_they_have_no_more_heads() -> None:
    bench = forest()
    fill(bench)
    assert evaluated(bench, most=TREES * QUEUES) == ["0", "1", "2"]


def test_a_tree_in_which_something_changes_all_the_time_does_not_keep_the_others_waiting() -> None:
    bench = forest()
    fill(bench)
    seen = []
    for number in range(5):
        bench.add(workload(f"more-{number}", "q00", pods(cpu="1"), created=100 + number))
        seen.append(evaluated(bench, most=1))
    assert seen == [["0"], ["1"], ["2"], ["0"], ["0"]]


def test_admissions_that_wait_for_pods_are_decided_with_all_heads() -> None:
    """The first of all trees is admitted, and all others wait for it: trees are not independent."""

    def decided(most: int | None) -> list[tuple[str, Outcome]]:
        bench = forest(Settings(pods_ready=PodsReady(block_admission=True)))
        fill(bench)
        cycle = bench.engine.cycle(bench.now, repeat=False, most_heads=most)
        return [(decision.workload.name, decision.outcome) for decision in cycle.decisions]

    assert decided(1) == decided(None)
    assert [outcome for _, outcome in decided(1)].count(Outcome.RESERVED) == 1


@pytest.mark.parametrize("seed", range(10))
def test_what_is_reserved_and_evicted_in_the_end_does_not_depend_on_turns(seed: int) -> None:
    def played(most: int | None) -> tuple[set[str], set[str]]:
        random, bench = Random(seed), forest()
        reserved: set[str] = set()
        evictions: set[str] = set()
        for step in range(12):
            for number in range(6):
                name = f"q{random.randrange(TREES)}{random.randrange(QUEUES)}"
                cpu, priority = random.choice("1234"), random.randrange(3)
                value = workload(f"{name}-{step}-{number}", name, pods(cpu=cpu), priority=priority, created=step)
                bench.add(value)
            bench.pass_time(5)
            while bench.engine.has_heads(bench.now, repeat=False):
                cycle = bench.engine.cycle(bench.now, repeat=False, most_heads=most)
                for decision in cycle.decisions:
                    if decision.outcome is Outcome.RESERVED:
                        bench.engine.admission_written(decision.workload, bench.now)
                        reserved.add(decision.workload.name)
                for decision in sorted(cycle.decisions, key=lambda each: each.workload):
                    for victim in decision.victims:
                        if victim.workload.name in reserved:
                            reserved.discard(victim.workload.name)
                            evictions.add(victim.workload.name)
                            bench.evict(victim.workload.name)
        assert all(bench.engine.workload(key(name)) is not None for name in reserved)
        return reserved, evictions

    assert played(None) == played(1)
