# SPDX-License-Identifier: Apache-2.0
"""`waitForPodsReady.blockAdmission`: no workload gets quota before the pods of all that hold some are ready (3.9-K)."""

from __future__ import annotations

from dataclasses import replace

from multikueue.core.conditions import Condition
from multikueue.engine import Outcome, Settings, lifecycle
from multikueue.engine.settings import PodsReady
from multikueue.engine.values import AdmissionCheck
from tests.support.engine_builders import Bench, at, checks, group, pods, queue, workload

ONE = pods(cpu="1")


def test_admission_waits_for_pods_to_be_ready() -> None:
    settings = Settings(pods_ready=PodsReady(block_admission=True))
    bench = Bench(queue("a", group(default="9")), queue("b", group(default="9")), settings=settings)
    bench.add(workload("w1", "a", ONE, created=1), workload("w2", "b", ONE, created=2))
    first, second = bench.cycle().decisions
    assert first.outcome is Outcome.RESERVED
    assert (second.outcome, second.reason, second.message) == (
        Outcome.PENDING,
        "WaitingForPodsReady",
        "waiting for all admitted workloads to be in PodsReady condition",
    )
    assert not bench.engine.has_heads(bench.now)
    admitted = lifecycle.reserved(workload("w1", "a", ONE, created=1), first, bench.now)
    ready = Condition(type="PodsReady", status="True", reason="Started", last_transition_time=at(1))
    bench.add(replace(admitted, conditions=(*admitted.conditions, ready)))
    assert bench.decide("w2").outcome is Outcome.RESERVED


def test_admission_waits_also_for_the_pods_of_a_workload_whose_checks_are_pending() -> None:
    settings = Settings(pods_ready=PodsReady(block_admission=True))
    first = queue("a", group(default="9"), checks=checks("c"))
    bench = Bench(first, queue("b", group(default="9")), settings=settings)
    bench.engine.upsert_admission_check(AdmissionCheck(name="c", controller="x", active=True), bench.now)
    bench.add(workload("w1", "a", ONE, created=1), workload("w2", "b", ONE, created=2))
    reserved, waiting = bench.cycle().decisions
    assert (reserved.outcome, waiting.reason) == (Outcome.RESERVED, "WaitingForPodsReady")
    held_quota = lifecycle.reserved(workload("w1", "a", ONE, created=1), reserved, bench.now)
    bench.add(held_quota)
    assert not held_quota.admitted
    assert not bench.engine.has_heads(bench.now)
    bench.add(replace(held_quota, active=False))
    assert bench.decide("w2").outcome is Outcome.RESERVED, "one that is deactivated holds up no other"
