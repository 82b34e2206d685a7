# SPDX-License-Identifier: Apache-2.0
"""For how long the assignment of a workload that ended stays, and with it the Job on the worker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import RecordFailure, RemoveAssignment, Rule
from multikueue.dispatch.hub.facts import DispatchedWorkload, DispatchSettings
from multikueue.dispatch.hub.failed_jobs import READ_SECONDS, KeptFailures
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


def read(*, seconds: float = 1, read_for: float = 900.0, **changes: Any) -> DispatchedWorkload:
    """A workload that ended on w1 some seconds ago, whose logs are read."""
    finished_at = NOW - timedelta(seconds=seconds)
    return running(**{"finished": True, "finished_at": finished_at, "logs_read_for": read_for, **changes})


def test_a_job_whose_logs_are_read_stays_for_half_a_minute_at_most() -> None:
    made = plan(facts(read(), ended(), seen("w2")), NOW)
    assert (made.rule, made.actions) == (Rule.FINISHED_OR_NO_QUOTA, (RemoveAssignment("w2"),))
    assert made.requeue_after == READ_SECONDS - 1
    over = plan(facts(read(seconds=READ_SECONDS), ended()), NOW)
    assert (over.actions, over.requeue_after) == (REMOVED, None), "however long they are requested"


def test_it_goes_when_nobody_reads_its_logs_any_more() -> None:
    assert plan(facts(read(read_for=4.0), ended()), NOW).requeue_after == 4.0
    assert plan(facts(read(read_for=0.0), ended()), NOW).actions == REMOVED


def test_readers_of_a_failed_job_shorten_no_time_and_have_their_own_where_none_is_kept() -> None:
    failed_now: dict[str, Any] = {"failed_at": NOW - timedelta(seconds=1)}
    assert plan(facts(read(**failed_now), ended(reason="Failed")), NOW).requeue_after == 599.0
    none = DispatchSettings(keep_failed_jobs=timedelta())
    for superseded, settings in ((False, none), (True, DispatchSettings())):
        kept = plan(facts(read(**failed_now, superseded=superseded), ended(reason="Failed"), settings=settings), NOW)
        assert (kept.actions, kept.requeue_after) == ((), READ_SECONDS - 1)


@pytest.mark.parametrize(
    ("observation", "changes"),
    [
        (granted(), {}),
        (ended(epoch=0, status_epoch=0), {}),
        (ended(status_epoch=0), {}),
        (ended(intent=Intent.RESERVE), {}),
        (granted(phase=AssignmentPhase.EVICTED), {}),
        (ended(), {"deleting": True}),
        (ended(), {"finished": False, "quota_reserved": False}),
    ],
    ids=["runs", "older epoch", "status of an older epoch", "was not granted", "evicted", "deleted", "evicted here"],
)
def test_readers_keep_nothing_that_may_run_or_is_deleted(observation: Any, changes: Any) -> None:
    assert plan(facts(read(**changes), observation), NOW).actions == REMOVED


def test_readers_keep_nothing_on_a_cluster_that_is_left_and_nothing_longer_for_a_clock_that_is_ahead() -> None:
    for where in (cluster("w1", draining=True), cluster("w1", exists=False), cluster("other")):
        assert plan(facts(read(), ended(), clusters=(where,)), NOW).actions == REMOVED
    assert plan(facts(read(seconds=-300), ended()), NOW).requeue_after == READ_SECONDS


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
