# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a Workload, rule by rule (docs/spec/engine.md §7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manager.controllers.workload_facts import WorkloadFacts
from manager.workload.status import Status
from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import FALSE
from multikueue.engine.settings import PodsReady
from tests.unit.manager.builders import (
    admitted,
    at,
    check,
    cluster_queue,
    decided,
    evicted,
    facts,
    having,
    local_queue,
    pending,
    reserved,
    shown,
    status,
    with_checks,
)

HOLD, DRAIN = StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN
READY_SETTINGS = PodsReady(timeout_seconds=100, recovery_timeout_seconds=50, backoff_limit=2)


@pytest.mark.parametrize(
    ("known", "old", "want"),
    [
        pytest.param(
            facts(cluster_queue=cluster_queue(DRAIN)),
            admitted(),
            ("True", "ClusterQueueStopped", "The ClusterQueue is stopped"),
            id="a drained ClusterQueue evicts",
        ),
        pytest.param(
            facts(local_queue=local_queue(DRAIN)),
            admitted(),
            ("True", "LocalQueueStopped", "The LocalQueue is stopped"),
            id="a drained LocalQueue evicts",
        ),
        pytest.param(
            facts(cluster_queue=cluster_queue(StopPolicy.NONE, "mk")),
            with_checks(admitted(), check("mk", CheckState.RETRY, message="cluster lost")),
            ("True", "AdmissionCheck", 'Evicted due to AdmissionCheck in Retry state: "mk" (cluster lost)'),
            id="a check in Retry evicts",
        ),
        pytest.param(
            facts(claims_beyond="6 gpus are claimed"),
            admitted(),
            ("True", "DeviceClaimsChanged", "6 gpus are claimed"),
            id="more devices than quota is held for evict",
        ),
        pytest.param(
            facts(claims_beyond="6 gpus are claimed"),
            reserved(),
            ("True", "DeviceClaimsChanged", "6 gpus are claimed"),
            id="also before the checks are ready",
        ),
        pytest.param(
            facts(claims_beyond="6 gpus are claimed", cluster_queue=cluster_queue(DRAIN)),
            admitted(),
            ("True", "DeviceClaimsChanged", "6 gpus are claimed"),
            id="also of a drained queue",
        ),
        pytest.param(
            facts(claims_beyond="6 gpus are claimed"),
            evicted(admitted(), "Preempted"),
            ("True", "Preempted", "go"),
            id="but not twice",
        ),
        pytest.param(
            facts(active=False), admitted(), ("True", "Deactivated", "The workload is deactivated"), id="inactive"
        ),
        pytest.param(
            facts(cluster_queue=cluster_queue(DRAIN)),
            evicted(admitted(), "Preempted"),
            ("True", "Preempted", "go"),
            id="an eviction under way keeps its reason",
        ),
    ],
)
def test_evictions(known: WorkloadFacts, old: Status, want: tuple[str, str, str]) -> None:
    decision = decided(known, old)
    assert shown(decision.status, WorkloadCondition.EVICTED) == want
    assert decision.status.is_true(WorkloadCondition.QUOTA_RESERVED), "quota is held until the job has stopped"


def test_a_workload_without_quota_is_not_evicted_for_what_it_claims() -> None:
    old = pending()
    assert decided(facts(claims_beyond="6 gpus are claimed"), old).status is old


def test_a_workload_that_claims_more_devices_waits_again_at_once() -> None:
    known = facts(claims_beyond="6 gpus are claimed")
    gone = facts(runs_on_workers_only=True, may_run_elsewhere=False)
    released = decided(gone, decided(known, admitted()).status).status
    assert not released.is_true(WorkloadCondition.QUOTA_RESERVED)
    assert shown(released, WorkloadCondition.REQUEUED) == ("True", "DeviceClaimsChanged", "6 gpus are claimed")
    assert released.requeue_at is None
    assert [(each.reason, each.count) for each in released.evictions] == [("DeviceClaimsChanged", 1)]


@pytest.mark.parametrize(
    ("reason", "known", "want"),
    [
        pytest.param("Deactivated", facts(), "Reactivated", id="activated again"),
        pytest.param(
            "DeactivatedDueToAdmissionCheck", facts(), "Reactivated", id="activated again after Kueue deactivated it"
        ),
        pytest.param("PodsReadyTimeout", facts(), "BackoffFinished", id="the back-off is over"),
        pytest.param("AdmissionCheck", facts(), "BackoffFinished", id="the pause that a check asked for is over"),
        pytest.param("LocalQueueStopped", facts(), "LocalQueueRestarted", id="the LocalQueue runs again"),
        pytest.param("ClusterQueueStopped", facts(), "ClusterQueueRestarted", id="the ClusterQueue runs again"),
        pytest.param(
            "ClusterQueueStopped",
            facts(cluster_queue=cluster_queue(HOLD)),
            "ClusterQueueStopped",
            id="the ClusterQueue is still stopped",
        ),
    ],
)
def test_requeue(reason: str, known: WorkloadFacts, want: str) -> None:
    old = having(pending(), WorkloadCondition.REQUEUED, reason=reason, value=FALSE)
    found = decided(known, old).status.condition(WorkloadCondition.REQUEUED)
    assert found is not None
    assert (found.status, found.reason) == ("False" if want == reason else "True", want)


def test_a_back_off_that_runs_is_waited_for_and_one_that_is_over_is_forgotten() -> None:
    old = replace(
        having(pending(), WorkloadCondition.REQUEUED, reason="PodsReadyTimeout", value=FALSE), requeue_at=at(60)
    )
    waiting = decided(facts(), old, seconds=20)
    assert waiting.revisit == 40
    assert waiting.status is old
    over = decided(facts(), old, seconds=60)
    assert over.status.requeue_at is None
    assert over.status.is_true(WorkloadCondition.REQUEUED)


def test_a_check_that_asks_for_a_pause_moves_the_requeue_time_and_never_to_earlier() -> None:
    known = facts(cluster_queue=cluster_queue(StopPolicy.NONE, "mk"))
    old = with_checks(reserved(), check("mk", CheckState.RETRY, requeue_after_seconds=30))
    assert decided(known, old).status.requeue_at == at(30)
    later = replace(old, requeue_at=at(100))
    assert decided(known, later).status.requeue_at == at(100)


def test_a_rejection_deactivates() -> None:
    known = facts(cluster_queue=cluster_queue(StopPolicy.NONE, "mk"))
    decision = decided(known, with_checks(reserved(), check("mk", CheckState.REJECTED, message="never")))
    assert decision.deactivate
    assert shown(decision.status, WorkloadCondition.DEACTIVATION_TARGET) == (
        "True",
        "AdmissionCheck",
        'AdmissionCheck in Rejected state: "mk" (never)',
    )
    assert decision.notes[0].message == 'Deactivated due to AdmissionCheck in Rejected state: "mk" (never)'
    inactive = decided(replace(known, active=False), decision.status)
    assert shown(inactive.status, WorkloadCondition.EVICTED) == (
        "True",
        "DeactivatedDueToAdmissionCheck",
        'The workload is deactivated due to AdmissionCheck in Rejected state: "mk" (never)',
    )


def test_all_checks_ready_admit() -> None:
    known = facts(cluster_queue=cluster_queue(StopPolicy.NONE, "mk"))
    decision = decided(known, with_checks(reserved(), check("mk", CheckState.READY)))
    assert shown(decision.status, WorkloadCondition.ADMITTED) == ("True", "Admitted", "The workload is admitted")


def test_a_new_check_of_the_queue_is_listed_and_takes_the_admission_back() -> None:
    known = facts(cluster_queue=cluster_queue(StopPolicy.NONE, "mk"))
    decision = decided(known, admitted())
    assert [item.name for item in decision.status.checks] == ["mk"]
    assert shown(decision.status, WorkloadCondition.ADMITTED) == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )


@pytest.mark.parametrize(
    ("old", "seconds", "want"),
    [
        pytest.param(admitted(), 99, None, id="in time"),
        pytest.param(admitted(), 100, "WaitForStart", id="never ready within the timeout"),
        pytest.param(having(admitted(), WorkloadCondition.PODS_READY), 1000, None, id="ready"),
        pytest.param(
            having(admitted(), WorkloadCondition.PODS_READY, reason="WaitForRecovery", value=FALSE, since=200),
            249,
            None,
            id="lost a pod a moment ago",
        ),
        pytest.param(
            having(admitted(), WorkloadCondition.PODS_READY, reason="WaitForRecovery", value=FALSE, since=200),
            250,
            "WaitForRecovery",
            id="lost a pod for too long",
        ),
        pytest.param(evicted(admitted(), "Preempted"), 1000, None, id="evicted already"),
    ],
)
def test_pods_that_are_not_ready_in_time(old: Status, seconds: float, want: str | None) -> None:
    decision = decided(facts(pods_ready=READY_SETTINGS), old, seconds=seconds)
    if want is None:
        assert decision.status is old
        return
    assert shown(decision.status, WorkloadCondition.EVICTED) == (
        "True",
        "PodsReadyTimeout",
        "Exceeded the PodsReady timeout team/w",
    )
    assert decision.status.evictions[0].underlying_cause == want
    assert decision.status.requeue_count == 1
    assert decision.status.requeue_at is not None
    assert 60 <= (decision.status.requeue_at - at(seconds)).total_seconds() < 60.1


@pytest.mark.parametrize("active", [True, False], ids=["evicted", "deactivated"])
def test_quota_of_a_job_that_only_workers_run_is_released_when_it_runs_nowhere(active: bool) -> None:
    known = facts(active=active, runs_on_workers_only=True, may_run_elsewhere=True)
    waits = decided(known, evicted(admitted(), "Preempted"))
    assert waits.status.is_true(WorkloadCondition.QUOTA_RESERVED)
    assert waits.revisit == 1.0
    released = decided(replace(known, may_run_elsewhere=False), evicted(admitted(), "Preempted")).status
    assert not released.is_true(WorkloadCondition.QUOTA_RESERVED)
    assert released.admission is None
    of_a_job_here = decided(facts(active=active), evicted(admitted(), "Preempted")).status
    assert of_a_job_here.is_true(WorkloadCondition.QUOTA_RESERVED), "the job reconciler does it"


def test_the_back_off_doubles_and_ends_in_deactivation() -> None:
    second = decided(facts(pods_ready=READY_SETTINGS), replace(admitted(), requeue_count=1), seconds=100)
    assert second.status.requeue_at is not None
    assert 120 <= (second.status.requeue_at - at(100)).total_seconds() < 120.1
    third = decided(facts(pods_ready=READY_SETTINGS), replace(admitted(), requeue_count=2), seconds=100)
    assert third.deactivate
    assert shown(third.status, WorkloadCondition.DEACTIVATION_TARGET) == (
        "True",
        "RequeuingLimitExceeded",
        "exceeding the maximum number of re-queuing retries",
    )


def test_the_time_it_may_run_counts_over_all_admissions() -> None:
    known = facts(maximum_execution_seconds=100)
    old = replace(admitted(), past_execution_seconds=70)
    assert decided(known, old, seconds=10).revisit == 20
    over = decided(known, old, seconds=30)
    assert over.deactivate
    assert over.status.past_execution_seconds is None
    assert over.notes[0].reason == "MaximumExecutionTimeExceeded"
    assert over.notes[0].message.startswith("The maximum execution time (")


@pytest.mark.parametrize(
    ("seconds", "want_delete", "want_revisit"),
    [
        pytest.param(59, False, 1.0, id="is kept for a while"),
        pytest.param(60, True, None, id="is deleted then"),
    ],
)
def test_a_finished_workload(seconds: float, want_delete: bool, want_revisit: float | None) -> None:
    old = having(admitted(), WorkloadCondition.FINISHED, reason="Succeeded")
    decision = decided(facts(retention_seconds=60), old, seconds=seconds)
    assert (decision.delete, decision.revisit) == (want_delete, want_revisit)
    assert decision.status is old


@pytest.mark.parametrize(
    ("reason", "seconds", "want_delete", "want_revisit"),
    [
        pytest.param("DeactivatedDueToAdmissionCheck", 59, False, 1.0, id="is kept for a while"),
        pytest.param("DeactivatedDueToAdmissionCheck", 60, True, None, id="loses its job then"),
        pytest.param("Deactivated", 60, False, None, id="keeps its job when its user did it"),
        pytest.param("Preempted", 60, False, None, id="keeps its job when it was evicted for something else"),
    ],
)
def test_a_deactivated_workload(reason: str, seconds: float, want_delete: bool, want_revisit: float | None) -> None:
    old = evicted(pending("Deactivated", "The workload is deactivated"), reason)
    decision = decided(facts(active=False, deactivated_retention_seconds=60), old, seconds=seconds)
    assert (decision.delete_job, decision.revisit, decision.delete) == (want_delete, want_revisit, False)
    kept = decided(facts(active=False), old, seconds=seconds)
    assert (kept.delete_job, kept.revisit) == (False, None)


def test_a_workload_whose_job_is_gone_is_finished() -> None:
    decision = decided(facts(owner_gone=True), admitted())
    found = decision.status.condition(WorkloadCondition.FINISHED)
    assert found is not None
    assert found.reason == "OwnerNotFound"
    assert "kubectl delete workloads.kueue.x-k8s.io" in found.message
    assert [note.reason for note in decision.notes] == ["OwnerNotFound"]
    assert decided(facts(owner_gone=True, deleting=True), admitted()).notes == (), "it goes with its job"
    assert not decision.release


def test_a_finished_workload_whose_job_is_gone_keeps_no_finalizer() -> None:
    finished = decided(facts(owner_gone=True), admitted()).status
    assert decided(facts(owner_gone=True), finished).release
    assert not decided(facts(), finished).release


def test_a_workload_that_never_had_a_job_lets_itself_be_deleted() -> None:
    assert decided(facts(deleting=True, owned=False), pending()).release
    assert not decided(facts(deleting=True, owned=True), pending()).release
    assert not decided(facts(deleting=False, owned=False), pending()).release


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(status(), id="fresh"),
        pytest.param(pending(), id="waiting"),
        pytest.param(reserved(), id="reserved"),
        pytest.param(admitted(), id="admitted"),
        pytest.param(evicted(admitted(), "Preempted"), id="evicted"),
        pytest.param(
            having(pending(), WorkloadCondition.REQUEUED, reason="AdmissionCheck", value=FALSE), id="requeued"
        ),
        pytest.param(
            with_checks(admitted(), check("mk", CheckState.RETRY, requeue_after_seconds=30)), id="with a check in Retry"
        ),
    ],
)
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="all well"),
        pytest.param({"active": False}, id="inactive"),
        pytest.param({"local_queue": None, "cluster_queue": None}, id="queue gone"),
        pytest.param({"cluster_queue": cluster_queue(DRAIN, "mk")}, id="queue drained"),
        pytest.param({"pods_ready": READY_SETTINGS, "maximum_execution_seconds": 5}, id="time is up"),
        pytest.param({"gated_by": ("a",)}, id="gated"),
    ],
)
def test_deciding_again_on_the_result_changes_nothing(old: Status, changes: dict[str, Any]) -> None:
    known = facts(**changes)
    once = decided(known, old, seconds=10).status
    twice = decided(known, once, seconds=10).status
    thrice = decided(known, twice, seconds=10).status
    assert thrice.wire() == twice.wire()


def test_the_first_reason_to_wait_is_written_together_with_the_checks() -> None:
    known = facts(created=at(9), cluster_queue=cluster_queue(HOLD, "mk"))
    once = decided(known, status()).status
    assert [item.name for item in once.checks] == ["mk"]
    assert decided(known, once).status is once


def test_a_check_that_an_eviction_reset_loses_updates_that_outlived_it() -> None:
    message = "Reset to Pending after eviction. Previously: Ready"
    known = facts(cluster_queue=cluster_queue(StopPolicy.NONE, "mk"))
    left = with_checks(pending(), check("mk", message=message, retry_count=3, pod_set_updates=({"name": "main"},)))
    (found,) = decided(known, left).status.checks
    assert (found.pod_set_updates, found.retry_count) == ((), None)
    again = with_checks(
        pending(), check("mk", message="Reset to Pending after eviction. Previously: Retry", retry_count=3)
    )
    assert decided(known, again).status.checks == again.checks
