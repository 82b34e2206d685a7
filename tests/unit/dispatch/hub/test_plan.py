# SPDX-License-Identifier: Apache-2.0
"""The numbered rules (docs/spec/multikueue.md §1.5, §1.7, §2.4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_CAPACITY, CheckState, PartitionPolicy
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Report
from multikueue.dispatch.hub.actions import (
    Assign,
    CheckUpdate,
    DispatchPlan,
    Finish,
    RemoveAssignment,
    Rule,
    SetIntent,
    SyncStatus,
)
from multikueue.dispatch.hub.facts import CheckFacts, DispatchFacts, DispatchSettings, OwnerFacts, RemoteEnd
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.protocol.phases import JOB_GONE
from multikueue.dispatch.worker.assignment_state import DEPENDENCY_MISSING, JOB_SUSPENDED, NO_CAPACITY, QUEUE_MISSING
from multikueue.dispatch.worker.ledger import Demand
from multikueue.dispatch.worker.node_groups import AggregateCapacity, CapacityGroup
from tests.unit.dispatch.builders import NOW, cluster, ended, facts, granted, minutes_ago, running, seen, workload

READY_ON_W1 = CheckUpdate(CheckState.READY, 'The workload was admitted on "w1"')


def check_of(found: DispatchPlan) -> tuple[CheckState, str] | None:
    return None if found.check is None else (found.check.state, found.check.message)


@pytest.mark.parametrize(
    ("given", "want_rule", "want_actions"),
    [
        pytest.param(
            facts(None, seen("w1"), granted("w2")),
            Rule.GONE,
            {RemoveAssignment("w1"), RemoveAssignment("w2")},
            id="a deleted workload is removed from every mailbox",
        ),
        pytest.param(
            facts(workload(deleting=True), seen("w1")),
            Rule.GONE,
            {RemoveAssignment("w1")},
            id="a terminating workload too",
        ),
        pytest.param(
            facts(workload(), seen("w1", workload_uid="older"), seen("w2")),
            Rule.GONE,
            {RemoveAssignment("w1")},
            id="copies of an earlier workload of that name go first",
        ),
        pytest.param(
            facts(workload(None), seen("w1")),
            Rule.NOT_DISPATCHED,
            {RemoveAssignment("w1")},
            id="without a MultiKueue check nothing is kept anywhere",
        ),
        pytest.param(
            facts(replace(running(), check=None), granted("w1"), seen("w2"), clusters=()),
            Rule.GRANTED,
            {SyncStatus("w1"), RemoveAssignment("w2")},
            id="what runs goes on when its queue loses the check",
        ),
        pytest.param(
            facts(replace(running(finished=True), check=None), ended("w1"), clusters=()),
            Rule.FINISHED_OR_NO_QUOTA,
            {RemoveAssignment("w1")},
            id="and leaves nothing behind",
        ),
        pytest.param(
            facts(replace(running(stopping=True), check=None), granted("w1")),
            Rule.STOPPING,
            {SetIntent("w1", Intent.EVICT), SyncStatus("w1")},
            id="and stops when it is evicted",
        ),
        pytest.param(
            facts(workload(quota_reserved=False), seen("w1"), granted("w2")),
            Rule.FINISHED_OR_NO_QUOTA,
            {RemoveAssignment("w1"), RemoveAssignment("w2")},
            id="no reservation clears every mailbox, also of clusters that are away",
        ),
        pytest.param(
            facts(running(finished=True), ended()),
            Rule.FINISHED_OR_NO_QUOTA,
            {RemoveAssignment("w1")},
            id="finished removes the remote objects",
        ),
        pytest.param(
            facts(workload(CheckState.RETRY), granted()),
            Rule.WAITS_FOR_EVICTION,
            set(),
            id="Retry waits for the eviction and touches nothing",
        ),
        pytest.param(
            facts(workload(CheckState.REJECTED)), Rule.WAITS_FOR_EVICTION, set(), id="Rejected waits for deactivation"
        ),
        pytest.param(
            facts(workload(others_ready=False), seen("w1")),
            Rule.NOT_YET,
            {RemoveAssignment("w1")},
            id="F16 nothing is dispatched until the other checks are Ready",
        ),
        pytest.param(
            facts(running(), granted("w1"), seen("w2", AssignmentPhase.RESERVED)),
            Rule.GRANTED,
            {SyncStatus("w1"), RemoveAssignment("w2")},
            id="a late reserver never overtakes the winner",
        ),
        pytest.param(
            facts(running(), granted("w1"), granted("w2")),
            Rule.GRANTED,
            {SyncStatus("w1"), RemoveAssignment("w2")},
            id="a returning cluster that still runs an old grant loses to clusterName",
        ),
        pytest.param(
            facts(running(), seen("w1", AssignmentPhase.RESERVED)),
            Rule.GRANTED,
            {SetIntent("w1", Intent.RUN)},
            id="a manager that died after the grant says Run when it is back",
        ),
    ],
)
def test_rules_without_a_status_write(given: DispatchFacts, want_rule: Rule, want_actions: set[object]) -> None:
    found = plan(given, NOW)
    assert found.rule is want_rule
    assert set(found.actions) == want_actions
    assert not found.writes_status


@pytest.mark.parametrize(
    "problem",
    ['No multikueue adapter found for owner kind "Foo"', "The owner is not managed by Kueue: …"],
)
def test_an_owner_that_cannot_be_remote_is_rejected(problem: str) -> None:
    found = plan(facts(workload(owner=OwnerFacts(problem=problem)), seen("w1")), NOW)
    assert (found.rule, check_of(found)) == (Rule.CANNOT_BE_REMOTE, (CheckState.REJECTED, problem))
    assert found.actions == (RemoveAssignment("w1"),)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        pytest.param(AssignmentPhase.EVICTED, Rule.REMOTE_EVICTED, id="it was stopped there"),
        pytest.param(AssignmentPhase.REFUSED, Rule.REFUSED, id="it was not started there"),
    ],
)
def test_an_assignment_that_ends_after_its_queue_lost_the_check_costs_the_admission(
    said: AssignmentPhase, rule: Rule
) -> None:
    given = facts(
        replace(running(), check=None), granted("w1", phase=said, message="preempted"), seen("w2"), clusters=()
    )
    found = plan(given, NOW)
    assert found.rule is rule
    assert found.evict == 'Workload stopped on worker cluster: "w1": preempted, and its queue has no check'
    assert found.actions == (RemoveAssignment("w2"),)
    assert found.writes_status
    assert found.check is None


def test_j10_the_check_of_a_workload_without_quota_is_left_alone() -> None:
    assert plan(facts(workload(quota_reserved=False)), NOW) == DispatchPlan(rule=Rule.FINISHED_OR_NO_QUOTA)


class TestNomination:
    def test_clones_to_all_connected_clusters_sorted(self) -> None:
        found = plan(facts(workload(), clusters=(cluster("w2"), cluster("w1"))), NOW)
        assert found.rule is Rule.NOMINATE
        assert found.nominated == ("w1", "w2")
        assert found.actions == (Assign("w1"), Assign("w2"))

    def test_an_existing_remote_job_is_not_made_again(self) -> None:
        found = plan(facts(workload(nominated=("w1", "w2")), seen("w1")), NOW)
        assert found.actions == (Assign("w2"),)

    def test_the_same_set_in_another_order_makes_no_write(self) -> None:
        found = plan(facts(workload(nominated=("w2", "w1")), seen("w1"), seen("w2")), NOW)
        assert not found.writes_status
        assert found.actions == ()

    def test_d8_a_cluster_added_to_the_config_gets_its_assignment(self) -> None:
        clusters = (cluster("w1"), cluster("w2"), cluster("w3"))
        found = plan(facts(workload(nominated=("w1", "w2")), seen("w1"), seen("w2"), clusters=clusters), NOW)
        assert found.nominated == ("w1", "w2", "w3")
        assert found.actions == (Assign("w3"),)

    def test_s7_a_cluster_that_is_away_is_not_nominated_and_its_assignment_goes(self) -> None:
        clusters = (cluster("w1", lost_minutes=1), cluster("w2"))
        found = plan(facts(workload(nominated=("w1", "w2")), seen("w1"), seen("w2"), clusters=clusters), NOW)
        assert found.nominated == ("w2",)
        assert found.actions == (RemoveAssignment("w1"),)

    def test_an_assignment_of_an_older_epoch_is_brought_up_to_date(self) -> None:
        found = plan(facts(workload(epoch=2, nominated=("w1",)), seen("w1"), clusters=(cluster("w1"),)), NOW)
        assert found.actions == (Assign("w1"),)

    def test_a_changed_workload_is_sent_again(self) -> None:
        given = facts(workload(nominated=("w1",), fingerprint="new"), seen("w1"), clusters=(cluster("w1"),))
        assert plan(given, NOW).actions == (Assign("w1"),)

    def test_a_cordoned_cluster_is_not_nominated(self) -> None:
        found = plan(facts(workload(), clusters=(cluster("w1", takes_new_work=False), cluster("w2"))), NOW)
        assert found.nominated == ("w2",)

    def test_an_avoided_cluster_is_passed_over_until_its_time_is_up(self) -> None:
        until = NOW + timedelta(minutes=3)
        found = plan(facts(workload(), avoided={"w1": until}), NOW)
        assert found.nominated == ("w2",)
        assert found.requeue_after == 180
        assert plan(facts(workload(), avoided={"w1": until}), until).nominated == ("w1", "w2")

    def test_no_cluster_to_nominate_is_reported_in_the_check(self) -> None:
        clusters = (cluster("w1", lost_minutes=1), cluster("w2", takes_new_work=False))
        found = plan(facts(workload(), clusters=clusters), NOW)
        message = (
            "Waiting for a worker cluster: w1: not connected since 2026-01-01T11:59:00Z;"
            " w2: is cordoned and takes no new work"
        )
        assert check_of(found) == (CheckState.PENDING, message)

    def test_a_refusal_by_all_is_reported_with_each_reason(self) -> None:
        refused = {"reason": "NamespaceNotFound", "message": 'namespace "ns" is not there'}
        observations = (seen("w1", AssignmentPhase.REFUSED, **refused), seen("w2", AssignmentPhase.REFUSED, **refused))
        found = plan(facts(workload(nominated=("w1", "w2")), *observations), NOW)
        assert found.check is not None
        assert 'w1: namespace "ns" is not there' in found.check.message

    def test_the_message_goes_when_a_cluster_may_take_it_again(self) -> None:
        said = CheckFacts(name="mk", state=CheckState.PENDING, message="Waiting for a worker cluster: w1: lost")
        found = plan(facts(workload(check=said, nominated=("w1", "w2")), seen("w1"), seen("w2")), NOW)
        assert check_of(found) == (CheckState.PENDING, "")

    def test_a_message_of_an_eviction_is_kept(self) -> None:
        said = CheckFacts(name="mk", state=CheckState.PENDING, message="Reset to Pending after eviction.")
        found = plan(facts(workload(check=said, nominated=("w1", "w2")), seen("w1"), seen("w2")), NOW)
        assert found.check is None

    @pytest.mark.parametrize(
        ("nominated", "want"),
        [
            pytest.param((), (), id="D2 external: nothing is created until somebody nominates"),
            pytest.param(("w2",), (Assign("w2"),), id="D2 external: the nominated one gets a copy"),
            pytest.param(("w1", "w2"), (Assign("w1"), Assign("w2")), id="D2 external: then both"),
            pytest.param(("w9",), (), id="external: a cluster that is not usable gets none"),
        ],
    )
    def test_an_external_dispatcher_is_followed(self, nominated: tuple[str, ...], want: tuple[Assign, ...]) -> None:
        found = plan(_settings(facts(workload(nominated=nominated)), dispatcher="example.com/mine"), NOW)
        assert found.actions == want
        assert found.nominated is None


class TestGrant:
    def test_the_first_to_reserve_is_chosen_and_the_others_lose_their_assignments(self) -> None:
        given = facts(workload(nominated=("w1", "w2")), seen("w1", AssignmentPhase.RESERVED), seen("w2"))
        found = plan(given, NOW)
        assert found.rule is Rule.GRANT
        assert (found.check, found.cluster_name, found.nominated) == (READY_ON_W1, "w1", ())
        assert found.actions == (SetIntent("w1", Intent.RUN), RemoveAssignment("w2"))

    def test_two_at_once_are_decided_the_same_way_each_time_and_evenly(self) -> None:
        winners = []
        for number in range(200):
            uid = f"u{number}"
            both = (
                seen("w1", AssignmentPhase.RESERVED, workload_uid=uid),
                seen("w2", AssignmentPhase.RESERVED, workload_uid=uid),
            )
            found = plan(facts(workload(uid=uid), *both), NOW)
            assert plan(facts(workload(uid=uid), *reversed(both)), NOW).cluster_name == found.cluster_name
            winners.append(found.cluster_name)
        assert 60 < winners.count("w1") < 140

    @pytest.mark.parametrize(
        "reserver",
        [
            pytest.param(seen("w1", AssignmentPhase.RESERVED, status_epoch=0), id="a word about an older epoch"),
            pytest.param(seen("w1", AssignmentPhase.RESERVED, epoch=1, status_epoch=1), id="a copy of an older epoch"),
            pytest.param(
                seen("w3", AssignmentPhase.RESERVED, epoch=2, status_epoch=2), id="a cluster out of the config"
            ),
        ],
    )
    def test_is_not_given_to(self, reserver: object) -> None:
        given = facts(workload(epoch=2), reserver)  # type: ignore[arg-type]
        assert plan(given, NOW).rule is Rule.NOMINATE

    def test_is_not_given_to_a_cluster_that_is_away(self) -> None:
        given = facts(
            workload(), seen("w1", AssignmentPhase.RESERVED), clusters=(cluster("w1", lost_minutes=1), cluster("w2"))
        )
        assert plan(given, NOW).rule is Rule.NOMINATE

    def test_goes_to_a_cluster_that_runs_it_already(self) -> None:
        for uid in ("a", "b", "c", "d"):
            both = (
                seen("w1", AssignmentPhase.RESERVED, workload_uid=uid),
                seen("w2", AssignmentPhase.RUNNING, workload_uid=uid),
            )
            assert plan(facts(workload(uid=uid), *both), NOW).cluster_name == "w2"


class TestEnd:
    def test_j1_a_finished_remote_finishes_the_workload_with_its_reason_and_message(self) -> None:
        found = plan(facts(running(), ended()), NOW)
        assert (found.rule, found.finish) == (Rule.REMOTE_FINISHED, Finish("Succeeded", "done"))
        assert found.actions == (SyncStatus("w1"),)

    def test_a_last_status_counts_also_when_the_cluster_is_away(self) -> None:
        given = facts(running(), ended(), clusters=(cluster("w1", lost_minutes=60), cluster("w2")))
        assert plan(given, NOW).finish == Finish("Succeeded", "done")

    def test_an_end_that_came_while_it_was_asked_to_stop_counts(self) -> None:
        given = facts(workload(stopping=True, epoch=2), ended(intent=Intent.EVICT))
        assert plan(given, NOW).finish == Finish("Succeeded", "done")

    @pytest.mark.parametrize(
        "status",
        [
            pytest.param(ended(status_epoch=0), id="about an older epoch"),
            pytest.param(ended("w2"), id="of a cluster that was not granted"),
        ],
    )
    def test_an_end_does_not_count(self, status: object) -> None:
        assert plan(facts(running(), granted(), status), NOW).finish is None  # type: ignore[arg-type]

    def test_the_end_of_a_former_job_on_a_cluster_restored_from_a_backup_does_not_count(self) -> None:
        """The job of this epoch is lost with the cluster, and is sent again: seed 46871 of the simulation."""
        found = plan(facts(running(epoch=2), ended()), NOW)
        assert (found.finish, found.rule) == (None, Rule.DELIVER)

    def test_j2_out_of_sync_goes_through_retry_and_never_finishes(self) -> None:
        found = plan(facts(running(), ended(reason="OutOfSync")), NOW)
        assert found.finish is None
        assert check_of(found) == (
            CheckState.RETRY,
            'Remote workload on worker cluster "w1" is out of sync with its user job, resetting for re-dispatch',
        )
        assert found.events[0].warning

    def test_out_of_sync_is_idempotent_once_the_check_is_retry(self) -> None:
        found = plan(
            facts(running(check=CheckFacts(name="mk", state=CheckState.RETRY)), ended(reason="OutOfSync")), NOW
        )
        assert found == DispatchPlan(rule=Rule.WAITS_FOR_EVICTION)


class TestLoss:
    def test_j7_a_short_loss_changes_nothing(self) -> None:
        given = facts(running(), granted(), clusters=(cluster("w1", lost_minutes=14), cluster("w2")))
        assert plan(given, NOW) == DispatchPlan(rule=Rule.LOST, requeue_after=60)

    def test_j6_a_long_loss_is_retried_with_the_reason_in_the_event(self) -> None:
        given = facts(running(), granted(), clusters=(cluster("w1", lost_minutes=15), cluster("w2")))
        found = plan(given, NOW)
        assert check_of(found) == (CheckState.RETRY, "Admitting remote lost")
        assert 'cluster "w1" is not available since' in found.events[0].message

    @pytest.mark.parametrize(
        ("clusters", "others"),
        [
            pytest.param((cluster("w2"),), {"w1": cluster("w1", lost_minutes=20)}, id="out of the config"),
            pytest.param((cluster("w2"),), {}, id="of which nothing is known"),
            pytest.param((cluster("w1", lost_minutes=20, reason="BadKubeConfig"),), {}, id="with a bad Secret"),
        ],
    )
    def test_every_cause_is_judged_alike(self, clusters: tuple[object, ...], others: dict[str, object]) -> None:
        given = facts(running(), granted(), clusters=clusters, others=others)  # type: ignore[arg-type]
        assert check_of(plan(given, NOW)) == (CheckState.RETRY, "Admitting remote lost")

    def test_a_cluster_just_out_of_the_config_gets_its_grace_too(self) -> None:
        given = facts(running(), granted(), clusters=(cluster("w2"),), others={"w1": cluster("w1", lost_minutes=5)})
        assert plan(given, NOW) == DispatchPlan(rule=Rule.LOST, requeue_after=600)

    def test_keep_never_gives_up(self) -> None:
        given = facts(
            running(partition_policy=PartitionPolicy.KEEP), granted(), clusters=(cluster("w1", lost_minutes=9999),)
        )
        assert plan(given, NOW) == DispatchPlan(rule=Rule.LOST)

    def test_fenced_waits_for_the_lease_and_grace_at_least(self) -> None:
        given = facts(
            running(partition_policy=PartitionPolicy.FENCED), granted(), clusters=(cluster("w1", lost_minutes=0.5),)
        )
        short = _settings(given, worker_lost_timeout=timedelta(seconds=3))
        assert plan(short, NOW) == DispatchPlan(rule=Rule.LOST, requeue_after=70)

    def test_an_assignment_removed_by_hand_is_retried_at_once(self) -> None:
        found = plan(facts(running()), NOW)
        assert check_of(found) == (CheckState.RETRY, "Admitting remote no longer exists")

    def test_a_job_removed_by_hand_is_retried_at_once(self) -> None:
        found = plan(facts(running(), granted(phase=AssignmentPhase.EVICTED, reason=JOB_GONE)), NOW)
        assert check_of(found) == (CheckState.RETRY, "Admitting remote no longer exists")

    def test_ready_without_a_cluster_is_retried(self) -> None:
        found = plan(facts(workload(CheckState.READY)), NOW)
        assert found.check is not None
        assert found.check.state is CheckState.RETRY
        assert "please report it" in found.check.message

    def test_j9_an_eviction_on_the_worker_starts_over(self) -> None:
        found = plan(facts(running(), granted(phase=AssignmentPhase.EVICTED, message="preempted")), NOW)
        assert found.rule is Rule.REMOTE_EVICTED
        assert check_of(found) == (
            CheckState.RETRY,
            'Workload evicted on worker cluster: "w1": preempted, resetting for re-admission. Previously: "Ready"',
        )
        assert found.actions == (SyncStatus("w1"),)
        assert found.avoid == ""

    def test_a_cluster_that_is_not_avoided_any_more_is_asked_before_it_is_granted_again(self) -> None:
        """A reason that no report has would evict the workload again and again."""
        capacity = ClusterCapacity()
        cpus = AggregateCapacity(allocatable=9, free=9, largest_free=9, largest=9)
        capacity.replace(Report(groups=(CapacityGroup(capacities={"cpu": cpus}),)))
        free = cluster("w1", capacity=capacity, reported_at=NOW)
        of = workload(demands=(Demand(count=1, requests={"cpu": 1}),))
        given = facts(of, clusters=(free,), settings=DispatchSettings(dispatcher=DISPATCHER_CAPACITY))
        assert plan(given, NOW).cluster_name == "w1"
        found = plan(replace(given, avoided={"w1": NOW - timedelta(minutes=30)}), NOW)
        assert (found.cluster_name, found.nominated, found.actions) == (None, ("w1",), (Assign("w1"),))
        reserved = replace(given, avoided={"w1": NOW}, observations={"w1": seen("w1", AssignmentPhase.RESERVED)})
        assert plan(reserved, NOW).cluster_name == "w1"

    def test_a_cluster_on_which_the_job_was_suspended_is_avoided_for_a_minute(self) -> None:
        found = plan(facts(running(), granted(phase=AssignmentPhase.EVICTED, reason=JOB_SUSPENDED)), NOW)
        assert (found.rule, found.avoid, found.avoid_for) == (Rule.REMOTE_EVICTED, "w1", timedelta(minutes=1))

    @pytest.mark.parametrize(
        ("reason", "seconds"),
        [
            pytest.param(NO_CAPACITY, 60, id="short of capacity: for a minute"),
            pytest.param(DEPENDENCY_MISSING, 60, id="without an object that its pods need: for a minute"),
            pytest.param(QUEUE_MISSING, 3, id="without the LocalQueue: until its report shows that"),
        ],
    )
    def test_a_cluster_that_was_short_of_something_for_a_moment_is_not_avoided_for_long(
        self, reason: str, seconds: int
    ) -> None:
        found = plan(facts(running(), granted(phase=AssignmentPhase.REFUSED, reason=reason, job_status=None)), NOW)
        assert (found.rule, found.avoid, found.avoid_for) == (Rule.REFUSED, "w1", timedelta(seconds=seconds))

    def test_a_refusal_after_the_grant_goes_through_retry_and_the_cluster_is_avoided(self) -> None:
        refused = granted(
            phase=AssignmentPhase.REFUSED, reason="NameConflict", message="a job is there", job_status=None
        )
        found = plan(facts(running(), refused), NOW)
        assert found.check is not None
        assert (found.check.state, found.avoid) == (CheckState.RETRY, "w1")
        assert "NameConflict" in found.check.message


def test_what_ends_after_its_queue_lost_the_check_is_finished() -> None:
    found = plan(facts(replace(running(), check=None), ended("w1"), clusters=()), NOW)
    assert (found.rule, found.actions) == (Rule.REMOTE_FINISHED, (SyncStatus("w1"),))
    assert found.finish is not None


def test_a_plan_is_a_function_of_its_arguments() -> None:
    given = facts(running(), ended(end=RemoteEnd(reason="Failed", message="x", time=minutes_ago(1))))
    assert plan(given, NOW) == plan(given, NOW)


def _settings(given: DispatchFacts, **changes: Any) -> DispatchFacts:
    return replace(given, settings=replace(given.settings, **changes))
