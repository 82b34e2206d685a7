# SPDX-License-Identifier: Apache-2.0
"""What is counted of a plan that was carried out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from manager.context import ManagerContext
from manager.dispatch.carriers import Carrier
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered
from manager.metrics import STANDALONE, Metrics
from multikueue.federation.actions import Assign, Plan, Rule
from multikueue.federation.facts import Observation
from tests.unit.federation.builders import facts, seen, workload
from tests.unit.manager.builders import reserved, wire


def counted(*observations: Observation) -> float:
    """How many dispatches to `w1` are counted when a plan sends epoch 2 there, and that stands there already."""
    metrics = Metrics()
    executor = Executor(cast(ManagerContext, SimpleNamespace(metrics=metrics)), cast(Carrier, None))
    gathered = Gathered(facts=facts(workload(epoch=2), *observations), workload=wire(reserved()))
    executor.report(Plan(rule=Rule.NOMINATE, actions=(Assign("w1"),)), gathered)
    found = metrics.registry.get_sample_value(
        "multikueue_workloads_dispatched_total", {"cluster_queue": "cq", "cluster": "w1", "replica_role": STANDALONE}
    )
    return found or 0.0


def test_a_copy_is_counted_when_it_is_sent_and_not_when_it_is_told_of_a_new_priority() -> None:
    assert counted() == 1
    assert counted(seen("w1", epoch=2, fingerprint="before")) == 0
    assert counted(seen("w1", epoch=1)) == 1, "each dispatch counts"
