# SPDX-License-Identifier: Apache-2.0
"""A workload that is to stop (docs/spec/multikueue.md §1.5, rule 4): its quota is held until nothing runs."""

from __future__ import annotations

from typing import Any

from multikueue.api.constants import CheckState, PartitionPolicy
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.hub.actions import DeclareStopped, RemoveAssignment, Rule, SetIntent, SyncStatus
from multikueue.dispatch.hub.plan import plan
from tests.unit.dispatch.builders import NOW, cluster, ended, facts, granted, running, seen, workload


def test_the_granted_one_is_asked_to_stop_and_the_others_are_removed() -> None:
    found = plan(facts(workload(stopping=True, epoch=2), granted("w1"), seen("w2")), NOW)
    assert found.rule is Rule.STOPPING
    assert set(found.actions) == {RemoveAssignment("w2"), SetIntent("w1", Intent.EVICT), SyncStatus("w1")}


def test_one_that_is_deleted_while_its_job_stays_stops_as_if_it_was_evicted() -> None:
    found = plan(facts(workload(deleting=True, stopping=True), granted("w1"), seen("w2")), NOW)
    assert found.rule is Rule.STOPPING
    assert set(found.actions) == {RemoveAssignment("w2"), SetIntent("w1", Intent.EVICT), SyncStatus("w1")}


def test_while_it_stops_its_status_is_synced() -> None:
    found = plan(facts(workload(stopping=True, epoch=2), granted(intent=Intent.EVICT)), NOW)
    assert found.actions == (SyncStatus("w1"),)


def test_the_end_of_an_older_remote_job_on_a_cluster_that_came_back_is_not_its_end() -> None:
    stopped = granted("w2", AssignmentPhase.EVICTED, epoch=2, status_epoch=2, job_status={"active": 0})
    found = plan(facts(workload(stopping=True, epoch=3), ended("w1"), stopped), NOW)
    assert found.rule is Rule.STOPPING
    assert found.finish is None
    assert set(found.actions) == {RemoveAssignment("w1"), SyncStatus("w2")}


def test_its_last_status_is_synced_so_that_quota_is_freed() -> None:
    stopped = granted(phase=AssignmentPhase.EVICTED, intent=Intent.EVICT, job_status={"active": 0})
    found = plan(facts(workload(stopping=True, epoch=2), stopped), NOW)
    assert found.actions == (SyncStatus("w1"),)


def test_one_that_never_began_counts_as_stopped() -> None:
    never = granted(phase=AssignmentPhase.EVICTED, intent=Intent.EVICT, job_status=None)
    assert plan(facts(workload(stopping=True, epoch=2), never), NOW).actions == (DeclareStopped(),)


def test_a_workload_that_was_nowhere_counts_as_stopped() -> None:
    found = plan(facts(workload(stopping=True, epoch=2), seen("w1"), seen("w2")), NOW)
    assert set(found.actions) == {RemoveAssignment("w1"), RemoveAssignment("w2"), DeclareStopped()}


def test_a_cluster_that_is_away_is_asked_to_stop_and_waited_for() -> None:
    away = (cluster("w1", lost_minutes=5), cluster("w2"))
    found = plan(facts(workload(stopping=True, epoch=2), granted(), clusters=away), NOW)
    assert SetIntent("w1", Intent.EVICT) in found.actions
    assert found.requeue_after == 600


def test_a_cluster_that_is_away_for_long_does_not_hold_quota() -> None:
    away = (cluster("w1", lost_minutes=15), cluster("w2"))
    found = plan(facts(workload(stopping=True, epoch=2), granted(intent=Intent.EVICT), clusters=away), NOW)
    assert found.actions == (DeclareStopped(), RemoveAssignment("w1"))


def test_a_cluster_out_of_the_config_is_asked_to_stop_as_long_as_it_is_connected() -> None:
    given = facts(
        workload(stopping=True, epoch=2),
        granted(),
        clusters=(cluster("w2"),),
        others={"w1": cluster("w1", lost_minutes=60, agent_lost_since=None)},
    )
    found = plan(given, NOW)
    assert found.actions == (SetIntent("w1", Intent.EVICT), SyncStatus("w1"))
    assert found.requeue_after == 40, "its connection is checked again: no watch reports a change"


def test_keep_holds_quota_as_long_as_the_cluster_may_run_it() -> None:
    given = facts(
        workload(stopping=True, epoch=2, partition_policy=PartitionPolicy.KEEP),
        granted(intent=Intent.EVICT),
        clusters=(cluster("w1", lost_minutes=9999),),
    )
    assert plan(given, NOW).actions == (SyncStatus("w1"),)


def test_one_asked_to_stop_is_not_asked_to_run_again() -> None:
    assert plan(facts(running(), granted(intent=Intent.EVICT)), NOW).actions == (SyncStatus("w1"),)


FORMER: dict[str, Any] = {"ends_of_former_pods": frozenset({"w1"})}


def test_the_end_of_pods_that_others_have_replaced_ends_nothing_and_the_others_run_in_another_epoch() -> None:
    found = plan(facts(running(**FORMER), ended()), NOW)
    assert (found.rule, found.finish) == (Rule.REMOTE_OUT_OF_SYNC, None)
    assert found.check is not None
    assert (found.check.state, found.avoid) == (CheckState.RETRY, "")
    stopping = plan(facts(workload(stopping=True, **FORMER), ended(intent=Intent.EVICT)), NOW)
    assert (stopping.rule, stopping.finish, stopping.actions) == (Rule.STOPPING, None, (DeclareStopped(),))
