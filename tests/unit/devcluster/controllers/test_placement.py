# SPDX-License-Identifier: Apache-2.0
"""Where a pod is put, and what it asks for."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.controllers.node_taints import taints_of
from devcluster.controllers.placement import NodeInfo, Unschedulable, select_node
from devcluster.controllers.pod_info import pod_info_of, requests_of
from multikueue.api.objects import JsonObject


def pod(cpu: str = "1", *, phase: str = "Pending", **spec: Any) -> JsonObject:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": "pod", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {"phase": phase}}


def node(name: str, cpu: str = "4", *, labels: dict[str, str] | None = None, **spec: Any) -> NodeInfo:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    metadata = {"name": name, "labels": labels or {}}
    return NodeInfo.of({"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}})


def affinity(**term: Any) -> JsonObject:
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


TAINTED: JsonObject = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
TOLERANT: JsonObject = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
EAST = {"zone": "east"}
BY_NAME = affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["b"]}])
BY_LABEL = affinity(matchExpressions=[{"key": "zone", "operator": "In", "values": ["east"]}])


@pytest.mark.parametrize(
    ("wanted", "nodes", "chosen"),
    [
        pytest.param(pod(), [node("a", "2"), node("b", "8")], "b", id="the node that is left with the most capacity"),
        pytest.param(pod("3"), [node("a", "2"), node("b", "4")], "b", id="the only node with capacity"),
        pytest.param(
            pod(nodeSelector=EAST),
            [node("a", "8"), node("b", labels=EAST)],
            "b",
            id="selected by a label",
        ),
        pytest.param(pod(affinity=BY_NAME), [node("a", "8"), node("b")], "b", id="named by a field"),
        pytest.param(pod(affinity=BY_LABEL), [node("a", "8"), node("b", labels=EAST)], "b", id="by an expression"),
        pytest.param(pod(), [node("a", "8", **TAINTED), node("b")], "b", id="not on a taint"),
        pytest.param(pod(**TOLERANT), [node("a", "8", **TAINTED), node("b")], "a", id="on a taint that is tolerated"),
        pytest.param(pod(), [node("a", "8", unschedulable=True), node("b")], "b", id="not where nothing may start"),
        pytest.param(
            pod(),
            [node("a", "8", taints=[{"key": "x", "effect": "PreferNoSchedule"}]), node("b")],
            "b",
            id="rather not on a taint that only asks",
        ),
    ],
)
def test_a_pod_is_put(wanted: JsonObject, nodes: list[NodeInfo], chosen: str) -> None:
    assert select_node(pod_info_of(wanted), nodes) == chosen


@pytest.mark.parametrize(
    ("wanted", "nodes", "message"),
    [
        pytest.param(pod(), [], "no nodes available to schedule pods", id="there are none"),
        pytest.param(
            pod("9"),
            [node("a"), node("b"), node("c", unschedulable=True)],
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.",
            id="each for its own reason",
        ),
        pytest.param(
            pod(nodeSelector={"no": "where"}),
            [node("a")],
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
            id="none is selected",
        ),
        pytest.param(
            pod(), [node("a", **TAINTED)], "0/1 nodes are available: 1 node(s) had untolerated taint(s).", id="tainted"
        ),
    ],
)
def test_no_node_will_do(wanted: JsonObject, nodes: list[NodeInfo], message: str) -> None:
    assert select_node(pod_info_of(wanted), nodes) == Unschedulable(message)


def test_requests_of_pods_are_subtracted_until_they_are_removed() -> None:
    capacity, needs = node("a", "1"), pod_info_of(pod("1"))
    capacity.add_pod(needs.requests)
    assert isinstance(select_node(needs, [capacity]), Unschedulable)
    capacity.remove_pod(needs.requests)
    assert select_node(needs, [capacity]) == "a"


def test_init_containers_run_one_after_the_other_beside_their_sidecars() -> None:
    def asks(cpu: str, **more: str) -> JsonObject:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [asks("100m", restartPolicy="Always"), asks("3"), asks("1")],
        "containers": [asks("1"), asks("1")],
        "overhead": {"cpu": "10m"},
    }
    assert requests_of(spec) == {"cpu": 3110, "pods": 1000}


def test_a_limit_is_the_default_of_a_request() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}]}
    assert requests_of(spec) == {"memory": 1024**3 * 1000, "pods": 1000}


@pytest.mark.parametrize(
    ("status", "spec", "keys"),
    [
        pytest.param("True", {}, [], id="a ready node has none"),
        pytest.param("False", {}, ["node.kubernetes.io/not-ready"], id="a node that is not ready"),
        pytest.param("Unknown", {}, ["node.kubernetes.io/unreachable"], id="a node that is silent"),
        pytest.param("True", {"unschedulable": True}, ["node.kubernetes.io/unschedulable"], id="a cordoned node"),
        pytest.param(
            "True",
            {
                "taints": [
                    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                    {"key": "x", "effect": "NoSchedule"},
                ]
            },
            ["x"],
            id="only is_managed are cleared",
        ),
    ],
)
def test_taints(status: str, spec: JsonObject, keys: list[str]) -> None:
    found = {"metadata": {}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert [taint["key"] for taint in taints_of(found)] == keys
