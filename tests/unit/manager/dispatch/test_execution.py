# SPDX-License-Identifier: Apache-2.0
"""What is counted of a plan that was carried out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from manager.context import ManagerContext
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered
from manager.dispatch.transport.mailbox_transport import Transport
from manager.metrics import STANDALONE, ManagerMetrics
from multikueue.dispatch.hub.actions import Assign, ChangeUpdate, DispatchPlan, Rule, StartUpdate
from multikueue.dispatch.hub.facts import Observation
from multikueue.kube.runtime.events import Reference
from tests.unit.dispatch.builders import facts, running, seen, workload
from tests.unit.manager.builders import reserved, wire


def counted(*observations: Observation) -> float:
    """How many dispatches to `w1` are counted when a plan sends epoch 2 there and its assignment exists."""
    metrics = ManagerMetrics()
    executor = Executor(cast(ManagerContext, SimpleNamespace(metrics=metrics)), cast(Transport, None))
    gathered = Gathered(facts=facts(workload(epoch=2), *observations), workload=wire(reserved()))
    executor.report(DispatchPlan(rule=Rule.NOMINATE, actions=(Assign("w1"),)), gathered)
    found = metrics.registry.get_sample_value(
        "multikueue_workloads_dispatched_total", {"cluster_queue": "cq", "cluster": "w1", "replica_role": STANDALONE}
    )
    return found or 0.0


def test_an_assignment_is_counted_when_it_is_created_and_not_when_its_priority_changes() -> None:
    assert counted() == 1
    assert counted(seen("w1", epoch=2, fingerprint="before")) == 0
    assert counted(seen("w1", epoch=1)) == 1, "each dispatch counts"


def test_a_change_that_is_not_made_is_an_event_and_that_it_was_made_is_none() -> None:
    events: list[tuple[str, str, str, str]] = []

    def event(about: Reference, type: str, reason: str, message: str) -> None:
        events.append((about.kind, type, reason, message))

    context = SimpleNamespace(metrics=ManagerMetrics(), recorder=SimpleNamespace(event=event))
    executor = Executor(cast(ManagerContext, context), cast(Transport, None))
    gathered = Gathered(facts=facts(running()), workload=wire(reserved()))
    for update in (ChangeUpdate("ForbiddenByPolicy", "m"), ChangeUpdate()):
        executor.report(DispatchPlan(rule=Rule.GRANTED, change_forwarded=update), gathered)
    assert events == [("Workload", "Warning", "MultiKueue", "m")]


def test_pods_that_do_not_start_are_reported_once_and_that_they_have_started_is_not() -> None:
    events: list[tuple[str, str, str, str]] = []

    def event(about: Reference, type: str, reason: str, message: str) -> None:
        events.append((about.kind, type, reason, message))

    context = SimpleNamespace(metrics=ManagerMetrics(), recorder=SimpleNamespace(event=event))
    executor = Executor(cast(ManagerContext, context), cast(Transport, None))
    gathered = Gathered(facts=facts(running()), workload=wire(reserved()))
    executor.report(DispatchPlan(rule=Rule.GRANTED, pods_started=StartUpdate("FailedCreate", "m")), gathered)
    executor.report(DispatchPlan(rule=Rule.GRANTED, pods_started=StartUpdate()), gathered)
    assert events == [("Workload", "Warning", "PodsNotStarted", "FailedCreate: m")]
