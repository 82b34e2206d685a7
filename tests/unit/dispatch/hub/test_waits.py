# SPDX-License-Identifier: Apache-2.0
"""The texts of causes, and the check's message that is made of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.constants import (
    DISPATCHER_ALL_AT_ONCE,
    DISPATCHER_CAPACITY,
    DISPATCHER_INCREMENTAL,
    CheckState,
)
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.dispatch.dispatchers.cluster_capacity import NODES, ClusterCapacity, Fit, Lack, Level, Report
from multikueue.dispatch.hub import waits
from multikueue.dispatch.hub.actions import Assign, WaitingReason
from multikueue.dispatch.hub.facts import CheckFacts, ClusterFacts, DispatchSettings, OwnerFacts
from multikueue.dispatch.hub.plan import plan
from tests.unit.dispatch.builders import NOW, cluster, facts, seen, workload

FULL: dict[str, Any] = {"reason": "NoCapacity", "message": "cpu: 5 requested, at most 4 free"}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(cluster("w", lost_minutes=5), "not connected since 2026-01-01T11:55:00Z", id="a lost link"),
        pytest.param(
            cluster("w", lost_minutes=5, reason="BadKubeConfig", message="no such Secret"),
            "BadKubeConfig: no such Secret",
            id="a bad kubeconfig",
        ),
        pytest.param(
            cluster("w", lost_minutes=5, reason="NotInConfig", message="the MultiKueueCluster does not exist"),
            "the MultiKueueCluster does not exist",
            id="a cluster that is not there",
        ),
        pytest.param(cluster("w", takes_new_work=False), "is cordoned and takes no new work", id="cordoned"),
        pytest.param(
            cluster("w", takes_new_work=False, draining=True),
            "is being drained and takes no new work",
            id="drained",
        ),
        pytest.param(cluster("w"), "", id="nothing against it"),
    ],
)
def test_each_cause_has_its_text(given: ClusterFacts, want: str) -> None:
    assert waits.unusable(given, {}, NOW) == want


def test_an_avoided_cluster_reports_until_when() -> None:
    until = NOW + timedelta(minutes=3)
    text = "failed this workload, is avoided until 2026-01-01T12:03:00Z"
    assert waits.unusable(cluster("w"), {"w": until}, NOW) == text
    assert waits.unusable(cluster("w"), {"w": until}, until) == ""


@pytest.mark.parametrize(
    ("fit", "want"),
    [
        pytest.param(
            Fit(Level.LATER, (Lack("cpu", 3000), Lack("memory", 1 << 30))),
            "insufficient free capacity: short 3 cpu, short 1Gi memory",
            id="taken by others",
        ),
        pytest.param(
            Fit(Level.LATER, (Lack("cpu", 500, on_one_node=True),)),
            "insufficient free capacity: short 500m cpu on one node",
            id="in pieces",
        ),
        pytest.param(
            Fit(Level.NEVER, (Lack("gpu", 8),)),
            "insufficient capacity even when it is empty: short 8 gpu",
            id="too large",
        ),
        pytest.param(
            Fit(Level.NEVER, (Lack(NODES),)),
            "insufficient capacity even when it is empty: no node matches its node selector, affinity and tolerations",
            id="no node for it",
        ),
        pytest.param(
            Fit(Level.LATER, (Lack("cpu", 1000),), queue="LocalQueue ns/q of ClusterQueue cq: free 3 of 10 cpu"),
            "insufficient free quota: LocalQueue ns/q of ClusterQueue cq: free 3 of 10 cpu, short 1 cpu",
            id="quota used by others",
        ),
        pytest.param(
            Fit(Level.NEVER, (Lack("cpu", 1000),), queue="LocalQueue ns/q of ClusterQueue c: free 3 of 3 cpu"),
            "insufficient quota even when it is empty: LocalQueue ns/q of ClusterQueue c: free 3 of 3 cpu, short 1 cpu",
            id="more than the quota",
        ),
        pytest.param(Fit(Level.NOW), "", id="it fits"),
    ],
)
def test_a_shortage_names_amount_and_resource(fit: Fit, want: str) -> None:
    assert waits.shortage(fit) == want


def test_amounts_do_not_make_another_cause() -> None:
    three = "Waiting for a worker cluster: worker-1: insufficient free capacity: short 3 cpu"
    assert waits.same_cause(three, three.replace("3", "2500m"))
    assert not waits.same_cause(three, three.replace("worker-1", "worker-2"))
    assert not waits.same_cause(three, three.replace("cpu", "gpu"))
    since = "w: not connected since 2026-01-01T11:55:00Z"
    assert not waits.same_cause(since, since.replace("11:55", "11:56"))


class TestTheMessageOfTheCheck:
    def test_when_every_nominated_cluster_has_declined_it_reports_why_for_each(self) -> None:
        given = facts(
            workload(nominated=("w1", "w2")),
            seen("w1", **FULL),
            seen("w2", AssignmentPhase.REFUSED, reason="NamespaceNotFound", message='no namespace "ns"'),
            clusters=(cluster("w1"), cluster("w2"), cluster("w3", takes_new_work=False)),
        )
        check = plan(given, NOW).check
        assert check is not None
        assert check.message == (
            "Waiting for a worker cluster: w3: is cordoned and takes no new work;"
            ' w1: cpu: 5 requested, at most 4 free; w2: no namespace "ns"'
        )

    def test_while_one_may_still_answer_nothing_is_reported(self) -> None:
        given = facts(workload(nominated=("w1", "w2")), seen("w1", **FULL), seen("w2"))
        assert plan(given, NOW).check is None

    def test_another_amount_alone_is_not_written(self) -> None:
        given = facts(workload(nominated=("w1", "w2")), seen("w1", **FULL), seen("w2", **FULL))
        said = plan(given, NOW).check
        assert said is not None
        told = workload(
            nominated=("w1", "w2"), check=CheckFacts(name="mk", state=CheckState.PENDING, message=said.message)
        )
        less = {**FULL, "message": "cpu: 5 requested, at most 3 free"}
        assert (
            plan(
                replace(given, workload=told, observations={"w1": seen("w1", **less), "w2": seen("w2", **FULL)}), NOW
            ).check
            is None
        )
        other = {**FULL, "message": "no node is ready"}
        found = plan(
            replace(given, workload=told, observations={"w1": seen("w1", **other), "w2": seen("w2", **FULL)}), NOW
        )
        assert found.check is not None
        assert "w1: no node is ready" in found.check.message


DISPATCHER_NAMES = (DISPATCHER_CAPACITY, DISPATCHER_ALL_AT_ONCE, DISPATCHER_INCREMENTAL, "example.com/cheapest-first")


@pytest.mark.parametrize("dispatcher", DISPATCHER_NAMES)
def test_a_cluster_that_does_not_serve_the_kind_is_not_nominated_by_any_dispatcher(dispatcher: str) -> None:
    job_sets = OwnerFacts(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="j")
    clusters = (
        reporting("jobs-only", ("batch/v1", "Job")),
        reporting("nothing"),
        reporting("job-sets", ("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet")),
        cluster("of-an-old-agent", capacity=ClusterCapacity(None)),
    )
    of = workload(owner=job_sets, nominated=("jobs-only", "nothing", "job-sets", "of-an-old-agent"))
    planned = plan(facts(of, clusters=clusters, settings=DispatchSettings(dispatcher=dispatcher)), NOW)
    assigned = {action.cluster for action in planned.actions if isinstance(action, Assign)}
    assert assigned
    assert assigned <= {"job-sets", "of-an-old-agent"}
    for name in ("jobs-only", "nothing"):
        assert WaitingReason(name, "kind JobSet is not served by the cluster's agent") in planned.waiting


def test_a_kind_is_served_in_whatever_version() -> None:
    of = workload(owner=OwnerFacts(api_version="ray.io/v1alpha1", kind="RayJob", name="j"))
    assert waits.kind_served(of, reporting("w", ("ray.io/v1", "RayJob"))) == ""
    assert waits.kind_served(of, reporting("w", ("other.io/v1", "RayJob"))) != ""


def reporting(name: str, *kinds: tuple[str, str]) -> ClusterFacts:
    return cluster(name, capacity=ClusterCapacity(Report(kinds=frozenset(kinds))), reported_at=NOW)
