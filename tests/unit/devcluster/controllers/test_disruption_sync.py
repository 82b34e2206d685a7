# SPDX-License-Identifier: Apache-2.0
"""How many disruptions a budget allows, which evicted pods count again, which conditions of pods are out of date."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster import disruption_budgets
from devcluster.controllers import disruption_sync
from devcluster.controllers.disruption_sync import PodExpectation
from multikueue.api.objects import JsonObject
from tests.unit.devcluster.controllers.app_builders import LABELS, NOW, ago, pod

THREE = [pod("a"), pod("b"), pod("c")]


def budget(status: JsonObject | None = None, **spec: Any) -> JsonObject:
    metadata = {"name": "budget", "namespace": "ns", "uid": "budget", "generation": 2}
    return {"metadata": metadata, "spec": {"selector": {"matchLabels": LABELS}, **spec}, "status": status or {}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"minAvailable": 2}, PodExpectation(3, 2), id="a number of pods that exist"),
        pytest.param({"minAvailable": "50%"}, PodExpectation(5, 3), id="a share, rounded up"),
        pytest.param({"maxUnavailable": 2}, PodExpectation(5, 3), id="a number below the scale"),
        pytest.param({"maxUnavailable": "30%"}, PodExpectation(5, 3), id="a share below the scale, rounded up"),
        pytest.param({"maxUnavailable": 9}, PodExpectation(5, 0), id="more than the scale"),
        pytest.param({"maxUnavailable": 1, "minAvailable": 5}, PodExpectation(5, 4), id="both"),
        pytest.param({}, PodExpectation(0, 0), id="neither"),
    ],
)
def test_a_budget_expects(spec: JsonObject, expected: PodExpectation) -> None:
    assert disruption_sync.expectation(budget(**spec), matching=3, scale=5) == expected


@pytest.mark.parametrize(
    ("pods", "expected", "allowed"),
    [
        pytest.param(THREE, PodExpectation(3, 1), 2, id="all that are not needed"),
        pytest.param(THREE, PodExpectation(3, 4), 0, id="none if more are needed"),
        pytest.param(THREE, PodExpectation(0, 0), 0, id="none if no pods are expected"),
        pytest.param([*THREE, pod("d", ready=False)], PodExpectation(4, 1), 2, id="none for one that is not ready"),
        pytest.param([*THREE, pod("d", deleting=True)], PodExpectation(4, 1), 2, id="none for one that is deleted"),
    ],
)
def test_a_budget_allows(pods: list[JsonObject], expected: PodExpectation, allowed: int) -> None:
    status = disruption_sync.plan(budget(), pods, expected, now=NOW).status
    assert status["disruptionsAllowed"] == allowed
    assert status["observedGeneration"] == 2
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == disruption_budgets.expected_condition(allowed)


def test_an_evicted_pod_counts_as_gone_for_two_minutes() -> None:
    noted = budget({"disruptedPods": {"a": ago(30), "b": ago(60), "c": ago(121), "gone": ago(1)}})
    found = disruption_sync.plan(noted, THREE, PodExpectation(3, 0), now=NOW)
    assert found.status["disruptedPods"] == {"a": ago(30), "b": ago(60)}
    assert found.status["currentHealthy"] == 1
    assert [each["metadata"]["name"] for each in found.overdue] == ["c"]
    assert found.after == 60


def test_a_pod_with_the_name_of_an_evicted_one_counts() -> None:
    noted = budget({"disruptedPods": {"a": ago(1), "b": ago(1)}})
    found = disruption_sync.plan(noted, THREE, PodExpectation(3, 0), gone={"a"}, now=NOW)
    assert found.status["disruptedPods"] == {"b": ago(1)}
    assert found.status["currentHealthy"] == 2


def test_a_status_that_is_right_stays() -> None:
    first = disruption_sync.plan(budget(), THREE, PodExpectation(3, 1), now=NOW).status
    later = NOW.replace(hour=13)
    assert disruption_sync.plan(budget(first), THREE, PodExpectation(3, 1), now=later).status == first


def test_a_budget_that_cannot_be_counted_allows_nothing_and_keeps_its_counts() -> None:
    before = disruption_sync.plan(budget(), THREE, PodExpectation(3, 1), now=NOW).status
    status = disruption_sync.failed(budget(before), "why", now=NOW)
    assert status["disruptionsAllowed"] == 0
    assert status["currentHealthy"] == 3
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "SyncFailed", "why")


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param({"matchLabels": LABELS}, True, id="its labels"),
        pytest.param({}, True, id="everything"),
        pytest.param(None, False, id="nothing"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False, id="others"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "In"}]}, False, id="what is invalid"),
    ],
)
def test_a_budget_selects(selector: JsonObject | None, matches: bool) -> None:
    assert disruption_budgets.selects(budget(selector=selector), LABELS) is matches


@pytest.mark.parametrize(
    ("made", "changes", "seconds"),
    [
        pytest.param(pod("a"), {}, 60.0, id="later"),
        pytest.param(pod("a"), {"lastTransitionTime": ago(500)}, 0.0, id="now"),
        pytest.param(pod("a"), {"lastTransitionTime": None}, 0.0, id="now if its time is not known"),
        pytest.param(pod("a"), {"status": "False"}, None, id="never if it was taken back"),
        pytest.param(pod("a"), {"reason": "TerminationByKubelet"}, None, id="never if a kubelet gave it"),
        pytest.param(pod("a", "Failed"), {}, None, id="never if the pod has ended"),
        pytest.param(pod("a", deleting=True), {}, None, id="never if the pod is being deleted"),
    ],
)
def test_the_condition_of_a_pod_is_out_of_date(made: JsonObject, changes: JsonObject, seconds: float | None) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": ago(60), **changes}
    made = {**made, "status": {**made["status"], "conditions": [condition]}}
    assert disruption_sync.stale_after(made, now=NOW) == seconds


def test_a_pod_without_the_condition_is_never_out_of_date() -> None:
    assert disruption_sync.stale_after(pod("a"), now=NOW) is None
