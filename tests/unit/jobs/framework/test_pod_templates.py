# SPDX-License-Identifier: Apache-2.0
"""What admission added to a pod template is taken out of it again; templates that mean the same are the same."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import TOPOLOGY_SCHEDULING_GATE
from multikueue.jobs.framework.pod_templates import injected, pod_set_infos, restored_metadata, restored_spec, same
from multikueue.jobs.framework.protocol import PodSetInfo

REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"


def info(request: str) -> PodSetInfo:
    return PodSetInfo(name="main", count=1, annotations={REQUEST: request, CLASS: "check-capacity"})


def test_the_next_request_can_be_consumed_where_the_workload_does_not_know_the_original_template() -> None:
    template: dict[str, Any] = {"metadata": {"annotations": {"mine": "kept"}}, "spec": {}}
    started = injected(template, info("w-check-2"))
    stopped = {**started, "metadata": restored_metadata(started["metadata"], {})}
    assert stopped == template
    assert injected(stopped, info("w-check-1"))["metadata"]["annotations"][REQUEST] == "w-check-1"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"a": None, "b": 1}, {"b": 1, "c": {}}, id="a field without a value is like an absent one"),
        pytest.param({"a": []}, {}, id="so is an empty list"),
        pytest.param({"a": {"b": {"c": None}}}, {"a": {}}, id="and an object that has only such fields"),
        pytest.param({"a": [{"b": None}]}, {"a": ({},)}, id="within lists as well"),
    ],
)
def test_json_that_means_the_same_is_the_same_in_either_order(one: object, other: object) -> None:
    assert same(one, other)
    assert same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"a": 0}, {}, id="zero is a value"),
        pytest.param({"a": ""}, {"a": None}, id="empty text is a value"),
        pytest.param({"a": [None]}, {"a": []}, id="an entry of a list counts even if it is null"),
        pytest.param({"a": [{}]}, {}, id="and if it is empty"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, id="an inner field differs"),
        pytest.param({}, [], id="an object is no list"),
    ],
)
def test_json_that_means_something_else_is_not_the_same_in_either_order(one: object, other: object) -> None:
    assert not same(one, other)
    assert not same(other, one)


GATES = ({"name": TOPOLOGY_SCHEDULING_GATE},)


def admitted(*assignments: dict[str, Any]) -> dict[str, Any]:
    pod_sets = [{"name": each["name"], "count": 1, "template": {}} for each in assignments]
    admission = {"clusterQueue": "q", "podSetAssignments": list(assignments)}
    return {"metadata": {"name": "w"}, "spec": {"podSets": pod_sets}, "status": {"admission": admission}}


def test_the_pods_of_a_pod_set_with_domains_wait_for_them() -> None:
    found = pod_set_infos(
        admitted(
            {"name": "placed", "topologyAssignment": {"levels": ["rack"], "slices": [{"domainCount": 1}]}},
            {"name": "later", "delayedTopologyRequest": "Ready"},
            {"name": "free"},
        ),
        {},
    )
    assert [info.scheduling_gates for info in found] == [GATES, (), ()]


def test_the_gate_of_a_topology_is_added_once_beside_others_and_taken_out_of_the_template_again() -> None:
    own = {"name": "example.com/own"}
    template: dict[str, Any] = {"spec": {"schedulingGates": [own]}}
    gated = PodSetInfo(name="main", count=1, scheduling_gates=GATES)
    started = injected(template, gated)
    assert started["spec"]["schedulingGates"] == [own, *GATES]
    assert injected(started, gated) == started
    assert restored_spec(started["spec"], template["spec"]) == template["spec"]
    assert restored_spec(injected({"spec": {}}, gated)["spec"], {}) == {}
