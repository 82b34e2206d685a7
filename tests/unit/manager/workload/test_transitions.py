# SPDX-License-Identifier: Apache-2.0
"""What is counted when a Workload's status changes."""

from __future__ import annotations

from dataclasses import replace

from manager.metrics import ManagerMetrics
from manager.workload import changes
from manager.workload.status import Status
from manager.workload.transitions import MOST_CLASSES, OTHER_CLASS, Transitions, concerned
from multikueue.api.constants import CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.clock import ManualClock
from multikueue.core.conditions import FALSE
from multikueue.core.keys import Key
from multikueue.kube.runtime.events import Reference
from tests.unit.manager.builders import (
    NOW,
    admitted,
    at,
    check,
    evicted,
    having,
    pending,
    reserved,
    wire,
    with_checks,
)


class Told:
    """Keeps what was recorded."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, about: Reference, type: str, reason: str, message: str) -> None:
        self.events.append((reason, message))


class Measured:
    """Of which queues and cohorts there are metrics."""

    def __init__(self, *, local_queues: set[Key] | None = None, cohorts: tuple[str, ...] = ()) -> None:
        self._local_queues = local_queues or set()
        self._cohorts = cohorts

    def measures(self, key: Key) -> bool:
        return key in self._local_queues

    def cohorts_above(self, cluster_queue: str) -> tuple[str, ...]:
        assert cluster_queue == "cq"
        return self._cohorts


def events(before: Status, after: Status) -> list[tuple[str, str]]:
    recorder = Told()
    Transitions(ManagerMetrics(), recorder, clock=ManualClock(at(100))).written(wire(after), before, after)
    return recorder.events


def counted(before: Status, after: Status, name: str, **labels: str) -> float:
    return counted_with(before, after, name, priority_class="", **labels)


def counted_with(before: Status, after: Status, name: str, **labels: str) -> float:
    """Of a series that may have no priority class."""
    metrics = ManagerMetrics()
    Transitions(metrics, Told(), clock=ManualClock(at(100))).written(wire(after), before, after)
    value = metrics.registry.get_sample_value(name, {"cluster_queue": "cq", "replica_role": "standalone"} | labels)
    return value or 0.0


def test_a_reservation_and_an_admission_are_counted_with_their_waits() -> None:
    assert counted(pending(), admitted(), "kueue_quota_reserved_workloads_total") == 1
    assert counted(pending(), admitted(), "kueue_admitted_workloads_total") == 1
    assert counted(reserved(), admitted(), "kueue_quota_reserved_workloads_total") == 0
    # Created an hour before the moment, checked 100 seconds after it.
    assert counted(pending(), admitted(), "kueue_admission_wait_time_seconds_sum") == 3700
    ready = check("c", CheckState.READY)
    one, two = (with_checks(each, ready) for each in (reserved(), admitted()))
    assert counted(one, two, "kueue_admission_checks_wait_time_seconds_sum") == 100
    assert counted(reserved(), admitted(), "kueue_admission_checks_wait_time_seconds_count") == 0


def test_an_eviction_is_counted_with_its_cause() -> None:
    after = changes.evict(admitted(), reason="PodsReadyTimeout", message="", underlying_cause="WaitForStart", now=NOW)
    labels = {"reason": "PodsReadyTimeout", "underlying_cause": "WaitForStart"}
    assert counted(admitted(), after, "kueue_evicted_workloads_total", **labels) == 1
    assert counted(after, after, "kueue_evicted_workloads_total", **labels) == 0


def test_a_deactivation_is_counted_by_its_cause() -> None:
    after = changes.evict(admitted(), reason="Deactivated", message="", underlying_cause="AdmissionCheck", now=NOW)
    labels = {"reason": "Deactivated", "underlying_cause": "AdmissionCheck"}
    assert counted(admitted(), after, "kueue_evicted_workloads_total", **labels) == 1


def test_the_first_eviction_for_a_reason_is_counted_apart() -> None:
    labels = {"reason": "PodsReadyTimeout", "underlying_cause": "WaitForStart"}

    def again(old: Status) -> Status:
        return changes.evict(old, reason="PodsReadyTimeout", message="", underlying_cause="WaitForStart", now=NOW)

    once = "kueue_evicted_workloads_once_total"
    assert counted(admitted(), again(admitted()), once, **labels) == 1
    before = replace(admitted(), evictions=again(admitted()).evictions)
    assert counted(before, again(before), once, **labels) == 0
    assert counted(before, again(before), "kueue_evicted_workloads_total", **labels) == 1


def test_pods_that_are_ready_are_counted_with_the_time_they_took_and_ran() -> None:
    ready = having(admitted(), WorkloadCondition.PODS_READY, reason="Started", since=40)
    assert counted(admitted(), ready, "kueue_ready_wait_time_seconds_sum") == 3700
    assert counted(admitted(), ready, "kueue_admitted_until_ready_wait_time_seconds_sum") == 100
    lost = having(admitted(), WorkloadCondition.PODS_READY, reason="WaitForRecovery", value=FALSE)
    recovered = having(admitted(), WorkloadCondition.PODS_READY, reason="Recovered")
    assert counted(lost, recovered, "kueue_ready_wait_time_seconds_count") == 1, "as with Kueue"
    assert counted(ready, lost, "kueue_ready_wait_time_seconds_count") == 0
    after = changes.evict(ready, reason="Preempted", message="", now=NOW)
    labels = {"reason": "Preempted", "underlying_cause": ""}
    assert counted_with(ready, after, "kueue_pods_ready_to_evicted_time_seconds_sum", **labels) == 60


def test_how_long_an_evicted_workload_held_its_quota_is_counted_when_it_is_released() -> None:
    before = evicted(admitted(), "Preempted", since=30)
    after = changes.complete_eviction(before, now=at(100))
    assert counted_with(before, after, "kueue_workload_eviction_latency_seconds_sum", reason="Preempted") == 70


def test_a_slice_that_a_newer_one_replaced_is_counted() -> None:
    after = changes.finish(admitted(), reason="WorkloadSliceReplaced", message="", now=NOW)
    assert counted_with(admitted(), after, "kueue_replaced_workload_slices_total") == 1


def test_an_admission_is_counted_in_each_tree_of_cohorts_that_it_is_in_until_the_cohort_goes() -> None:
    metrics = ManagerMetrics()
    measured = Measured(cohorts=("team", "root"))
    transitions = Transitions(metrics, Told(), clock=ManualClock(at(100)), measured=measured)
    transitions.written(wire(admitted()), pending(), admitted())

    def value(cohort: str) -> float | None:
        labels = {"cohort": cohort, "priority_class": "", "replica_role": "standalone"}
        return metrics.registry.get_sample_value("kueue_cohort_subtree_admitted_workloads_total", labels)

    assert (value("team"), value("root"), value("other")) == (1, 1, None)
    metrics.workloads.forget_cohort("team")
    assert (value("team"), value("root")) == (None, 1)


def test_what_is_counted_by_local_queue_is_up_to_the_configuration_and_ends_with_the_queue() -> None:
    labels = {"name": "lq", "namespace": "team", "priority_class": "", "replica_role": "standalone"}
    series = "kueue_local_queue_admitted_workloads_total"
    for wanted in ({Key("team", "lq")}, set[Key]()):
        metrics = ManagerMetrics()
        transitions = Transitions(metrics, Told(), clock=ManualClock(at(100)), measured=Measured(local_queues=wanted))
        transitions.written(wire(admitted()), pending(), admitted())
        assert metrics.registry.get_sample_value(series, labels) == (1 if wanted else None)
        metrics.workloads.forget_local_queue("team", "lq")
        assert metrics.registry.get_sample_value(series, labels) is None
        queue = {"cluster_queue": "cq", "priority_class": "", "replica_role": "standalone"}
        assert metrics.registry.get_sample_value("kueue_admitted_workloads_total", queue) == 1
        metrics.workloads.forget_cluster_queue("cq")
        assert metrics.registry.get_sample_value("kueue_admitted_workloads_total", queue) is None


def test_only_so_many_priority_classes_have_series_of_their_own_since_a_workload_may_name_any() -> None:
    metrics = ManagerMetrics()
    transitions = Transitions(metrics, Told(), clock=ManualClock(at(100)))
    for number in range(MOST_CLASSES + 5):
        workload = wire(admitted())
        workload["spec"]["priorityClassRef"] = {"name": f"class-{number}"}
        transitions.written(workload, pending(), admitted())

    def of(name: str) -> float | None:
        labels = {"cluster_queue": "cq", "priority_class": name, "replica_role": "standalone"}
        return metrics.registry.get_sample_value("kueue_admitted_workloads_total", labels)

    assert (of("class-0"), of(f"class-{MOST_CLASSES}"), of(OTHER_CLASS)) == (1, None, 5)


def test_an_end_is_counted_with_the_time_it_ran() -> None:
    after = changes.finish(admitted(), reason="Succeeded", message="", now=NOW)
    assert counted(admitted(), after, "kueue_finished_workloads_total") == 1
    assert counted(admitted(), after, "kueue_execution_time_seconds_sum") == 100
    assert counted(after, replace(after, cluster_name="w"), "kueue_finished_workloads_total") == 0


def test_an_admission_and_an_eviction_are_recorded_once() -> None:
    text = "Admitted by ClusterQueue cq, wait time since reservation was 100s"
    assert events(reserved(), admitted()) == [("Admitted", text)]
    gone = changes.evict(admitted(), reason="ClusterQueueStopped", message="The ClusterQueue is stopped", now=NOW)
    assert events(admitted(), gone) == [("EvictedDueToClusterQueueStopped", "The ClusterQueue is stopped")]
    assert events(gone, gone) == []


def test_a_workload_that_is_deactivated_while_it_waits_loses_nothing() -> None:
    after = changes.deactivate(pending(), now=NOW)
    assert events(pending(), after) == []
    assert counted(pending(), after, "kueue_evicted_workloads_total") == 0


def test_a_wait_for_a_cluster_is_recorded_once_on_the_workload_and_its_job() -> None:
    before = with_checks(reserved(), check("mk", CheckState.PENDING))
    waits = "Waiting for a worker cluster: west: is cordoned and takes no new work"
    first = with_checks(reserved(), check("mk", CheckState.PENDING, message=waits))
    other = with_checks(
        reserved(), check("mk", CheckState.PENDING, message=f"{waits}; east: insufficient free capacity")
    )
    assert events(before, first) == [("WaitingForCluster", waits)]
    assert events(first, other) == []
    assert events(other, before) == []
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    workload = wire(first)
    workload["metadata"]["ownerReferences"] = [owner]
    assert [about.kind for about in concerned(workload)] == ["Workload", "Job"]
