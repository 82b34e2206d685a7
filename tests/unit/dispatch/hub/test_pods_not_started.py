# SPDX-License-Identifier: Apache-2.0
"""A granted workload whose pods do not start: what is shown, and when it leaves the cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.conditions import FALSE, Condition
from multikueue.dispatch.hub.actions import DispatchPlan, RemoveAssignment, Rule, StartUpdate, SyncStatus
from multikueue.dispatch.hub.facts import DispatchSettings, Observation
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.protocol.job_problems import StartProblem
from tests.unit.dispatch.builders import NOW, cluster, ended, facts, granted, minutes_ago, running, seen

PROBLEM = StartProblem("FailedCreate", 'serviceaccount "x" not found')
TEXT = 'Worker cluster "w1": the pods do not start: serviceaccount "x" not found'
STUCK = granted(start_problem=PROBLEM)


def shown(minutes: float, message: str = TEXT, reason: str = "FailedCreate") -> Condition:
    """The condition of the Workload since some minutes."""
    return Condition(
        type="PodsStarted", status=FALSE, reason=reason, message=message, last_transition_time=minutes_ago(minutes)
    )


def planned(*observations: Observation, condition: Condition | None = None, timeout: float = 5.0) -> DispatchPlan:
    """The plan for a workload on w1."""
    settings = DispatchSettings(pods_start_timeout=timedelta(minutes=timeout))
    return plan(facts(running(not_started=condition), *observations, settings=settings), NOW)


def test_the_reason_of_the_worker_is_shown_and_the_time_begins() -> None:
    found = planned(STUCK)
    assert found.rule is Rule.GRANTED
    assert found.pods_started == StartUpdate("FailedCreate", TEXT)
    assert found.writes_status
    assert found.requeue_after == 300.0
    assert SyncStatus("w1") in found.actions


def test_what_is_shown_already_is_not_written_again() -> None:
    found = planned(STUCK, condition=shown(3))
    assert found.pods_started is None
    assert found.requeue_after == 120.0


def test_another_reason_is_shown_and_the_timeout_continues() -> None:
    found = planned(granted(start_problem=StartProblem("Unschedulable", "no node")), condition=shown(3))
    assert found.pods_started == StartUpdate("Unschedulable", 'Worker cluster "w1": the pods do not start: no node')
    assert found.requeue_after == 120.0


def test_the_condition_goes_when_the_pods_start() -> None:
    found = planned(granted(), condition=shown(3))
    assert found.pods_started == StartUpdate()
    assert found.requeue_after is None


def test_the_place_is_given_back_after_the_timeout_and_the_cluster_is_avoided() -> None:
    found = planned(STUCK, seen("w2"), condition=shown(5))
    assert found.rule is Rule.PODS_NOT_STARTED
    assert found.check is not None
    assert found.check.state is CheckState.RETRY
    assert found.check.message == (
        'Worker cluster "w1" did not start the pods: FailedCreate: serviceaccount "x" not found, '
        "resetting for re-dispatch"
    )
    assert (found.avoid, found.avoid_for) == ("w1", timedelta(minutes=10))
    assert found.actions == (RemoveAssignment("w2"),)
    assert [event.warning for event in found.events] == [True]


def test_with_a_timeout_of_zero_it_is_never_removed() -> None:
    found = planned(STUCK, condition=shown(100_000), timeout=0)
    assert (found.rule, found.requeue_after) == (Rule.GRANTED, None)


def test_the_time_of_a_worker_counts_for_nothing() -> None:
    long_ago = granted(start_problem=replace(PROBLEM, since=NOW - timedelta(days=365_00)))
    assert planned(long_ago).requeue_after == 300.0
    far_ahead = granted(start_problem=replace(PROBLEM, since=NOW + timedelta(days=365_00)))
    assert planned(far_ahead, condition=shown(5)).rule is Rule.PODS_NOT_STARTED


@pytest.mark.parametrize(
    "observation",
    [
        pytest.param(replace(STUCK, status_epoch=0), id="of an older epoch"),
        pytest.param(replace(STUCK, phase=AssignmentPhase.PENDING), id="of a job that is not created yet"),
        pytest.param(ended(start_problem=PROBLEM), id="of a job that has ended"),
    ],
)
def test_a_report_that_is_not_about_the_running_job_is_ignored(observation: Observation) -> None:
    found = planned(observation, condition=shown(60))
    assert found.rule is not Rule.PODS_NOT_STARTED
    assert found.pods_started is None


def test_a_cluster_that_is_lost_is_waited_for_and_not_blamed() -> None:
    away = (cluster("w1", lost_minutes=1), cluster("w2"))
    found = plan(facts(running(not_started=shown(60)), STUCK, clusters=away), NOW)
    assert found.rule is Rule.LOST


def test_a_workload_that_has_lost_its_check_shows_nothing() -> None:
    found = plan(facts(replace(running(), check=None), STUCK, clusters=()), NOW)
    assert found.rule is Rule.GRANTED
    assert found.pods_started is None
