# SPDX-License-Identifier: Apache-2.0
"""The texts of causes, and the check's message that is made of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import Phase
from multikueue.federation import waits
from multikueue.federation.facts import CheckFacts, ClusterFacts
from multikueue.federation.plan import plan
from multikueue.federation.standing_room import NODES, Fit, Lack, Level
from tests.unit.federation.builders import NOW, cluster, facts, seen, workload

FULL = {"reason": "NoRoom", "message": "cpu: 5 wanted, at most 4 free"}


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


def test_an_avoided_cluster_tells_until_when() -> None:
    until = NOW + timedelta(minutes=3)
    text = "failed this workload, is avoided until 2026-01-01T12:03:00Z"
    assert waits.unusable(cluster("w"), {"w": until}, NOW) == text
    assert waits.unusable(cluster("w"), {"w": until}, until) == ""


@pytest.mark.parametrize(
    ("fit", "want"),
    [
        pytest.param(
            Fit(Level.LATER, (Lack("cpu", 3000), Lack("memory", 1 << 30))),
            "no free quota: short 3 cpu in flavor spot, short 1Gi memory",
            id="taken by others",
        ),
        pytest.param(
            Fit(Level.LATER, (Lack("cpu", 500, on_one_node=True),)),
            "no free quota: short 500m cpu in flavor spot on one node",
            id="in pieces",
        ),
        pytest.param(
            Fit(Level.NEVER, (Lack("gpu", 8),)), "not enough even when it is empty: short 8 gpu", id="too large"
        ),
        pytest.param(
            Fit(Level.NEVER, (Lack(NODES),)),
            "not enough even when it is empty: no node has the labels it selects and only taints it tolerates",
            id="no node for it",
        ),
        pytest.param(Fit(Level.NOW), "", id="room"),
    ],
)
def test_a_shortage_names_amount_resource_and_flavor(fit: Fit, want: str) -> None:
    assert waits.shortage(workload(flavors={"cpu": "spot"}), fit) == want


def test_amounts_do_not_make_another_cause() -> None:
    three = "Waiting for a worker cluster: worker-1: no free quota: short 3 cpu in flavor spot"
    assert waits.same_cause(three, three.replace("3", "2500m"))
    assert not waits.same_cause(three, three.replace("worker-1", "worker-2"))
    assert not waits.same_cause(three, three.replace("cpu", "gpu"))
    since = "w: not connected since 2026-01-01T11:55:00Z"
    assert not waits.same_cause(since, since.replace("11:55", "11:56"))


class TestTheMessageOfTheCheck:
    def test_when_every_nominated_cluster_has_declined_it_says_why_for_each(self) -> None:
        given = facts(
            workload(nominated=("w1", "w2")),
            seen("w1", **FULL),
            seen("w2", Phase.REFUSED, reason="NamespaceNotFound", message='no namespace "ns"'),
            clusters=(cluster("w1"), cluster("w2"), cluster("w3", takes_new_work=False)),
        )
        check = plan(given, NOW).check
        assert check is not None
        assert check.message == (
            "Waiting for a worker cluster: w3: is cordoned and takes no new work;"
            ' w1: cpu: 5 wanted, at most 4 free; w2: no namespace "ns"'
        )

    def test_while_one_may_still_answer_nothing_is_said(self) -> None:
        given = facts(workload(nominated=("w1", "w2")), seen("w1", **FULL), seen("w2"))
        assert plan(given, NOW).check is None

    def test_another_amount_alone_is_not_written(self) -> None:
        given = facts(workload(nominated=("w1", "w2")), seen("w1", **FULL), seen("w2", **FULL))
        said = plan(given, NOW).check
        assert said is not None
        told = workload(
            nominated=("w1", "w2"), check=CheckFacts(name="mk", state=CheckState.PENDING, message=said.message)
        )
        less = {**FULL, "message": "cpu: 5 wanted, at most 3 free"}
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
