# SPDX-License-Identifier: Apache-2.0
"""Which pod sets capacity is requested for, and how they are merged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multikueue.api.objects import JsonObject
from multikueue.jobs.framework.pod_templates import pod_set_infos
from multikueue.provisioning.pod_sets import requested_pod_sets
from multikueue.provisioning.settings import MergePolicy
from tests.unit.provisioning.builders import SETTINGS, pod_set, workload

FLAVORS: dict[str, JsonObject] = {
    "spot": {"spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}}
}


def test_every_pod_set_is_requested_when_no_resource_is_named() -> None:
    found = requested_pod_sets(workload(pod_set("a"), pod_set("b", count=4)), SETTINGS, {})
    assert [(each.names, each.count) for each in found] == [(("a",), 1), (("b",), 4)]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"requests": {"gpu": "1"}}, id="request"),
        pytest.param(
            {"initContainers": [{"name": "i", "resources": {"limits": {"gpu": "1"}}}]}, id="limit of an init container"
        ),
        pytest.param({"overhead": {"gpu": "1"}}, id="overhead"),
        pytest.param({"resources": {"requests": {"gpu": "1"}}}, id="pod level"),
    ],
)
def test_a_pod_set_with_one_managed_resource_is_requested(spec: dict[str, object]) -> None:
    managed = replace(SETTINGS, managed_resources=frozenset({"gpu", "tpu"}))
    found = requested_pod_sets(workload(pod_set("plain"), pod_set("g", **spec)), managed, {})  # type: ignore[arg-type]
    assert [each.names for each in found] == [("g",)]


def test_a_pod_set_without_pods_is_left_out() -> None:
    assert requested_pod_sets(workload(pod_set("a", count=0)), SETTINGS, {}) == ()


def test_partial_admission_requests_the_admitted_count() -> None:
    (found,) = requested_pod_sets(workload(pod_set("a", count=9), counts={"a": 4}), SETTINGS, {})
    assert found.count == 4


def test_the_flavors_labels_and_tolerations_are_in_the_template() -> None:
    own = {"key": "own", "operator": "Exists"}
    given = workload(pod_set("a", nodeSelector={"zone": "z"}, tolerations=[own]), flavor="spot")
    (found,) = requested_pod_sets(given, SETTINGS, FLAVORS)
    assert found.template["spec"]["nodeSelector"] == {"pool": "spot", "zone": "z"}
    assert found.template["spec"]["tolerations"] == [own, {"key": "spot", "operator": "Exists"}]
    assert given["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] == {"zone": "z"}


def test_capacity_is_requested_for_the_same_one_of_two_values_of_a_label_as_pods_are_started_with() -> None:
    given = workload(pod_set("a"))
    assignment = {"name": "a", "count": 1, "flavors": {"cpu": "spot", "gpu": "a100"}}
    given["status"]["admission"]["podSetAssignments"] = [assignment]
    flavors = {**FLAVORS, "a100": {"spec": {"nodeLabels": {"pool": "a100"}}}}
    (found,) = requested_pod_sets(given, SETTINGS, flavors)
    (started,) = pod_set_infos(given, flavors)
    assert found.template["spec"]["nodeSelector"] == started.node_selector == {"pool": "a100"}


def test_a_flavor_that_was_deleted_adds_nothing() -> None:
    (found,) = requested_pod_sets(workload(flavor="gone"), SETTINGS, FLAVORS)
    assert "nodeSelector" not in found.template["spec"]


@pytest.mark.parametrize(
    ("policy", "merged"),
    [
        pytest.param(None, [("a",), ("b",), ("c",), ("d",)], id="no policy"),
        pytest.param(MergePolicy.IDENTICAL_TEMPLATES, [("a", "c"), ("b",), ("d",)], id="identical templates"),
        pytest.param(MergePolicy.IDENTICAL_SCHEDULING, [("a", "b", "c"), ("d",)], id="identical requirements"),
    ],
)
def test_pod_sets_are_merged_by_the_policy(policy: MergePolicy | None, merged: list[tuple[str, ...]]) -> None:
    given = workload(
        pod_set("a"),
        pod_set("b", hostNetwork=True),
        pod_set("c", count=2),
        pod_set("d", nodeSelector={"zone": "z"}),
    )
    found = requested_pod_sets(given, replace(SETTINGS, merge_policy=policy), {})
    assert [each.names for each in found] == merged
    assert sum(each.count for each in found) == 5
