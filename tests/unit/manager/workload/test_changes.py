# SPDX-License-Identifier: Apache-2.0
"""What each event does to a Workload's status."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from manager.workload import changes
from manager.workload.status import Eviction, Status
from multikueue.api.constants import CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import FALSE
from tests.unit.manager.builders import (
    NOW,
    admitted,
    at,
    check,
    evicted,
    having,
    pending,
    reserved,
    status,
    wire,
    with_checks,
)

ADMISSION = {"clusterQueue": "cq", "podSetAssignments": []}


def reserve(old: Status, *checks: str) -> Status:
    return changes.reserve(old, cluster_queue="cq", admission=ADMISSION, required_checks=checks, now=NOW)


def reason_of(value: Status, kind: WorkloadCondition) -> tuple[str, str] | None:
    found = value.condition(kind)
    return None if found is None else (found.status, found.reason)


@pytest.mark.parametrize(
    ("old", "checks", "want_admitted"),
    [
        pytest.param(status(), (), ("True", "Admitted"), id="without checks it is admitted in the same write"),
        pytest.param(status(), ("mk",), None, id="a check that is not listed yet leaves Admitted to the reconciler"),
        pytest.param(
            with_checks(status(), check("mk")),
            ("mk",),
            ("False", "UnsatisfiedAdmissionChecks"),
            id="a listed check that is pending keeps it from being admitted",
        ),
        pytest.param(
            with_checks(status(), check("mk", CheckState.READY)),
            ("mk",),
            ("True", "Admitted"),
            id="a listed check that is ready already admits it at once",
        ),
    ],
)
def test_reservation(old: Status, checks: tuple[str, ...], want_admitted: tuple[str, str] | None) -> None:
    new = reserve(old, *checks)
    assert reason_of(new, WorkloadCondition.QUOTA_RESERVED) == ("True", "QuotaReserved")
    assert reason_of(new, WorkloadCondition.ADMITTED) == want_admitted
    assert new.admission == ADMISSION


def test_a_reservation_turns_the_marks_of_an_eviction_around_and_quotes_them() -> None:
    old = having(evicted(pending(), "Preempted", message="preempted"), WorkloadCondition.PREEMPTED, message="preempted")
    new = reserve(replace(old, resource_requests=({"name": "main"},)))
    for kind in (WorkloadCondition.EVICTED, WorkloadCondition.PREEMPTED):
        found = new.condition(kind)
        assert found is not None
        assert (found.status, found.reason, found.message) == (FALSE, "QuotaReserved", "Previously: preempted")
    assert new.resource_requests == ()


def test_an_eviction_keeps_the_quota_and_resets_checks_dispatch_and_counts() -> None:
    old = replace(
        with_checks(
            admitted(),
            check("ready", CheckState.READY, retry_count=2, pod_set_updates=({"name": "main"},)),
            check("retry", CheckState.RETRY, retry_count=1, requeue_after_seconds=9),
            check("waiting"),
        ),
        cluster_name="w1",
        nominated=("w1", "w2"),
        unhealthy_nodes=("n",),
        evictions=(Eviction(reason="Preempted", count=1),),
    )
    new = changes.evict(old, reason="Preempted", message="preempted", now=at(5))
    assert new.admission == old.admission
    assert new.is_true(WorkloadCondition.ADMITTED)
    assert new.is_true(WorkloadCondition.QUOTA_RESERVED)
    ready, retry, waiting = new.checks
    assert (ready.state, ready.retry_count, ready.pod_set_updates) == (CheckState.PENDING, None, ())
    assert ready.message == "Reset to Pending after eviction. Previously: Ready"
    assert (retry.retry_count, retry.requeue_after_seconds) == (2, 9)
    assert waiting is old.checks[2]
    assert (new.cluster_name, new.nominated, new.unhealthy_nodes) == ("", (), ())
    assert new.evictions == (Eviction(reason="Preempted", count=2),)
    assert new.epoch == 3


@pytest.mark.parametrize(
    ("reason", "want_requeued"),
    [
        pytest.param("Preempted", "True", id="a preempted workload queues at once"),
        pytest.param("NodeFailures", "True", id="one whose node failed queues at once"),
        pytest.param("AdmissionCheck", "False", id="one that a check sent back waits for its back-off"),
        pytest.param("PodsReadyTimeout", "False", id="one that was not ready in time waits for its back-off"),
        pytest.param("ClusterQueueStopped", "False", id="one of a stopped queue waits for the queue"),
        pytest.param("Deactivated", "False", id="a deactivated one waits to be activated"),
    ],
)
def test_the_end_of_an_eviction(reason: str, want_requeued: str) -> None:
    new = changes.complete_eviction(evicted(admitted(), reason), now=at(10))
    requeued = new.condition(WorkloadCondition.REQUEUED)
    assert requeued is not None
    assert (requeued.status, requeued.reason, requeued.message) == (want_requeued, reason, "go")
    assert new.admission is None
    assert reason_of(new, WorkloadCondition.QUOTA_RESERVED) == ("False", "PendingEvaluation")
    assert reason_of(new, WorkloadCondition.ADMITTED) == ("False", "NoReservation")
    assert new.past_execution_seconds == 10
    assert changes.complete_eviction(new, now=at(20)) is new


def test_time_spent_running_adds_up_over_evictions() -> None:
    first = changes.complete_eviction(evicted(admitted(), "Preempted"), now=at(7))
    again = having(replace(admitted(), past_execution_seconds=first.past_execution_seconds), WorkloadCondition.EVICTED)
    assert changes.complete_eviction(again, now=at(3)).past_execution_seconds == 10


def test_deactivation_names_its_cause_and_forgets_the_back_off() -> None:
    old = having(
        replace(admitted(), requeue_count=3, requeue_at=NOW),
        WorkloadCondition.DEACTIVATION_TARGET,
        reason="AdmissionCheck",
        message="the check said no",
    )
    new = changes.deactivate(old, now=NOW)
    found = new.condition(WorkloadCondition.EVICTED)
    assert found is not None
    assert found.reason == "DeactivatedDueToAdmissionCheck"
    assert found.message == "The workload is deactivated due to the check said no"
    assert new.evictions[-1] == Eviction(reason="Deactivated", underlying_cause="AdmissionCheck", count=1)
    assert new.condition(WorkloadCondition.DEACTIVATION_TARGET) is None
    assert (new.requeue_count, new.requeue_at) == (None, None)
    assert changes.deactivate(new, now=at(1)) is new


def test_deactivation_does_not_rename_an_eviction_that_is_under_way() -> None:
    new = changes.deactivate(evicted(admitted(), "Preempted"), now=NOW)
    assert reason_of(new, WorkloadCondition.EVICTED) == ("True", "Preempted")


def test_a_waiting_workload_that_is_deactivated_is_evicted_once() -> None:
    found = changes.deactivate(changes.deactivate(pending(), now=NOW), now=NOW)
    assert reason_of(found, WorkloadCondition.EVICTED) == ("True", "Deactivated")
    assert [(each.reason, each.count) for each in found.evictions] == [("Deactivated", 1)]


def test_the_first_end_counts() -> None:
    done = changes.finish(admitted(), reason="Succeeded", message="fine", now=NOW)
    assert changes.finish(done, reason="Failed", message="no", now=at(1)) is done


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda old: changes.sync_admitted(old, now=at(9)), id="Admitted that is right already"),
        pytest.param(
            lambda old: changes.set_check(old, "absent", state=CheckState.READY, now=at(9)),
            id="a check the workload does not have",
        ),
        pytest.param(lambda old: changes.sync_checks(old, (), now=at(9)), id="a list of checks that is right"),
    ],
)
def test_what_changes_nothing_hands_back_the_same_value(change: object) -> None:
    old = admitted()
    assert callable(change)
    assert change(old) is old


def test_checks_come_and_go_with_the_queue_and_keep_their_state() -> None:
    old = with_checks(reserved(), check("kept", CheckState.READY), check("old"))
    new = changes.sync_checks(old, ("new", "kept"), now=at(3))
    assert [(item.name, item.state) for item in new.checks] == [
        ("new", CheckState.PENDING),
        ("kept", CheckState.READY),
    ]
    assert changes.sync_checks(new, ("kept", "new"), now=at(4)) is new


def test_a_status_survives_the_wire_with_everything_it_owns() -> None:
    old = replace(
        with_checks(evicted(admitted(), "Preempted"), check("mk", CheckState.RETRY, message="later", retry_count=1)),
        requeue_count=2,
        requeue_at=at(60),
        resource_requests=({"name": "main", "resources": {"cpu": "1"}},),
        evictions=(Eviction(reason="Preempted", underlying_cause="", count=1),),
        past_execution_seconds=5,
        cluster_name="w1",
        unhealthy_nodes=("n1",),
        preemption_gates=({"name": "g", "position": "Closed", "lastTransitionTime": "2026-01-01T12:00:00Z"},),
    )
    assert Status.of(wire(old)) == old


def test_conditions_of_others_are_carried_but_not_written() -> None:
    other = cast(WorkloadCondition, "example.com/Checked")
    old = having(admitted(), other)
    assert old.is_true(other)
    assert [entry["type"] for entry in old.wire()["conditions"]] == ["QuotaReserved", "Admitted"]


def test_the_wait_for_replacement_pods_is_written() -> None:
    old = having(admitted(), WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS)
    assert "WaitingForReplacementPods" in [entry["type"] for entry in old.wire()["conditions"]]


def test_reasons_to_wait_and_listed_checks_only_explain_waiting() -> None:
    before = pending("Unschedulable", "no quota")
    after = changes.pend(
        before, reason="Suspended", message="the queue is stopped", resource_requests=({"name": "main"},), now=NOW
    )
    assert changes.only_explains_waiting(before, after)
    assert changes.only_explains_waiting(before, changes.sync_checks(before, ["check"], now=NOW))
    assert changes.only_explains_waiting(status(), changes.sync_checks(before, ["check"], now=NOW))


def test_what_gives_back_quota_or_changes_anything_else_does_more_than_explain_waiting() -> None:
    before = pending("Unschedulable", "no quota")
    listed = changes.sync_checks(before, ["check"], now=NOW)
    ready = changes.set_check(listed, "check", state=CheckState.READY, now=NOW)
    for old, new in (
        (reserved(), before),
        (before, reserved()),
        (before, evicted(before, "Preempted")),
        (before, replace(before, requeue_count=1)),
        (listed, ready),
        (listed, before),
    ):
        assert not changes.only_explains_waiting(old, new)


def test_a_change_that_is_not_made_is_shown_until_it_is_made_or_the_dispatch_ends() -> None:
    kind = WorkloadCondition.CHANGE_FORWARDED
    shown = changes.change_forwarded(admitted(), reason="ForbiddenByPolicy", message="a", now=NOW)
    assert reason_of(shown, kind) == ("False", "ForbiddenByPolicy")
    assert changes.change_forwarded(shown, reason="", message="", now=NOW).condition(kind) is None
    assert changes.finish(shown, reason="Succeeded", message="", now=NOW).condition(kind) is None
    assert changes.evict(shown, reason="AdmissionCheck", message="", now=NOW).condition(kind) is None


def test_pods_that_do_not_start_are_shown_since_the_first_report_and_not_beyond_the_end() -> None:
    shown = changes.pods_started(admitted(), reason="FailedCreate", message="a", now=NOW)
    assert reason_of(shown, WorkloadCondition.PODS_STARTED) == ("False", "FailedCreate")
    other = changes.pods_started(shown, reason="Unschedulable", message="b", now=at(60))
    found = other.condition(WorkloadCondition.PODS_STARTED)
    assert found is not None
    assert (found.reason, found.last_transition_time) == ("Unschedulable", NOW)
    assert changes.pods_started(other, reason="", message="", now=NOW).condition(WorkloadCondition.PODS_STARTED) is None
    ended = changes.finish(other, reason="Succeeded", message="", now=NOW)
    assert ended.condition(WorkloadCondition.PODS_STARTED) is None
    kept = changes.evict(other, reason="AdmissionCheck", message="", now=NOW)
    assert kept.condition(WorkloadCondition.PODS_STARTED) == found, "while it waits to be sent again it has the reason"


def delayed(state: str | None, *others: str) -> Status:
    """Holds quota with pod sets whose topology has these states; None for none."""
    assignments = [
        {"name": f"p{number}", **({} if each is None else {"delayedTopologyRequest": each})}
        for number, each in enumerate((state, *others))
    ]
    return replace(reserved(), admission={"clusterQueue": "cq", "podSetAssignments": assignments})


def test_what_waits_for_its_places_is_not_admitted_until_they_are_ready() -> None:
    waits = changes.sync_admitted(delayed("Pending"), now=NOW)
    assert reason_of(waits, WorkloadCondition.ADMITTED) in (None, ("False", "PendingDelayedTopologyRequests"))
    assert not waits.is_true(WorkloadCondition.ADMITTED)
    assert changes.sync_admitted(changes.topology_ready(waits), now=NOW).is_true(WorkloadCondition.ADMITTED)


def test_the_places_of_all_pod_sets_are_ready_where_the_pods_run() -> None:
    before = replace(
        reserved(),
        admission={
            "clusterQueue": "cq",
            "podSetAssignments": [{"name": "p0", "delayedTopologyRequest": "Pending", "count": 2}, {"name": "p1"}],
        },
    )
    assert changes.topology_ready(before).admission == {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "p0", "delayedTopologyRequest": "Ready", "count": 2}, {"name": "p1"}],
    }
    assert before.admission is not None
    assert before.admission["podSetAssignments"][0]["delayedTopologyRequest"] == "Pending", "a copy is changed"


@pytest.mark.parametrize("old", [status(), pending(), reserved(), delayed("Ready"), delayed(None)])
def test_nothing_changes_where_no_places_are_waited_for(old: Status) -> None:
    assert changes.topology_ready(old) is old
