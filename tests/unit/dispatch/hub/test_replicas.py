# SPDX-License-Identifier: Apache-2.0
"""Workloads of one owner, which all go to one cluster (ADR 0022)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_INCREMENTAL, CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.explanation import DispatchState, explain_dispatch
from multikueue.dispatch.hub.actions import Assign, DispatchPlan, RemoveAssignment, Rule
from multikueue.dispatch.hub.facts import Adoption, Delegation, DispatchedWorkload, DispatchSettings, Observation
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.hub.replicas import Replica, ReplicaFacts
from tests.unit.dispatch.builders import NOW, cluster, facts, running, seen, workload

SETTINGS = DispatchSettings(dispatcher=DISPATCHER_INCREMENTAL, step_size=2)
ON_W2 = 'replica 0 of LeaderWorkerSet "llm" is on w2, and all run on one cluster'
FIRST = 'replica 0 of LeaderWorkerSet "llm" is sent first, and all run on one cluster'


def replica(index: int, cluster_name: str = "", *, chooses: bool = False) -> Replica:
    return Replica(name=f"lws-llm-{index}-abcde", index=index, cluster_name=cluster_name, chooses=chooses)


def among(own: Replica, *others: Replica) -> ReplicaFacts:
    return ReplicaFacts(owner='LeaderWorkerSet "llm"', own=own, others=others)


def of(index: int, *others: Replica, **changes: Any) -> DispatchedWorkload:
    return workload(replica=among(replica(index), *others), waits_since=NOW, **changes)


def planned(given: DispatchedWorkload, *observations: Observation, **more: Any) -> DispatchPlan:
    return plan(facts(given, *observations, **more), NOW)


def assigned(found: DispatchPlan) -> set[str]:
    return {action.cluster for action in found.actions if isinstance(action, Assign)}


class TestLeader:
    """Which replica the others follow or wait for."""

    def test_exactly_one_of_those_that_could_be_sent_may_choose(self) -> None:
        ready = [replica(index) for index in (10, 9, 2)]
        for own, *others in permutations(ready):
            leader = among(own, *others).leader
            assert leader == (None if own.index == 2 else replica(2))

    def test_one_that_has_begun_to_choose_comes_before_a_lower_index(self) -> None:
        began = replica(5, chooses=True)
        assert among(began, replica(0)).leader is None
        assert among(replica(0), began).leader == began

    def test_one_that_is_on_a_cluster_is_followed_whoever_chooses(self) -> None:
        placed = replica(7, "w2")
        assert among(replica(0, chooses=True), replica(1), placed).leader == placed

    def test_of_several_clusters_that_of_the_lowest_index_counts(self) -> None:
        others = (replica(10, "w1"), replica(9, "w2"))
        assert {among(replica(3), *each).leader for each in permutations(others)} == {replica(9, "w2")}

    def test_names_that_are_cut_have_one_order_all_the_same(self) -> None:
        cut = [Replica(name=f"lws-llm-{text}", index=index) for text, index in (("bbbbb", 1), ("aaaaa", 12))]
        assert [among(cut[0], cut[1]).leader, among(cut[1], cut[0]).leader] == [cut[1], None]


def test_only_the_cluster_of_the_others_is_a_candidate() -> None:
    found = planned(of(1, replica(0, "w2")))
    assert assigned(found) == {"w2"}
    assert [str(each) for each in found.waiting] == [f"w1: {ON_W2}"]


def test_the_first_replica_is_sent_anywhere_and_the_others_wait_for_it() -> None:
    assert assigned(planned(of(0, replica(1)))) == {"w1", "w2"}
    found = planned(of(1, replica(0)))
    assert (found.rule, found.actions) == (Rule.NOMINATE, ())
    assert found.check is not None
    assert found.check.message == f"Waiting for a worker cluster: w1: {FIRST}; w2: {FIRST}"


def test_without_another_replica_on_a_cluster_the_choice_is_free_again() -> None:
    assert assigned(planned(of(3))) == {"w1", "w2"}


@pytest.mark.parametrize("dispatcher", ["all at once", "incremental"])
def test_what_was_asked_before_another_replica_had_a_cluster_is_withdrawn(dispatcher: str) -> None:
    settings = SETTINGS if dispatcher == "incremental" else DispatchSettings()
    given = of(1, replica(0, "w2"), nominated=("w1", "w2"))
    found = planned(given, seen("w1", AssignmentPhase.RESERVED), seen("w2"), settings=settings)
    assert found.cluster_name is None, "w1 has reserved, and is not granted"
    assert found.actions == (RemoveAssignment("w1"),)
    granted = planned(given, seen("w1", AssignmentPhase.RESERVED), seen("w2", AssignmentPhase.RESERVED))
    assert granted.cluster_name == "w2"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lost_minutes": 1}, "not connected since 2026-01-01T11:59:00Z"),
        ({"takes_new_work": False}, "is cordoned and takes no new work"),
        ({"takes_new_work": False, "draining": True}, "is being drained and takes no new work"),
    ],
    ids=["lost", "cordoned", "drained"],
)
def test_while_the_cluster_of_the_others_cannot_take_it_one_waits_and_says_why(
    changes: dict[str, Any], reason: str
) -> None:
    found = planned(of(1, replica(0, "w2")), clusters=(cluster("w1"), cluster("w2", **changes)))
    assert found.actions == ()
    assert found.check is not None
    assert found.check.message == f"Waiting for a worker cluster: w1: {ON_W2}; w2: {reason}"


def test_a_cluster_that_refused_one_is_tried_again_after_a_while_and_no_other_one_is() -> None:
    until = NOW + timedelta(minutes=1)
    found = planned(of(1, replica(0, "w2")), avoided={"w2": until})
    assert assigned(found) == set()
    assert found.requeue_after == 60.0
    assert assigned(plan(facts(of(1, replica(0, "w2")), avoided={"w2": until}), until)) == {"w2"}


def test_what_runs_elsewhere_is_not_moved() -> None:
    given = running("w1", replica=among(replica(1), replica(0, "w2")))
    found = planned(given, seen("w1", AssignmentPhase.RUNNING, intent=Intent.RUN))
    assert (found.rule, found.actions, found.check) == (Rule.GRANTED, (), None)


def test_what_is_adopted_stays_where_it_runs_unless_that_is_refused() -> None:
    adopts = Adoption(cluster="w1", manager_uid="m", job_uid="j", epoch=1)
    given = of(1, replica(0, "w2"), adopts=adopts)
    assert assigned(planned(given)) == {"w1"}
    assert assigned(planned(given, seen("w1", AssignmentPhase.REFUSED))) == {"w2"}


def test_no_cluster_is_asked_to_provision_before_another_replica_has_chosen() -> None:
    delegation = Delegation(checks=("prov",))
    found = planned(of(1, replica(0), delegation=delegation))
    assert (found.rule, found.actions) == (Rule.PROVISION, ())
    failed = seen("w2", AssignmentPhase.REFUSED, intent=Intent.PROVISION)
    assert planned(of(1, replica(0), delegation=delegation), failed).rule is Rule.PROVISION
    one = planned(of(1, replica(0, "w2"), delegation=delegation), failed)
    assert one.rule is Rule.PROVISIONING_FAILED, "no other cluster is left"


def test_a_cluster_that_provisions_elsewhere_is_not_granted() -> None:
    given = of(1, replica(0, "w2"), delegation=Delegation(checks=("prov",)), nominated=("w1",))
    found = planned(given, seen("w1", AssignmentPhase.PROVISIONED, intent=Intent.PROVISION))
    assert found.cluster_name is None
    assert RemoveAssignment("w1") in found.actions


def test_each_cluster_is_explained() -> None:
    found = explain_dispatch(facts(of(1, replica(0, "w2")), settings=SETTINGS), NOW)
    assert found is not None
    states = {each.cluster: (each.state, each.reason) for each in found.clusters}
    assert states["w1"] == (DispatchState.UNSUITABLE, ON_W2)
    assert states["w2"][0] is DispatchState.NOT_NOMINATED


def test_a_workload_that_is_not_pending_is_not_concerned() -> None:
    given = workload(CheckState.RETRY, replica=among(replica(1), replica(0, "w2")))
    assert planned(given).rule is Rule.WAITS_FOR_EVICTION
