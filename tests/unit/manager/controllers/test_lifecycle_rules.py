# SPDX-License-Identifier: Apache-2.0
"""Which rule of the lifecycle comes first, and rules that no other test shows (`docs/spec/engine.md §7`)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from manager.controllers.workload_decision import WorkloadDecision, decide
from manager.controllers.workload_facts import WorkloadFacts
from manager.workload import changes
from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.reasons import DeactivationCause, QuotaReservedReason, WorkloadCondition
from multikueue.core.conditions import FALSE
from multikueue.engine.decisions import Bypassed
from multikueue.engine.settings import PodsReady
from tests.unit.manager.builders import (
    KEY,
    NOW,
    admitted,
    at,
    check,
    cluster_queue,
    evicted,
    facts,
    having,
    local_queue,
    pending,
    reserved,
    status,
    with_checks,
)

HOLD, DRAIN = StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN
TIMERS = PodsReady(timeout_seconds=100, recovery_timeout_seconds=None, backoff_limit=2)


def decided(known: WorkloadFacts, old: Status, *, seconds: float = 10) -> WorkloadDecision:
    return decide(known, old, now=at(seconds), random=Random(0))


def reason_of(value: Status, kind: WorkloadCondition) -> str:
    found = value.condition(kind)
    return "" if found is None else str(found.reason)


def with_two(old: Status, first: CheckState, second: CheckState) -> Status:
    return with_checks(old, check("a", first, message="one"), check("b", second, message="two"))


TWO = facts(cluster_queue=cluster_queue(StopPolicy.NONE, "a", "b"))


def test_a_gone_owner_comes_before_everything_else() -> None:
    found = decided(facts(owner_gone=True, active=False), having(admitted(), WorkloadCondition.DEACTIVATION_TARGET))
    assert reason_of(found.status, WorkloadCondition.FINISHED) == "OwnerNotFound"
    assert not found.deactivate


def test_nothing_but_retention_touches_a_finished_workload() -> None:
    old = having(with_checks(admitted(), check("a", CheckState.REJECTED)), WorkloadCondition.FINISHED, reason="Failed")
    found = decided(facts(active=False, cluster_queue=cluster_queue(DRAIN)), old)
    assert (found.status, found.deactivate) == (old, False)


def test_a_deactivation_that_was_requested_is_carried_out_after_a_restart() -> None:
    old = having(admitted(), WorkloadCondition.DEACTIVATION_TARGET, reason="AdmissionCheck")
    found = decided(facts(cluster_queue=cluster_queue(DRAIN)), old)
    assert (found.status, found.deactivate) == (old, True)


def test_inactive_comes_before_the_checks() -> None:
    found = decided(replace(TWO, active=False), with_two(admitted(), CheckState.REJECTED, CheckState.RETRY))
    assert reason_of(found.status, WorkloadCondition.EVICTED) == "Deactivated"


def test_rejected_comes_before_retry_and_names_every_check() -> None:
    found = decided(TWO, with_two(reserved(), CheckState.RETRY, CheckState.REJECTED))
    assert found.deactivate
    assert not found.status.is_true(WorkloadCondition.EVICTED)
    both = decided(TWO, with_two(reserved(), CheckState.REJECTED, CheckState.REJECTED)).status
    target = both.condition(WorkloadCondition.DEACTIVATION_TARGET)
    assert target is not None
    assert target.message == 'AdmissionCheck in Rejected state: "a" (one), "b" (two)'


def test_retry_comes_before_a_stop_policy_and_names_every_check() -> None:
    known = replace(TWO, cluster_queue=cluster_queue(DRAIN, "a", "b"))
    found = decided(known, with_two(admitted(), CheckState.RETRY, CheckState.RETRY)).status.condition(
        WorkloadCondition.EVICTED
    )
    assert found is not None
    assert found.message == 'Evicted due to AdmissionCheck in Retry state: "a" (one), "b" (two)'


def test_a_rejection_also_ends_a_workload_that_runs() -> None:
    assert decided(TWO, with_two(admitted(), CheckState.READY, CheckState.REJECTED)).deactivate


def test_a_stop_policy_comes_before_a_timeout() -> None:
    known = facts(cluster_queue=cluster_queue(DRAIN), pods_ready=TIMERS, maximum_execution_seconds=1)
    assert reason_of(decided(known, admitted(), seconds=500).status, WorkloadCondition.EVICTED) == "ClusterQueueStopped"


def test_pods_that_are_late_come_before_the_maximum_execution_time() -> None:
    known = facts(pods_ready=TIMERS, maximum_execution_seconds=1)
    found = decided(known, admitted(), seconds=500)
    assert (reason_of(found.status, WorkloadCondition.EVICTED), found.deactivate) == ("PodsReadyTimeout", False)


def test_the_longest_pause_of_all_checks_counts_and_one_that_is_over_does_not() -> None:
    def waiting(*pauses: int) -> Status:
        checks = [
            Check(name=str(pause), state=CheckState.RETRY, last_transition_time=NOW, requeue_after_seconds=pause)
            for pause in pauses
        ]
        return with_checks(reserved(), *checks)

    assert decided(facts(), waiting(30, 90)).status.requeue_at == at(90)
    assert decided(facts(), waiting(5, 10)).status.requeue_at is None


def test_a_placement_that_is_put_off_keeps_it_from_being_admitted() -> None:
    old = with_two(reserved(), CheckState.READY, CheckState.READY)
    assert old.admission is not None
    assignment = {**old.admission["podSetAssignments"][0], "delayedTopologyRequest": "Pending"}
    old = replace(old, admission={**old.admission, "podSetAssignments": [assignment]})
    assert reason_of(decided(TWO, old).status, WorkloadCondition.ADMITTED) == "PendingDelayedTopologyRequests"


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(facts(local_queue=None), id="its LocalQueue is gone"),
        pytest.param(facts(local_queue=local_queue(terminating=True)), id="its LocalQueue is being deleted"),
        pytest.param(facts(cluster_queue=cluster_queue(terminating=True)), id="its ClusterQueue is being deleted"),
        pytest.param(facts(cluster_queue=cluster_queue(active=False)), id="a flavor or check of its queue is missing"),
        pytest.param(facts(gated_by=("x",)), id="a gate was added"),
    ],
)
def test_an_admitted_workload_keeps_running_when(known: WorkloadFacts) -> None:
    old = admitted()
    assert decided(known, old).status is old


def test_the_count_of_late_starts_outlives_a_start_and_ends_with_a_deactivation() -> None:
    old = replace(having(admitted(), WorkloadCondition.PODS_READY), requeue_count=2)
    assert decided(facts(pods_ready=TIMERS), old).status.requeue_count == 2
    assert decided(facts(pods_ready=TIMERS, active=False), old).status.requeue_count is None


def test_a_lost_pod_has_no_deadline_without_a_recovery_timeout() -> None:
    old = having(admitted(), WorkloadCondition.PODS_READY, reason="WaitForRecovery", value=FALSE)
    assert decided(facts(pods_ready=TIMERS), old, seconds=10**6).status is old


def test_a_late_start_never_moves_the_requeue_time_to_earlier() -> None:
    old = replace(admitted(), requeue_at=at(10**4))
    assert decided(facts(pods_ready=TIMERS), old, seconds=100).status.requeue_at == at(10**4)


def test_the_second_recovery_of_a_deactivated_workload_asks_for_its_user() -> None:
    old = evicted(pending("Deactivated", "The workload is deactivated"), "DeactivatedDueToRequeuingLimitExceeded")
    old = having(old, WorkloadCondition.REQUEUED, reason="DeactivatedDueToRequeuingLimitExceeded", value=FALSE)
    assert decided(facts(active=False), old).status is old
    assert reason_of(decided(facts(), old).status, WorkloadCondition.REQUEUED) == "Reactivated"


@pytest.mark.parametrize("cause", list(DeactivationCause))
def test_every_cause_of_a_deactivation_names_the_eviction(cause: DeactivationCause) -> None:
    old = changes.target_deactivation(admitted(), cause=cause, message="why", now=NOW)
    found = decided(facts(active=False), old).status
    assert reason_of(found, WorkloadCondition.EVICTED) == f"DeactivatedDueTo{cause}"
    assert found.condition(WorkloadCondition.DEACTIVATION_TARGET) is None


_BYPASSED = Bypassed(workload=KEY, cluster_queue="cq", reason=QuotaReservedReason.WAITING_FOR_QUOTA, message="equal")
_REASONS: list[tuple[str, dict[str, object], str]] = [
    ("it is deactivated", {"active": False}, "The workload is deactivated"),
    ("it has no LocalQueue", {"local_queue": None}, "LocalQueue lq doesn't exist"),
    ("its LocalQueue is stopped", {"local_queue": local_queue(HOLD)}, "LocalQueue lq is inactive"),
    ("it has no ClusterQueue", {"cluster_queue": None}, "ClusterQueue cq doesn't exist"),
    ("its ClusterQueue is not active", {"cluster_queue": cluster_queue(active=False)}, "ClusterQueue cq is inactive"),
    ("it is gated", {"gated_by": ("a",)}, "Admission is gated by: a"),
    ("an equal one does not fit", {"bypassed": _BYPASSED}, "equal"),
]


@pytest.mark.parametrize("place", range(len(_REASONS)), ids=[name for name, _, _ in _REASONS])
def test_the_first_of_all_reasons_is_shown(place: int) -> None:
    """Every later reason holds as well, as far as it says something of another field."""
    known: dict[str, object] = {}
    for _, more, _ in reversed(_REASONS[place:]):
        known |= more
    found = decided(facts(**known), status()).status.condition(WorkloadCondition.QUOTA_RESERVED)
    assert found is not None
    assert found.message == _REASONS[place][2]


def test_a_workload_on_hold_keeps_that_reason() -> None:
    old = pending("OnHold", "held by its owner")
    assert decided(facts(local_queue=None), old).status is old
