# SPDX-License-Identifier: Apache-2.0
"""Why a job never runs twice: what `plan` may tell whom, and the arithmetic of fenced work."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from multikueue.api.constants import CheckState, PartitionPolicy
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.hub.actions import Action, Assign, CheckUpdate, DeclareStopped, DispatchPlan, Rule, SetIntent
from multikueue.dispatch.hub.availability import gone_after, policy_on
from multikueue.dispatch.hub.facts import (
    ClusterFacts,
    DispatchedWorkload,
    DispatchFacts,
    DispatchSettings,
    Observation,
    RemoteEnd,
)
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.worker.assignment_state import (
    LEASE_EXPIRED,
    AssignmentFacts,
    JobAction,
    RemoteJobFacts,
    ReportedStatus,
    step,
)
from tests.unit.dispatch.builders import NOW, RUNNING_STATUS, cluster, facts, granted, running, seen, workload
from tests.unit.dispatch.dispatchers.test_dispatchers import offering, wanting

NAMES = ("w1", "w2", "w3")
GONE = cluster("w1", lost_minutes=1, exists=False)
DISPATCHERS = (
    "multikueue.io/dispatcher-capacity",
    "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    "kueue.x-k8s.io/multikueue-dispatcher-incremental",
    "example.com/own",
)


def any_facts(random: Random) -> DispatchFacts:
    """A situation that may or may not come up."""
    state = random.choice([*CheckState, CheckState.PENDING, CheckState.READY])
    of: DispatchedWorkload = wanting(
        random.choice([1, 5]),
        epoch=random.randint(1, 3),
        check=None if random.random() < 0.05 else replace(workload(state).check or _fail(), state=state),
        quota_reserved=random.random() < 0.9,
        others_ready=random.random() < 0.9,
        stopping=random.random() < 0.15,
        finished=random.random() < 0.05,
        cluster_name=random.choice(["", "", *NAMES]),
        partition_policy=random.choice(list(PartitionPolicy)),
    )
    if not of.cluster_name:
        of = replace(of, nominated=tuple(sorted(random.sample(NAMES, random.randint(0, 3)))))
    return facts(
        of,
        *(any_observation(random, name) for name in NAMES if random.random() < 0.6),
        clusters=tuple(any_cluster(random, name) for name in NAMES if random.random() < 0.9),
        settings=DispatchSettings(dispatcher=random.choice(DISPATCHERS), step_size=2),
        delivered=random.random() < 0.5,
    )


def any_cluster(random: Random, name: str) -> ClusterFacts:
    lost = random.choice([None, None, None, 1, 30])
    more: dict[str, Any] = {"takes_new_work": random.random() < 0.9}
    if lost is not None:
        return cluster(name, lost_minutes=lost, **more)
    return offering(name, random.choice([0, 3, 9]), **more) if random.random() < 0.8 else cluster(name, **more)


def any_observation(random: Random, name: str) -> Observation:
    phase = random.choice(list(AssignmentPhase))
    return seen(
        name,
        phase,
        epoch=random.randint(1, 3),
        status_epoch=random.randint(0, 3),
        intent=random.choice(list(Intent)),
        job_status=RUNNING_STATUS if random.random() < 0.5 else None,
        fingerprint=random.choice(["f", "g"]),
        end=RemoteEnd(reason="Succeeded") if phase is AssignmentPhase.FINISHED else None,
        reason=random.choice(["", "JobNotFound", "NoCapacity"]),
        policy=random.choice([None, *PartitionPolicy]),
    )


def _fail() -> Any:
    raise AssertionError("the builder always makes a check")


def told_to_run(found: DispatchPlan) -> set[str]:
    def runs(action: Action) -> bool:
        return isinstance(action, Assign | SetIntent) and action.intent is Intent.RUN

    return {action.cluster for action in found.actions if runs(action) and isinstance(action, Assign | SetIntent)}


def test_only_the_cluster_whose_name_is_written_first_is_ever_asked_to_run() -> None:
    """In 10,000 situations; `Executor` writes the name before it tells anybody, and the API refuses a second one."""
    ran = 0
    for seed in range(10_000):
        situation = any_facts(Random(seed))
        found = plan(situation, NOW)
        assert situation.workload is not None
        names = told_to_run(found)
        ran += bool(names)
        winner = situation.workload.cluster_name or found.cluster_name
        assert names <= {winner}, (seed, found)
        if found.cluster_name is not None:
            assert not situation.workload.cluster_name, (seed, "a chosen cluster is never replaced")
            assert found.check == CheckUpdate(CheckState.READY, f'The workload was admitted on "{winner}"'), seed
            assert situation.workload.quota_reserved, (seed, "granted without quota")
            assert not situation.workload.stopping, (seed, "granted while it is to stop")
            found_cluster = situation.cluster(found.cluster_name)
            assert found_cluster is not None, seed
            assert found_cluster.available, (seed, "granted to a cluster that is away")
            assert found_cluster.takes_new_work, (seed, "granted to a cluster that takes nothing new")
        if situation.workload.cluster_name:
            assigned = {action.cluster for action in found.actions if isinstance(action, Assign)}
            assert assigned <= {winner}, (seed, "another copy while one is chosen")
    assert ran > 500, "the situations say something"


def test_work_that_was_asked_to_stop_is_never_asked_to_run_again() -> None:
    for seed in range(5000):
        situation = any_facts(Random(seed))
        assert situation.workload is not None
        if not situation.workload.cluster_name:
            continue  # a stop ends in an eviction, and the next grant has a later epoch
        for name in told_to_run(plan(situation, NOW)):
            before = situation.observations.get(name)
            stopped = before is not None and before.intent is Intent.EVICT and before.epoch == situation.workload.epoch
            assert not stopped, seed


class TestDelivery:
    def test_a_grant_that_was_written_and_not_sent_is_sent(self) -> None:
        found = plan(facts(running("w1"), delivered=False), NOW)
        assert (found.rule, found.actions, found.check) == (Rule.DELIVER, (Assign("w1", Intent.RUN),), None)

    def test_an_assignment_of_an_older_epoch_there_is_brought_up_to_date(self) -> None:
        found = plan(facts(running("w1", epoch=2), granted("w1")), NOW)
        assert (found.rule, found.actions) == (Rule.DELIVER, (Assign("w1", Intent.RUN),))

    def test_one_that_was_there_and_is_gone_is_retried(self) -> None:
        found = plan(facts(running("w1")), NOW)
        assert found.rule is Rule.NO_LONGER_THERE
        assert found.check is not None
        assert found.check.state is CheckState.RETRY

    @pytest.mark.parametrize("policy", list(PartitionPolicy))
    def test_one_that_went_with_its_cluster_is_waited_for_like_a_lost_one(self, policy: PartitionPolicy) -> None:
        of = running("w1", partition_policy=policy)
        found = plan(facts(of, clusters=(cluster("w2"),), others={"w1": GONE}), NOW)
        assert (found.rule, found.check) == (Rule.LOST, None), "whoever runs it has not heard of that"
        assert found.requeue_after == 14 * 60
        later = plan(facts(of, clusters=(cluster("w2"),), others={"w1": GONE}), NOW + timedelta(minutes=14))
        assert later.check is not None
        assert later.check.state is CheckState.RETRY

    def test_nor_is_it_stopped_for_sure_before_that(self) -> None:
        of = facts(running("w1", stopping=True), clusters=(cluster("w2"),), others={"w1": GONE})
        assert (plan(of, NOW).actions, plan(of, NOW).requeue_after) == ((), 14 * 60)
        assert plan(of, NOW + timedelta(minutes=14)).actions == (DeclareStopped(),)

    def test_one_that_is_taken_away_by_hand_from_a_lost_cluster_goes_elsewhere_at_once(self) -> None:
        found = plan(facts(running("w1"), clusters=(cluster("w1", lost_minutes=1), cluster("w2"))), NOW)
        assert found.rule is Rule.NO_LONGER_THERE

    def test_to_a_cluster_that_was_lost_meanwhile_nothing_is_sent(self) -> None:
        clusters = (cluster("w1", lost_minutes=1), cluster("w2"))
        found = plan(facts(running("w1"), clusters=clusters, delivered=False), NOW)
        assert (found.rule, found.actions) == (Rule.LOST, ())

    def test_a_new_priority_is_sent_to_the_running_job(self) -> None:
        found = plan(facts(running("w1", fingerprint="new"), granted("w1")), NOW)
        assert found.rule is Rule.GRANTED
        assert found.actions[0] == Assign("w1", Intent.RUN)

    def test_but_not_to_one_that_is_to_stop(self) -> None:
        found = plan(facts(running("w1", fingerprint="new"), granted("w1", intent=Intent.EVICT)), NOW)
        assert told_to_run(found) == set()


class TestBrake:
    @pytest.mark.parametrize(
        ("lost", "rule"),
        [
            ((20, None, None), Rule.LOST),
            ((20, 20, None), Rule.HELD),
            ((20, 21, 20), Rule.HELD),
            ((20, 40, None), Rule.LOST),
            ((20, 40, 60), Rule.LOST),
            ((20, 20), Rule.LOST),
            ((20,), Rule.LOST),
        ],
    )
    def test_work_moves_unless_most_of_three_or_more_were_lost_at_once(
        self, lost: tuple[int | None, ...], rule: Rule
    ) -> None:
        clusters = tuple(cluster(f"w{number}", lost_minutes=each) for number, each in enumerate(lost, 1))
        found = plan(facts(running("w1"), granted("w1"), clusters=clusters), NOW)
        assert found.rule is rule
        assert (found.check is None) is (rule is Rule.HELD)
        if rule is Rule.HELD:
            assert "were lost at once" in str(found.waiting[0])

    def test_work_that_moves_does_not_come_back_at_once(self) -> None:
        clusters = (cluster("w1", lost_minutes=20), cluster("w2"))
        found = plan(facts(running("w1"), granted("w1"), clusters=clusters), NOW)
        assert (found.avoid, found.avoid_for) == ("w1", timedelta(minutes=1))
        again = facts(workload(epoch=2), clusters=(cluster("w1"), cluster("w2")), avoided={"w1": NOW + found.avoid_for})
        assert plan(again, NOW).nominated == ("w2",)


class TestFenced:
    """By true time. An agent counts its lease on a clock of some rate from before it asked; the hub from after."""

    def test_the_assignment_has_stopped_before_another_may_start(self) -> None:
        settings = DispatchSettings()
        gone = gone_after(PartitionPolicy.FENCED, replace(settings, worker_lost_timeout=timedelta(seconds=3)))
        assert gone is not None
        for seed in range(2000):
            random = Random(seed)
            agent_rate, hub_rate = random.uniform(0.8, 1.25), random.uniform(0.95, 1.05)
            sent, delay = random.uniform(0, 100), random.uniform(0, 10)
            pods_end = random.uniform(0, 30)  # the grace period of pods
            stopped = sent + settings.lease.total_seconds() / agent_rate + pods_end
            elsewhere = sent + delay + gone.total_seconds() / hub_rate
            assert stopped <= elsewhere, (seed, stopped, elsewhere)

    def test_without_a_lease_the_agent_starts_nothing_and_stops_what_runs(self) -> None:
        desired = AssignmentFacts(name="a", epoch=1, intent=Intent.RUN, may_run=False)
        assert step(desired, None, reported=ReportedStatus()).action is None
        job = RemoteJobFacts(uid="j", ours=True, epoch=1, status=RUNNING_STATUS)
        assert (
            step(desired, job, reported=ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING)).action
            is JobAction.SUSPEND
        )
        stopped = replace(job, suspended=True, active=False)
        status = step(desired, stopped, reported=ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING)).status
        assert (status.phase, status.reason) == (AssignmentPhase.EVICTED, LEASE_EXPIRED)

    def test_what_stopped_for_want_of_a_lease_stays_so_when_the_lease_is_back(self) -> None:
        desired = AssignmentFacts(name="a", epoch=1, intent=Intent.RUN)
        ended = step(
            desired,
            None,
            reported=ReportedStatus(epoch=1, phase=AssignmentPhase.EVICTED, reason=LEASE_EXPIRED, job_uid="j"),
        )
        assert (ended.action, ended.status.phase) == (None, AssignmentPhase.EVICTED)

    @pytest.mark.parametrize("policy", list(PartitionPolicy))
    def test_the_hub_waits_for_lost_work_as_long_as_its_policy_requires(self, policy: PartitionPolicy) -> None:
        expected = {
            PartitionPolicy.KEEP: None,
            PartitionPolicy.FAILOVER: timedelta(minutes=15),
            PartitionPolicy.FENCED: timedelta(minutes=15),
        }
        assert gone_after(policy, DispatchSettings()) == expected[policy]

    @pytest.mark.parametrize(
        ("policy", "rule"),
        [
            (PartitionPolicy.FENCED, Rule.HELD),
            (PartitionPolicy.FAILOVER, Rule.LOST),
        ],
    )
    def test_work_whose_agent_reports_that_it_cannot_stop_it_goes_elsewhere_only_if_it_may_run_twice(
        self, policy: PartitionPolicy, rule: Rule
    ) -> None:
        clusters = (cluster("w1", lost_minutes=600, cannot_stop=True), cluster("w2"))
        found = plan(facts(running("w1", partition_policy=policy), granted("w1"), clusters=clusters), NOW)
        assert found.rule is rule
        assert (found.check is None) is (rule is Rule.HELD)
        if rule is Rule.HELD:
            assert "cannot stop it" in str(found.waiting[0])
            assert found.requeue_after, "an agent that falls silent later says nothing"

    def test_nor_does_the_hub_declare_stopped_what_no_agent_could_stop(self) -> None:
        away = (cluster("w1", lost_minutes=600, cannot_stop=True), cluster("w2"))
        of = running("w1", stopping=True, partition_policy=PartitionPolicy.FENCED)
        assert DeclareStopped() not in plan(facts(of, granted("w1"), clusters=away), NOW).actions
        of = replace(of, partition_policy=PartitionPolicy.FAILOVER)
        assert DeclareStopped() in plan(facts(of, granted("w1"), clusters=away), NOW).actions

    def test_stopping_lost_work_waits_as_long_before_it_declares_it_stopped(self) -> None:
        away = (cluster("w1", lost_minutes=1), cluster("w2"))
        of = running("w1", stopping=True, partition_policy=PartitionPolicy.FENCED)
        found = plan(facts(of, granted("w1"), clusters=away), NOW)
        assert DeclareStopped() not in found.actions


class TestGrantedWithoutAsking:
    DESIRED = AssignmentFacts(name="a", epoch=1, intent=Intent.RUN)

    def test_with_capacity_it_starts(self) -> None:
        assert step(self.DESIRED, None, reported=ReportedStatus()).action is JobAction.CREATE

    def test_without_capacity_it_waits_a_little(self) -> None:
        found = step(self.DESIRED, None, reported=ReportedStatus(), shortage="cpu")
        assert (found.action, found.status.phase, found.status.reason) == (None, AssignmentPhase.PENDING, "NoCapacity")

    def test_and_is_then_refused(self) -> None:
        found = step(self.DESIRED, None, reported=ReportedStatus(), shortage="cpu", patient=False)
        assert (found.action, found.status.phase, found.status.reason) == (None, AssignmentPhase.REFUSED, "NoCapacity")

    def test_what_was_refused_does_not_start_when_capacity_comes_after_all(self) -> None:
        found = step(
            self.DESIRED, None, reported=ReportedStatus(epoch=1, phase=AssignmentPhase.REFUSED, reason="NoCapacity")
        )
        assert (found.action, found.status.phase) == (None, AssignmentPhase.REFUSED)

    def test_what_was_reserved_starts_whatever_happened_to_the_capacity(self) -> None:
        reported = ReportedStatus(epoch=1, phase=AssignmentPhase.RESERVED)
        assert (
            step(self.DESIRED, None, reported=reported, shortage="a node went", patient=False).action
            is JobAction.CREATE
        )

    def test_the_hub_takes_a_refusal_back_and_avoids_the_cluster(self) -> None:
        found = plan(
            facts(running("w1"), granted("w1", AssignmentPhase.REFUSED, reason="NoCapacity", message="cpu")), NOW
        )
        assert (found.rule, found.avoid, found.avoid_for) == (Rule.REFUSED, "w1", timedelta(minutes=1))
        assert found.check is not None
        assert found.check.state is CheckState.RETRY


@pytest.mark.parametrize(
    ("fences", "told", "policy"),
    [
        pytest.param(True, None, PartitionPolicy.FENCED, id="nothing is assigned yet"),
        pytest.param(True, PartitionPolicy.FENCED, PartitionPolicy.FENCED, id="its agent stops it"),
        pytest.param(False, None, PartitionPolicy.KEEP, id="no agent is beside the cluster"),
        pytest.param(False, PartitionPolicy.FENCED, PartitionPolicy.KEEP, id="its agent was replaced by a kubeconfig"),
        pytest.param(True, PartitionPolicy.KEEP, PartitionPolicy.KEEP, id="it was reached by kubeconfig before"),
        pytest.param(True, PartitionPolicy.FAILOVER, PartitionPolicy.KEEP, id="it was made fenced while it ran"),
    ],
)
def test_fenced_work_is_moved_only_if_its_agent_was_asked_to_stop_it(
    fences: bool, told: PartitionPolicy | None, policy: PartitionPolicy
) -> None:
    of, clusters = granted("w1", policy=told), (cluster("w1", fences=fences), cluster("w2"))
    for chosen in ("w1", ""):  # an eviction clears the name while the work still runs there
        asked = workload(cluster_name=chosen, partition_policy=PartitionPolicy.FENCED)
        assert policy_on(facts(asked, of, clusters=clusters), "w1") is policy
        assert policy_on(facts(asked, of, clusters=clusters), "w2") is PartitionPolicy.FENCED
        asked = replace(asked, partition_policy=PartitionPolicy.FAILOVER)
        assert policy_on(facts(asked, of, clusters=clusters), "w1") is PartitionPolicy.FAILOVER


@pytest.mark.parametrize("chosen", ["w1", ""])
@pytest.mark.parametrize("told", [PartitionPolicy.KEEP, PartitionPolicy.FENCED])
def test_evicted_work_is_declared_stopped_by_what_its_own_agent_was_told(told: PartitionPolicy, chosen: str) -> None:
    """Kept work on a lost cluster counted as fenced once an eviction had cleared its name: seed 5923."""
    of = workload(stopping=True, cluster_name=chosen, partition_policy=PartitionPolicy.FENCED)
    away = (cluster("w1", lost_minutes=600), cluster("w2"))
    found = plan(facts(of, granted("w1", intent=Intent.EVICT, policy=told), clusters=away), NOW)
    assert (DeclareStopped() in found.actions) is (told is PartitionPolicy.FENCED)
