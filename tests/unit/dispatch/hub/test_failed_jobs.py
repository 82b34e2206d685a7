# SPDX-License-Identifier: Apache-2.0
"""For how long the assignment of a failed workload stays, and with it the Job on the worker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import RecordFailure, RemoveAssignment, Rule
from multikueue.dispatch.hub.facts import DispatchedWorkload, DispatchSettings
from multikueue.dispatch.hub.failed_jobs import KeptFailures
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.protocol.job_problems import JobFailure
from tests.unit.dispatch.builders import NOW, cluster, ended, facts, granted, minutes_ago, running, seen

FAILURE = JobFailure(problem="no pods")
REMOVED = (RemoveAssignment("w1"),)


def failed(*, minutes: float = 1, **changes: Any) -> DispatchedWorkload:
    """A workload that failed on w1 some minutes ago."""
    return running(finished=True, failed_at=minutes_ago(minutes), **changes)


def test_the_assignment_of_a_failed_job_stays_for_ten_minutes() -> None:
    made = plan(facts(failed(), ended(reason="Failed")), NOW)
    assert (made.rule, made.actions, made.requeue_after) == (Rule.FINISHED_OR_NO_QUOTA, (), 540.0)
    over = plan(facts(failed(minutes=10), ended(reason="Failed")), NOW)
    assert (over.actions, over.requeue_after) == (REMOVED, None)


def test_the_failure_is_recorded_once_it_is_reported_even_if_nothing_is_kept() -> None:
    reported = ended(reason="Failed", failure=FAILURE)
    assert plan(facts(failed(), reported), NOW).actions == (RecordFailure("w1"),)
    none = DispatchSettings(keep_failed_jobs=timedelta())
    assert plan(facts(failed(), reported, settings=none), NOW).actions == (RecordFailure("w1"), *REMOVED)


def test_other_assignments_are_removed() -> None:
    assert plan(facts(failed(), ended(reason="Failed"), seen("w2")), NOW).actions == (RemoveAssignment("w2"),)


@pytest.mark.parametrize(
    "observation",
    [
        granted(),
        ended(reason="Succeeded"),
        ended(reason="Failed", epoch=0, status_epoch=0),
        ended(reason="Failed", status_epoch=0),
        ended(reason="Failed", intent=Intent.RESERVE),
        granted(phase=AssignmentPhase.EVICTED),
    ],
    ids=["runs", "succeeded", "older epoch", "status of an older epoch", "was not granted", "evicted"],
)
def test_nothing_is_kept_that_did_not_report_the_end_of_this_dispatch(observation: Any) -> None:
    """Its quota is free: a tenant who calls their Job failed gets no pods outside of it."""
    assert plan(facts(failed(), observation), NOW).actions == REMOVED


@pytest.mark.parametrize(
    "where",
    [cluster("w1", draining=True), cluster("w1", exists=False), cluster("other")],
    ids=["drained", "removed", "unknown"],
)
def test_a_cluster_that_is_left_keeps_nothing(where: Any) -> None:
    assert plan(facts(failed(), ended(reason="Failed"), clusters=(where,)), NOW).actions == REMOVED


def test_nothing_is_kept_of_a_workload_that_is_deleted_or_has_succeeded() -> None:
    deleted = plan(facts(failed(deleting=True), ended(reason="Failed")), NOW)
    assert (deleted.rule, deleted.actions) == (Rule.GONE, REMOVED)
    assert plan(facts(running(finished=True), ended()), NOW).actions == REMOVED


def test_a_time_in_the_future_keeps_nothing_longer_than_configured() -> None:
    ahead = replace(failed(), failed_at=NOW + timedelta(days=300))
    assert plan(facts(ahead, ended(reason="Failed")), NOW).requeue_after == 600.0


def test_one_that_is_superseded_is_removed_at_once_and_recorded_all_the_same() -> None:
    reported = ended(reason="Failed", failure=FAILURE)
    assert plan(facts(failed(superseded=True), reported), NOW).actions == (RecordFailure("w1"), *REMOVED)


def test_of_a_namespace_only_the_newest_are_kept() -> None:
    kept = KeptFailures(2)
    old, middle, new, elsewhere = Key("a", "old"), Key("a", "middle"), Key("a", "new"), Key("b", "x")
    assert kept.settle(middle, minutes_ago(2)) == []
    assert kept.settle(elsewhere, minutes_ago(9)) == []
    assert kept.settle(new, minutes_ago(1)) == []
    # One that failed earlier and is seen later, as after a restart.
    assert kept.settle(old, minutes_ago(3)) == [old]
    assert [kept.is_superseded(key) for key in (old, middle, new, elsewhere)] == [True, False, False, False]
    assert kept.settle(Key("a", "newest"), NOW) == [old, middle]
    for removed in (old, middle):
        kept.settle(removed, None)
    assert not kept.is_superseded(middle)
    assert kept.settle(Key("a", "once more"), NOW) == [new]


def test_a_workload_that_is_counted_already_wakes_no_other_one() -> None:
    kept = KeptFailures(1)
    kept.settle(Key("a", "one"), minutes_ago(2))
    assert kept.settle(Key("a", "two"), minutes_ago(1)) == [Key("a", "one")]
    assert kept.settle(Key("a", "two"), minutes_ago(1)) == []
