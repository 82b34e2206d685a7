# SPDX-License-Identifier: Apache-2.0
"""How many pods a ReplicaSet creates or deletes, which ones go first, and what its status counts."""

from __future__ import annotations

import pytest

from devcluster.controllers import replica_set_sync
from devcluster.controllers.dependents import selects
from devcluster.controllers.replica_set_sync import WriteFailure, first_to_go
from multikueue.api.objects import JsonObject
from tests.unit.devcluster.controllers.app_builders import NOW, ago, app, pod


@pytest.mark.parametrize(
    ("pods", "missing"),
    [
        pytest.param([], 3, id="none are there"),
        pytest.param([pod("a"), pod("b")], 1, id="one is missing"),
        pytest.param([pod("a"), pod("b"), pod("c", deleting=True)], 1, id="one is being deleted"),
        pytest.param([pod("a"), pod("b"), pod("c", "Failed")], 1, id="one has failed"),
        pytest.param([pod("a"), pod("b"), pod("c", "Succeeded")], 1, id="one has ended"),
        pytest.param([pod(name) for name in "abcde"], -2, id="two are too many"),
    ],
)
def test_active_pods_are_counted(pods: list[JsonObject], missing: int) -> None:
    assert replica_set_sync.missing(app("set"), pods) == missing


def test_a_set_that_is_deleted_creates_nothing() -> None:
    gone = app("set")
    gone["metadata"]["deletionTimestamp"] = ago(0)
    assert replica_set_sync.missing(gone, []) == 0


def test_no_more_than_500_pods_are_created_at_once_in_batches_that_double() -> None:
    assert replica_set_sync.missing(app("set", replicas=2000), []) == 500
    assert replica_set_sync.batches(12) == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        pytest.param(pod("a", node=""), pod("b", "Pending"), id="not bound before pending"),
        pytest.param(pod("a", "Pending"), pod("b"), id="pending before running"),
        pytest.param(pod("a", ready=False), pod("b", cost="-1"), id="not ready before ready"),
        pytest.param(pod("a", cost="-1"), pod("b"), id="a lower cost first"),
        pytest.param(pod("a", cost="many"), pod("b", cost="1"), id="an invalid cost is zero"),
        pytest.param(pod("a", node="full"), pod("b", since=1), id="the node with more pods first"),
        pytest.param(pod("a", since=5), pod("b", since=500), id="ready for a shorter time first"),
        pytest.param(pod("a", restarts=3), pod("b", age=1), id="restarted more often first"),
        pytest.param(pod("b", age=5), pod("a", age=500), id="younger first"),
        pytest.param(pod("a", age=70), pod("b", age=65), id="about as old: by uid"),
    ],
)
def test_the_pod_that_loses_least_goes_first(first: JsonObject, other: JsonObject) -> None:
    found = first_to_go([other, first], neighbours={"full": 2, "node-1": 1}, now=NOW)
    assert found == [first, other]


def test_a_pod_is_available_when_it_was_ready_for_long_enough() -> None:
    pods = [pod("old", since=60), pod("new", since=10), pod("not", ready=False)]
    status, after = replica_set_sync.status_of(app("set", minReadySeconds=30), pods, failure=None, now=NOW)
    assert (status["readyReplicas"], status["availableReplicas"], after) == (2, 1, 20.0)


def test_labels_and_pods_that_end_are_counted() -> None:
    bare = pod("bare")
    bare["metadata"]["labels"] = {}
    pods = [pod("a"), bare, pod("b", deleting=True)]
    status, _ = replica_set_sync.status_of(app("set"), pods, failure=None, now=NOW)
    assert (status["replicas"], status["fullyLabeledReplicas"], status["terminatingReplicas"]) == (2, 1, 1)


def test_a_refusal_is_a_condition_until_it_is_over() -> None:
    refused, _ = replica_set_sync.status_of(app("set"), [], failure=WriteFailure("FailedCreate", "no"), now=NOW)
    (condition,) = refused["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == ("ReplicaFailure", "True", "no")
    again = app("set", refused)
    later, _ = replica_set_sync.status_of(again, [], failure=WriteFailure("FailedCreate", "other"), now=NOW)
    assert later["conditions"] == [condition]
    over, _ = replica_set_sync.status_of(again, [], failure=None, now=NOW)
    assert "conditions" not in over


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param({"matchLabels": {"app": "web"}}, True, id="its labels"),
        pytest.param({"matchLabels": {"app": "web", "tier": "1"}}, False, id="one label more"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]}, True, id="an expression"
        ),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "In"}]}, False, id="an invalid expression"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_a_selector_matches(selector: JsonObject, matches: bool) -> None:
    assert selects({"spec": {"selector": selector}}, {"app": "web"}) is matches
