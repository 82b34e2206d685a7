# SPDX-License-Identifier: Apache-2.0
"""What becomes of a workload's status (`docs/spec/engine.md §3.11`, §4.7, §7.5), and second passes (§1.12)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.constants import CheckState, DelayedTopology
from multikueue.api.reasons import PreemptedReason, WorkloadCondition
from multikueue.core.conditions import Condition
from multikueue.engine import lifecycle
from multikueue.engine.queue.second_pass import SecondPassQueue, eligible
from multikueue.engine.workloads import Admission, CheckStatus, PodSetAdmission, Workload
from tests.support.engine_builders import Bench, at, group, holding, key, pods, queue, workload

ONE = pods(cpu="1")


def status(value: Workload, kind: WorkloadCondition) -> tuple[str, str, str] | None:
    found = value.condition(kind)
    return None if found is None else (found.status, found.reason, found.message)


def test_a_reservation_ends_an_eviction_and_quotes_it() -> None:
    bench = Bench(queue("q", group(default="4")))
    evicted = lifecycle.evicted(
        holding(workload("w", "q", ONE), "q"),
        "Preempted",
        "Preempted for x",
        at(1),
        preempted=PreemptedReason.IN_CLUSTER_QUEUE,
    )
    waiting = lifecycle.released(evicted, at(2))
    assert status(waiting, WorkloadCondition.QUOTA_RESERVED) == ("False", "PendingEvaluation", "Preempted for x")
    assert status(waiting, WorkloadCondition.ADMITTED) == ("False", "NoReservation", "The workload has no reservation")
    assert status(waiting, WorkloadCondition.REQUEUED) == ("True", "Preempted", "Preempted for x")
    bench.add(waiting)
    again = lifecycle.reserved(waiting, bench.decide("w"), at(3))
    for kind in (WorkloadCondition.EVICTED, WorkloadCondition.PREEMPTED):
        assert status(again, kind) == ("False", "QuotaReserved", "Previously: Preempted for x")
    assert status(again, WorkloadCondition.ADMITTED) == ("True", "Admitted", "The workload is admitted")
    assert again.admission is not None
    assert again.reserved


def test_a_workload_with_checks_is_admitted_when_all_are_listed_and_ready() -> None:
    held = holding(workload("w", "q", ONE), "q")
    bare = replace(held, conditions=tuple(c for c in held.conditions if c.type != "Admitted"))
    assert not lifecycle.with_admission(bare, ("c",), at(1)).admitted
    listed = replace(bare, checks=(CheckStatus(name="c", state=CheckState.PENDING),))
    assert not lifecycle.with_admission(listed, ("c",), at(1)).admitted
    ready = replace(bare, checks=(CheckStatus(name="c", state=CheckState.READY),))
    assert lifecycle.with_admission(ready, ("c",), at(1)).admitted
    lost = lifecycle.with_admission(replace(listed, conditions=held.conditions), ("c",), at(1))
    assert status(lost, WorkloadCondition.ADMITTED) == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )


@pytest.mark.parametrize(
    ("before", "retries", "want_state", "want_retries", "want_message"),
    [
        pytest.param(CheckState.PENDING, 2, CheckState.PENDING, 2, "", id="a pending check stays"),
        pytest.param(CheckState.RETRY, 2, CheckState.PENDING, 3, "Retry", id="a retry is counted"),
        pytest.param(CheckState.RETRY, None, CheckState.PENDING, 1, "Retry", id="from one"),
        pytest.param(CheckState.READY, 2, CheckState.PENDING, None, "Ready", id="another outcome ends the count"),
    ],
)
def test_an_eviction_resets_checks(
    before: CheckState, retries: int | None, want_state: CheckState, want_retries: int | None, want_message: str
) -> None:
    check = CheckStatus(name="c", state=before, retry_count=retries, requeue_after_seconds=7)
    evicted = lifecycle.evicted(
        replace(holding(workload("w", "q", ONE), "q"), checks=(check,)), "AdmissionCheck", "", at(1)
    )
    found = evicted.checks[0]
    assert (found.state, found.retry_count, found.requeue_after_seconds) == (want_state, want_retries, 7)
    message = f"Reset to Pending after eviction. Previously: {want_message}" if want_message else ""
    assert found.message == message
    assert evicted.reserved, "quota is kept until the job has stopped"


@pytest.mark.parametrize(
    ("reason", "changes", "queues", "want"),
    [
        pytest.param("PodsReadyTimeout", {}, (True, True), ("True", "BackoffFinished"), id="a timeout without a time"),
        pytest.param(
            "PodsReadyTimeout", {"requeue_at": at(9)}, (True, True), ("False", "PodsReadyTimeout"), id="before its time"
        ),
        pytest.param(
            "AdmissionCheck", {"requeue_at": at(4)}, (True, True), ("True", "BackoffFinished"), id="after its time"
        ),
        pytest.param(
            "LocalQueueStopped",
            {},
            (True, False),
            ("False", "LocalQueueStopped"),
            id="while the local queue is stopped",
        ),
        pytest.param(
            "LocalQueueStopped", {}, (False, True), ("True", "LocalQueueRestarted"), id="when it is restarted"
        ),
        pytest.param(
            "ClusterQueueStopped", {}, (False, True), ("False", "ClusterQueueStopped"), id="while the queue is stopped"
        ),
        pytest.param(
            "ClusterQueueStopped", {}, (True, False), ("True", "ClusterQueueRestarted"), id="when that is restarted"
        ),
        pytest.param("Deactivated", {"active": False}, (True, True), ("False", "Deactivated"), id="while deactivated"),
        pytest.param("Deactivated", {}, (True, True), ("True", "Reactivated"), id="when active again"),
        pytest.param(
            "DeactivatedDueToAdmissionCheck", {}, (True, True), ("True", "Reactivated"), id="whatever the cause was"
        ),
        pytest.param(
            "EvictedOnManagerCluster", {}, (True, True), ("False", "EvictedOnManagerCluster"), id="others stay"
        ),
    ],
)
def test_when_an_evicted_workload_may_queue_again(
    reason: str, changes: dict[str, object], queues: tuple[bool, bool], want: tuple[str, str]
) -> None:
    evicted = lifecycle.released(lifecycle.evicted(holding(workload("w", "q", ONE), "q"), reason, "m", at(1)), at(2))
    evicted = replace(evicted, **changes)  # type: ignore[arg-type]
    found = lifecycle.requeued(evicted, at(5), cluster_queue_open=queues[0], local_queue_open=queues[1])
    kept = status(found, WorkloadCondition.REQUEUED)
    assert kept is not None
    assert kept[:2] == want
    assert (found is evicted) is (want[0] == "False")


def test_deactivation_frees_quota_at_once() -> None:
    bench = Bench(queue("q", group(default="1")))
    held = holding(workload("w", "q", ONE), "q")
    bench.add(held)
    bench.add(replace(held, active=False))
    state = bench.engine.cluster_queue_state("q")
    assert (state.reserving, state.pending) == (0, 0)
    bench.add(workload("next", "q", ONE))
    assert bench.decide("next").outcome == "Reserved"


def test_reclaimable_pods_free_quota_and_flush_the_tree() -> None:
    bench = Bench(queue("q", group(default="3")))
    held = holding(workload("w", "q", pods(3, cpu="1")), "q")
    bench.add(held, workload("waits", "q", ONE))
    bench.cycle()
    assert bench.waits("q") == ["[waits]"]
    bench.add(replace(held, reclaimable={"main": 1}))
    bench.pass_time(1)
    assert bench.decide("waits").outcome == "Reserved"


def placed(**changes: object) -> Workload:
    assignment = PodSetAdmission(
        name="main", flavors={"cpu": "f"}, usage={"cpu": 1000}, delayed_topology=DelayedTopology.PENDING
    )
    value = holding(workload("w", "q", ONE), "q")
    value = replace(
        value,
        admission=Admission("q", (assignment,)),
        checks=(CheckStatus(name="c", state=CheckState.READY),),
        conditions=tuple(c for c in value.conditions if c.type != "Admitted"),
    )
    return replace(value, **changes)  # type: ignore[arg-type]


def condition(kind: str) -> Condition:
    return Condition(type=kind, status="True", reason="R", last_transition_time=at(0))


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param(placed(), True, id="all checks ready and a place still to be found"),
        pytest.param(placed(checks=()), False, id="no checks"),
        pytest.param(
            placed(checks=(CheckStatus(name="c", state=CheckState.PENDING),)), False, id="a check that is not ready"
        ),
        pytest.param(placed(admission=None), False, id="no reservation"),
        pytest.param(placed(conditions=(*placed().conditions, condition("Evicted"))), False, id="evicted"),
        pytest.param(
            placed(conditions=(*placed().conditions, condition("Admitted")), unhealthy_nodes=("n",)),
            False,
            id="admitted without a place",
        ),
    ],
)
def test_who_gets_a_second_pass(value: Workload, want: bool) -> None:
    assert eligible(value) is want


def test_second_passes_come_at_growing_intervals() -> None:
    waiting = SecondPassQueue()
    now = 0.0
    for delay in (1, 2, 4, 8, 16, 30, 30):
        waiting.offer(placed(), at(now))
        waiting.offer(placed(), at(now))
        assert waiting.next() == at(now + delay)
        assert waiting.take(at(now + delay - 0.5)) == []
        now += delay
        assert waiting.take(at(now)) == [key("w")]
    waiting.offer(placed(), at(now))
    waiting.forget(key("w"))
    assert waiting.next() is None
