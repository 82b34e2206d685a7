# SPDX-License-Identifier: Apache-2.0
"""What is counted when a Workload's status changes."""

from __future__ import annotations

from dataclasses import replace

from manager import workload_changes
from manager.metrics import Metrics
from manager.transitions import Transitions
from manager.workload_status import Status
from multikueue.core.clock import ManualClock
from multikueue.kube.events import Reference
from tests.unit.manager.builders import NOW, admitted, at, pending, reserved, wire


class Told:
    """Keeps what was recorded."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, about: Reference, type: str, reason: str, message: str) -> None:
        self.events.append((reason, message))


def told(before: Status, after: Status) -> list[tuple[str, str]]:
    recorder = Told()
    Transitions(Metrics(), recorder, clock=ManualClock(at(100))).written(wire(after), before, after)
    return recorder.events


def counted(before: Status, after: Status, name: str, **labels: str) -> float:
    metrics = Metrics()
    Transitions(metrics, Told(), clock=ManualClock(at(100))).written(wire(after), before, after)
    value = metrics.registry.get_sample_value(
        name, {"cluster_queue": "cq", "priority_class": "", "replica_role": "standalone"} | labels
    )
    return value or 0.0


def test_a_reservation_and_an_admission_are_counted_with_their_waits() -> None:
    assert counted(pending(), admitted(), "kueue_quota_reserved_workloads_total") == 1
    assert counted(pending(), admitted(), "kueue_admitted_workloads_total") == 1
    assert counted(reserved(), admitted(), "kueue_quota_reserved_workloads_total") == 0
    # Created an hour before the moment, looked at 100 seconds after it.
    assert counted(pending(), admitted(), "kueue_admission_wait_time_seconds_sum") == 3700
    assert counted(reserved(), admitted(), "kueue_admission_checks_wait_time_seconds_sum") == 100


def test_an_eviction_is_counted_with_its_cause() -> None:
    after = workload_changes.evict(
        admitted(), reason="PodsReadyTimeout", message="", underlying_cause="WaitForStart", now=NOW
    )
    labels = {"reason": "PodsReadyTimeout", "underlying_cause": "WaitForStart"}
    assert counted(admitted(), after, "kueue_evicted_workloads_total", **labels) == 1
    assert counted(after, after, "kueue_evicted_workloads_total", **labels) == 0


def test_an_end_is_counted_with_the_time_it_ran() -> None:
    after = workload_changes.finish(admitted(), reason="Succeeded", message="", now=NOW)
    assert counted(admitted(), after, "kueue_finished_workloads_total") == 1
    assert counted(admitted(), after, "kueue_execution_time_seconds_sum") == 100
    assert counted(after, replace(after, cluster_name="w"), "kueue_finished_workloads_total") == 0


def test_an_admission_and_an_eviction_are_told_once() -> None:
    text = "Admitted by ClusterQueue cq, wait time since reservation was 100s"
    assert told(reserved(), admitted()) == [("Admitted", text)]
    gone = workload_changes.evict(
        admitted(), reason="ClusterQueueStopped", message="The ClusterQueue is stopped", now=NOW
    )
    assert told(admitted(), gone) == [("EvictedDueToClusterQueueStopped", "The ClusterQueue is stopped")]
    assert told(gone, gone) == []
