# SPDX-License-Identifier: Apache-2.0
"""The model of queueing under pressure: it comes to an end, is repeatable, and its rules differ in evictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.engine.mix import BASELINE
from tests.bench.queueing.model import Model, ModelRun, Rule
from tests.bench.queueing.workloads import sized

MIX = replace(sized(BASELINE, queues=None, scale=0.1), cohorts=1, queues=3)


def played(rule: Rule, *, seed: int = 1) -> ModelRun:
    return Model(MIX, rule=rule, delay=0.1, call=0.06, seed=seed).run()


@pytest.mark.parametrize("rule", list(Rule))
def test_every_workload_is_admitted_and_ends_whatever_the_rule(rule: Rule) -> None:
    model = Model(MIX, rule=rule, delay=0.1, call=0.06, seed=1)
    run = model.run()
    assert model.unfinished() == []
    assert set(run.waits) == {"small", "medium", "large"}


def test_a_run_with_the_same_seed_is_the_same() -> None:
    assert played(Rule.RUNS) == played(Rule.RUNS)
    assert played(Rule.RUNS) != played(Rule.RUNS, seed=2)


def test_fewer_are_evicted_where_preemptions_wait_for_runs() -> None:
    runs = {rule: sum(played(rule, seed=seed).evictions for seed in range(4)) for rule in Rule}
    assert runs[Rule.RUNS] < runs[Rule.FIRST]
