# SPDX-License-Identifier: Apache-2.0
"""Workloads whose pods need objects that the agents look for (ADR 0020)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_CAPACITY, CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, report_of
from multikueue.dispatch.hub.actions import Assign, DispatchPlan, RemoveAssignment, Rule
from multikueue.dispatch.hub.facts import ClusterFacts, Delegation, DispatchSettings, Observation
from multikueue.dispatch.hub.plan import plan
from multikueue.dispatch.worker.assignment_state import DEPENDENCY_MISSING, NAME_CONFLICT
from multikueue.dispatch.worker.ledger import Demand
from tests.unit.dispatch.builders import NOW, cluster, facts, seen, workload

SETTINGS = DispatchSettings(dispatcher=DISPATCHER_CAPACITY)
NEEDS: dict[str, Any] = {"dependency_kinds": frozenset({"Secret"}), "waits_since": NOW}
ONE_CPU = (Demand(count=1, requests={"cpu": 1000}),)


def looking(name: str, free: int = 8, kinds: tuple[str, ...] = ("Secret",)) -> ClusterFacts:
    """A cluster with free capacity whose agent looks for objects of these kinds."""
    amounts = {"allocatable": "10", "free": str(free), "largestFree": str(free), "largest": "10"}
    capacity = [{"name": each, **amounts} for each in ("cpu", "pods")]
    status = {
        "groups": [{"nodes": 1, "capacity": capacity}],
        "nodes": {"ready": 1, "total": 1},
        "dependencyKinds": list(kinds),
    }
    return cluster(name, capacity=ClusterCapacity(report=report_of(status)), reported_at=NOW)


def lacks(name: str, **changes: Any) -> Observation:
    """A cluster on which an object is missing."""
    message = 'not found in namespace "ns": Secret "s"'
    return seen(name, AssignmentPhase.REFUSED, **({"reason": DEPENDENCY_MISSING, "message": message} | changes))


def planned(*observations: Observation, clusters: tuple[ClusterFacts, ...], **changes: Any) -> DispatchPlan:
    of = workload(**({**NEEDS, "demands": ONE_CPU} | changes))
    return plan(facts(of, *observations, clusters=clusters, settings=SETTINGS), NOW)


W1, W2 = looking("w1", 9), looking("w2", 5)


def test_the_best_cluster_is_asked_and_not_granted() -> None:
    found = planned(clusters=(W1, W2))
    assert (found.rule, found.actions, found.nominated) == (Rule.NOMINATE, (Assign("w1"),), ("w1",))
    assert planned(clusters=(W1, W2), dependency_kinds=frozenset()).rule is Rule.GRANT_AT_ONCE
    assert planned(clusters=(looking("w1", 9, ()), W2)).rule is Rule.GRANT_AT_ONCE, "its agent does not look"


def test_the_next_is_asked_at_once_and_the_one_that_lacks_it_stays_nominated() -> None:
    found = planned(lacks("w1"), clusters=(W1, W2), nominated=("w1",))
    assert found.actions == (Assign("w2"),)
    assert set(found.nominated or ()) == {"w1", "w2"}


def test_if_each_lacks_something_the_check_has_the_reason_of_each() -> None:
    found = planned(lacks("w1"), lacks("w2"), clusters=(W1, W2), nominated=("w1", "w2"))
    assert found.actions == ()
    assert found.check is not None
    assert found.check.state is CheckState.PENDING
    missing = 'not found in namespace "ns": Secret "s"'
    assert found.check.message == f"Waiting for a worker cluster: w1: {missing}; w2: {missing}"


def test_the_cluster_that_gets_it_is_granted() -> None:
    reserved = seen("w1", AssignmentPhase.RESERVED)
    found = planned(reserved, lacks("w2"), clusters=(W1, W2), nominated=("w1", "w2"))
    assert (found.rule, found.cluster_name) == (Rule.GRANT, "w1")
    assert RemoveAssignment("w2") in found.actions


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lacks("w1", reason=NAME_CONFLICT), id="another reason"),
        pytest.param(lacks("w1", status_epoch=0), id="an answer for another epoch"),
    ],
)
def test_another_answer_does_not_send_the_question_on(answer: Observation) -> None:
    found = planned(answer, clusters=(W1, W2), nominated=("w1",))
    assert found.actions == ()


def test_a_cluster_that_does_not_look_is_granted_when_the_better_one_lacks_something() -> None:
    found = planned(lacks("w1"), clusters=(W1, looking("w2", 5, ())), nominated=("w1",))
    assert (found.rule, found.cluster_name) == (Rule.GRANT_AT_ONCE, "w2")
    assert RemoveAssignment("w1") in found.actions


def test_with_a_delegated_provisioning_check_a_cluster_with_free_capacity_is_granted_at_once() -> None:
    found = planned(clusters=(W1, W2), delegation=Delegation(checks=("prov",), retry_seconds=60))
    assert (found.rule, found.cluster_name) == (Rule.GRANT_AT_ONCE, "w1")
    assert Assign("w1", Intent.RUN) in found.actions


def test_a_cluster_that_is_asked_already_is_not_asked_again() -> None:
    waiting = replace(seen("w1"), status_epoch=0)
    assert planned(waiting, clusters=(W1, W2), nominated=("w1",)).actions == ()
