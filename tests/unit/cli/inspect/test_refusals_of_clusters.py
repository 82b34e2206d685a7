# SPDX-License-Identifier: Apache-2.0
"""`mkctl explain` begins with the reasons of the clusters that refuse a workload, and what to do about them."""

from __future__ import annotations

import pytest

from multikueue.api.resource import CLUSTER_REPORTS, REMOTE_ASSIGNMENTS
from tests.unit.cli.inspect.test_live_explanation import explain, hub, member, obj, report, standings, workload


@pytest.mark.parametrize(
    ("reason", "state", "step"),
    [
        pytest.param(
            'not found in namespace "ns": ServiceAccount "nope", Secret "nope"',
            "Refused",
            "create what is missing on one of the clusters, in that namespace",
            id="an object is missing",
        ),
        pytest.param(
            'no namespace "ns"', "Refused", "create the namespace on one of the clusters", id="no such namespace"
        ),
        pytest.param(
            'namespace "ns" does not exist',
            "Refused",
            "create the namespace on one of the clusters",
            id="its agent found no such namespace",
        ),
        pytest.param(
            "A job of that name exists that does not belong to this assignment",
            "Refused",
            "correct what the reason names, in the job or on one of the clusters",
            id="any other cause",
        ),
        pytest.param(
            "insufficient free capacity: short 1 cpu",
            "NoCapacity",
            "nothing to do: it is dispatched when a cluster has free capacity",
            id="no capacity now",
        ),
    ],
)
def test_the_reason_that_all_push_clusters_gave_comes_before_their_reply(reason: str, state: str, step: str) -> None:
    clusters = [member(name, agent=False) for name in ("east", "west")]
    waiting = workload(check={"message": f"Waiting for a worker cluster: east: {reason}; west: {reason}"})
    found = explain(hub(waiting, clusters=clusters))
    assert found.summary == f"has quota, but no cluster accepts it: east: {reason}; west: {reason}"
    assert found.next_step == step
    assert standings(found) == {"east": state, "west": state}


def test_a_push_cluster_that_has_not_replied_is_waited_for() -> None:
    found = explain(hub(workload(check={}), clusters=[member("west", agent=False)]))
    assert found.summary == "has quota and waits for the reply of west"


def test_a_refusal_of_a_cluster_with_an_agent_has_a_next_step() -> None:
    reason = 'not found in namespace "ns": Secret "nope"'
    refused = obj(
        "wl-1",
        namespace="mk-w1",
        spec={"workload": {"namespace": "ns", "name": "wl", "uid": "uid-wl"}, "epoch": 1, "intent": "Reserve"},
        annotations={"multikueue.io/cluster": "w1"},
        status={"epoch": 1, "phase": "Refused", "reason": "DependencyNotFound", "message": reason},
    )
    found = explain(hub(workload(check={}), clusters=[member("w1")], more={REMOTE_ASSIGNMENTS: [refused]}))
    assert found.summary == f"has quota, but no cluster accepts it: w1: {reason}"
    assert found.next_step == "create what is missing on one of the clusters, in that namespace"


def test_a_namespace_that_a_report_lacks_has_a_next_step() -> None:
    without = report("w1", "3", written="2026-01-01T12:00:50Z")
    without["status"]["namespaces"] = ["other"]
    found = explain(hub(workload(check={}), clusters=[member("w1")], more={CLUSTER_REPORTS: [without]}))
    assert found.summary == 'has quota, but no cluster accepts it: w1: no namespace "ns"'
    assert found.next_step == "create the namespace on one of the clusters"
