# SPDX-License-Identifier: Apache-2.0
"""What is said of each cluster, from the facts that the plan is made of."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL, CheckState, PartitionPolicy
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Report
from multikueue.dispatch.explanation import (
    ClusterExplanation,
    DispatchExplanation,
    DispatchState,
    HostedClusters,
    explain_dispatch,
)
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.actions import Rule, WaitingReason
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchFacts, DispatchSettings, Preferences
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.worker.ledger import Demand
from multikueue.dispatch.worker.node_groups import AggregateCapacity, CapacityGroup
from tests.unit.dispatch.builders import NOW, cluster, facts, granted, running, seen, workload

CAPACITY = DispatchSettings(dispatcher=DISPATCHER_CAPACITY)
LATER = NOW + timedelta(minutes=3)


def with_capacity(name: str, free: int, **changes: Any) -> ClusterFacts:
    """A cluster of one node with 8 cpu, `free` of them free."""
    capacity = AggregateCapacity(allocatable=8000, free=free * 1000, largest_free=free * 1000, largest=8000)
    report = Report(groups=(CapacityGroup(nodes=1, capacities={"cpu": capacity}),))
    return cluster(name, capacity=ClusterCapacity(report), reported_at=NOW, **changes)


def wanting(cpu: int, **changes: Any) -> DispatchedWorkload:
    demands = (Demand(count=1, requests={"cpu": cpu * 1000}),)
    return workload(demands=demands, flavors={"cpu": "spot"}, waits_since=NOW, **changes)


def look(given: DispatchFacts, **more: Any) -> DispatchExplanation:
    found = explain_dispatch(given, NOW, **more)
    assert found is not None
    return found


def each(found: DispatchExplanation) -> dict[str, tuple[DispatchState, str]]:
    return {entry.cluster: (entry.state, entry.reason) for entry in found.clusters}


def only(given: DispatchFacts, **more: Any) -> ClusterExplanation:
    (found,) = look(given, **more).clusters
    return found


def test_every_cluster_has_a_reason_of_its_own_and_it_is_the_one_of_the_check() -> None:
    clusters = (
        with_capacity("lost", 8, lost_since=NOW - timedelta(minutes=5), reason="ClientConnectionFailed"),
        with_capacity("cordoned", 8, takes_new_work=False),
        with_capacity("avoided", 8),
        with_capacity("elsewhere", 8, labels={"zone": "b"}),
        with_capacity("full", 1),
    )
    from multikueue.core.selectors import parse_selector

    of = wanting(4, preferences=Preferences(selector=parse_selector("zone!=b")))
    given = facts(of, clusters=clusters, avoided={"avoided": LATER}, settings=CAPACITY)
    found = look(given)
    assert each(found) == {
        "lost": (DispatchState.UNAVAILABLE, "not connected since 2026-01-01T11:55:00Z"),
        "cordoned": (DispatchState.CLOSED, "is cordoned and takes no new work"),
        "avoided": (DispatchState.AVOIDED, "failed this workload, is avoided until 2026-01-01T12:03:00Z"),
        "elsewhere": (DispatchState.UNSUITABLE, "its labels do not match zone!=b"),
        "full": (DispatchState.NO_CAPACITY, "insufficient free capacity: short 3 cpu"),
    }
    check = plan(given, NOW).check
    assert check is not None
    assert messages.reasons_by_cluster(check.message, [entry.name for entry in clusters]) == {
        name: reason for name, (_, reason) in each(found).items()
    }
    assert found.rule is Rule.NOMINATE


def test_a_cluster_whose_time_is_over_is_not_shown_as_avoided() -> None:
    given = facts(wanting(2), clusters=(with_capacity("w1", 8),), avoided={"w1": NOW}, settings=CAPACITY)
    assert only(given).avoided_until is None
    assert only(given).state is DispatchState.HAS_CAPACITY
    assert only(replace(given, avoided={"w1": LATER})).avoided_until == LATER


def test_a_score_has_its_parts_by_name_and_is_the_one_that_wins() -> None:
    found = look(
        facts(wanting(2), clusters=(with_capacity("w1", 4, weight=2.0), with_capacity("w2", 8)), settings=CAPACITY)
    )
    scores = {entry.cluster: entry.score for entry in found.clusters}
    assert found.rule is Rule.GRANT_AT_ONCE
    assert scores["w1"] is not None
    assert scores["w2"] is not None
    assert scores["w1"].parts == {"freeCapacity": 0.25, "preferred": 0.0, "shortQueue": 1.0}
    assert (scores["w1"].total, scores["w2"].total) == (2.5, 1.75)
    assert each(found)["w1"][0] is DispatchState.HAS_CAPACITY


@pytest.mark.parametrize(
    ("observation", "want"),
    [
        pytest.param(
            seen("w1", status_epoch=0),
            (DispatchState.ASKED, "was asked; its agent has not responded yet"),
            id="no answer",
        ),
        pytest.param(seen("w1"), (DispatchState.ASKED, "is looking for free capacity"), id="looking"),
        pytest.param(
            seen("w1", reason="NoCapacity", message="cpu: 5 requested, at most 4 free"),
            (DispatchState.WAITS_THERE, "waits there: cpu: 5 requested, at most 4 free"),
            id="no capacity",
        ),
        pytest.param(
            seen("w1", AssignmentPhase.RESERVED),
            (DispatchState.RESERVED, "has reserved capacity; waits to be chosen"),
            id="reserved",
        ),
        pytest.param(
            seen("w1", AssignmentPhase.REFUSED, reason="NameConflict"),
            (DispatchState.REFUSED, "NameConflict"),
            id="refused",
        ),
    ],
)
def test_a_nominated_cluster_is_shown_as_it_answered(observation: Any, want: tuple[DispatchState, str]) -> None:
    found = only(facts(workload(nominated=("w1",)), observation, clusters=(cluster("w1"),)))
    assert (found.state, found.reason) == want
    assert found.nominated


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param(DispatchSettings(dispatcher=DISPATCHER_INCREMENTAL), "is not nominated yet", id="a round to come"),
        pytest.param(
            DispatchSettings(dispatcher="ours/chooser"), "is not nominated by ours/chooser yet", id="a program"
        ),
        pytest.param(
            CAPACITY, "no fresh report: it is asked unless another cluster is known to have capacity", id="no report"
        ),
    ],
)
def test_a_cluster_that_was_not_asked_reports_whose_turn_it_is(settings: DispatchSettings, want: str) -> None:
    assert only(facts(workload(), clusters=(cluster("w1"),), settings=settings)).reason == want


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (AssignmentPhase.RUNNING, DispatchState.RUNS),
        (AssignmentPhase.RESERVED, DispatchState.CHOSEN),
        (AssignmentPhase.EVICTED, DispatchState.EVICTED),
    ],
)
def test_the_chosen_cluster_is_shown_as_it_reports_and_the_others_are_not_needed(
    phase: AssignmentPhase, state: DispatchState
) -> None:
    found = look(facts(running(), granted(phase=phase), seen("w2")))
    assert [entry.state for entry in found.clusters] == [state, DispatchState.LEAVING]


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (PartitionPolicy.FAILOVER, "its work moves to another cluster at 2026-01-01T12:10:00Z (policy failover)"),
        (PartitionPolicy.KEEP, "its work stays there (policy keep)"),
    ],
)
def test_of_a_lost_cluster_it_is_reported_what_becomes_of_its_work(policy: PartitionPolicy, want: str) -> None:
    given = facts(running(partition_policy=policy), granted(), clusters=(cluster("w1", lost_minutes=5),))
    assert only(given).reason == f"not connected since 2026-01-01T11:55:00Z; {want}"


def test_a_mass_loss_is_the_reason_where_work_is_held() -> None:
    clusters = tuple(cluster(name, lost_minutes=30) for name in ("w1", "w2", "w3"))
    found = look(facts(running(), granted(), clusters=clusters))
    assert found.rule is Rule.HELD
    assert "3 of 3 clusters were lost at once" in each(found)["w1"][1]


def test_without_quota_no_cluster_is_judged_by_capacity() -> None:
    of = replace(wanting(2), quota_reserved=False, demands=())
    found = only(facts(of, clusters=(with_capacity("w1", 8),), settings=CAPACITY))
    assert (found.state, found.score) == (DispatchState.NOT_NEEDED, None)


def test_of_a_cluster_whose_mailbox_cannot_be_seen_the_managers_message_is_passed_on() -> None:
    given = facts(workload(nominated=("w1",)), clusters=(cluster("w1"),))
    told = messages.reasons_by_cluster(
        messages.waiting([WaitingReason("w1", "cpu: 5 wanted; memory: 1Gi wanted")]), ["w1"]
    )
    found = only(given, hosted=HostedClusters(clusters=["w1"], reasons=told))
    assert (found.state, found.reason) == (DispatchState.REFUSED, "cpu: 5 wanted; memory: 1Gi wanted")
    assert "the hub does not store its status" in only(given, hosted=HostedClusters(clusters=["w1"])).reason
    chosen = facts(running(), clusters=(cluster("w1"),), delivered=False)
    assert only(chosen, hosted=HostedClusters(clusters=["w1"])).state is DispatchState.CHOSEN


@pytest.mark.parametrize(
    ("told", "want"),
    [
        pytest.param("insufficient free capacity: short 1 cpu", DispatchState.NO_CAPACITY, id="by its report"),
        pytest.param("cpu: 5 requested, at most 4 free", DispatchState.NO_CAPACITY, id="by its nodes"),
        pytest.param("no node is ready", DispatchState.NO_CAPACITY, id="it has no node"),
        pytest.param("removing the job of epoch 1", DispatchState.NO_CAPACITY, id="a former job is being removed"),
        pytest.param(
            'not found in namespace "team": Secret "nope"', DispatchState.REFUSED, id="an object is missing there"
        ),
        pytest.param('no namespace "team"', DispatchState.REFUSED, id="the namespace is missing there"),
    ],
)
@pytest.mark.parametrize("nominated", [("w1",), ()], ids=["nominated", "not nominated"])
@pytest.mark.parametrize(
    "settings", [CAPACITY, DispatchSettings(dispatcher=DISPATCHER_INCREMENTAL)], ids=["capacity", "one by one"]
)
def test_a_cluster_whose_mailbox_cannot_be_seen_has_the_state_of_its_reason(
    told: str, want: DispatchState, nominated: tuple[str, ...], settings: DispatchSettings
) -> None:
    given = facts(workload(nominated=nominated), clusters=(cluster("w1"),), settings=settings)
    found = only(given, hosted=HostedClusters(clusters=["w1"], reasons={"w1": told}))
    assert (found.state, found.reason) == (want, told)


@pytest.mark.parametrize(
    ("clusters", "want"),
    [
        pytest.param((cluster("w1"),), "it ran there", id="the cluster is there"),
        pytest.param((cluster("w1", lost_minutes=30),), "it ran there", id="the cluster is lost"),
        pytest.param(
            (cluster("w1", lost_minutes=30, exists=False),),
            "it ran there; the cluster has been removed since",
            id="the cluster was removed",
        ),
    ],
)
def test_of_a_finished_workload_it_is_reported_where_it_ran(clusters: tuple[ClusterFacts, ...], want: str) -> None:
    found = look(facts(running(finished=True), clusters=(*clusters, cluster("w2"))))
    assert each(found) == {
        "w1": (DispatchState.FINISHED, want),
        "w2": (DispatchState.NOT_NEEDED, "the workload has finished"),
    }


@pytest.mark.parametrize(
    ("observation", "want"),
    [
        pytest.param((), "was chosen; its assignment is not written yet", id="nothing is written yet"),
        pytest.param(
            (granted(status_epoch=0),), "was chosen; its agent has not responded yet", id="the agent has not answered"
        ),
        pytest.param(
            (granted(phase=AssignmentPhase.PENDING),),
            "was chosen; the job is waiting to be created there",
            id="it is not created",
        ),
        pytest.param(
            (granted(phase=AssignmentPhase.RESERVED),),
            "was chosen; the job is about to be created there",
            id="it is about to be created",
        ),
        pytest.param((granted(phase=AssignmentPhase.RUNNING),), "runs there", id="it runs"),
        pytest.param((granted(phase=AssignmentPhase.FINISHED),), "has ended there", id="it has ended there"),
        pytest.param((granted(phase=AssignmentPhase.EVICTED),), "was stopped there", id="it was stopped there"),
    ],
)
def test_each_step_of_a_chosen_cluster_has_its_own_text(observation: tuple[Any, ...], want: str) -> None:
    found = look(facts(running(), *observation, clusters=(cluster("w1"),), delivered=bool(observation)))
    assert found.clusters[0].reason == want


def test_a_workload_without_the_check_has_no_outlook() -> None:
    assert explain_dispatch(facts(workload(None)), NOW) is None
    assert explain_dispatch(facts(None), NOW) is None


def test_a_retry_asks_no_cluster() -> None:
    found = look(facts(workload(CheckState.RETRY), seen("w1", intent=Intent.EVICT)))
    assert each(found) == {
        "w1": (DispatchState.LEAVING, "is asked to stop it"),
        "w2": (DispatchState.NOT_NEEDED, "not nominated while the check is Retry or Rejected"),
    }
