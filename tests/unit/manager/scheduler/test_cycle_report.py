# SPDX-License-Identifier: Apache-2.0
"""What is measured of a scheduling cycle."""

from __future__ import annotations

from manager.metrics import ManagerMetrics
from manager.scheduler.cycle_report import report_cycle
from multikueue.engine.decisions import Cycle
from tests.support.engine_builders import Bench, group, holding, pods, preemption, queue, workload

ROLE = {"replica_role": "standalone"}


def cycle_with_one_victim_for_two() -> Cycle:
    """Two queues whose heads can both only get the quota that one workload holds."""
    reclaims = preemption(reclaim="Any")
    bench = Bench(
        queue("a", group(default="1"), cohort="c", preemption=reclaims),
        queue("b", group(default="1"), cohort="c", preemption=reclaims),
        queue("d", group(default="0"), cohort="c"),
    )
    bench.add(holding(workload("held", "d", pods(cpu="2")), "d"))
    bench.add(*(workload(f"w{name}", name, pods(cpu="1"), created=1) for name in "ab"))
    return bench.cycle()


def test_a_cycle_is_counted_by_its_result_and_one_without_heads_is_not() -> None:
    metrics = ManagerMetrics()
    bench = Bench(queue("a", group(default="1")))
    report_cycle(metrics, bench.cycle(), seconds=1)
    bench.add(workload("w", "a", pods(cpu="1")))
    report_cycle(metrics, bench.cycle(), seconds=0.5)
    labels = {"result": "success", **ROLE}
    assert metrics.registry.get_sample_value("kueue_admission_attempts_total", labels) == 1
    assert metrics.registry.get_sample_value("kueue_admission_attempt_duration_seconds_sum", labels) == 0.5


def test_preemptions_that_wait_for_another_are_those_of_the_last_cycle() -> None:
    metrics = ManagerMetrics()
    cycle = cycle_with_one_victim_for_two()
    report_cycle(metrics, cycle, seconds=0)

    def skips() -> float:
        found = (
            metrics.registry.get_sample_value("kueue_admission_cycle_preemption_skips", {"cluster_queue": name, **ROLE})
            for name in "ab"
        )
        return sum(each or 0 for each in found)

    overlapping = sum("overlapping preemption targets" in each.message for each in cycle.decisions)
    assert skips() == overlapping
    bench = Bench(queue("a", group(default="1"))).add(workload("w", "a", pods(cpu="1")))
    report_cycle(metrics, bench.cycle(), seconds=0)
    assert skips() == 0
