# SPDX-License-Identifier: Apache-2.0
"""Nodes, pods and templates as the ledger counts them."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.selectors import NodeSelectorTerm, Requirement
from multikueue.core.taints import Taint, Toleration
from multikueue.dispatch.worker.demands import demands, pod_requests
from multikueue.dispatch.worker.ledger import Demand, NodeFacts, PodFacts
from worker_agent.local.capacity import node_facts, pod_facts, small_node, small_pod


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [container("1"), container("500m")]}, {"cpu": 1500}, id="containers add up"),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("3"), container("2")]},
            {"cpu": 3000},
            id="the largest init container counts when it needs more",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("1", restartPolicy="Always")]},
            {"cpu": 2000},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {
                "containers": [container("1")],
                "initContainers": [container("1", restartPolicy="Always"), container("2")],
            },
            {"cpu": 3000},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [container("1")], "overhead": {"cpu": "100m", "memory": "1Ki"}},
            {"cpu": 1100, "memory": 1024},
            id="overhead comes on top",
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, {"cpu": 2000}, id="limits stand for requests"
        ),
        pytest.param(
            {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}},
            {"cpu": 4000},
            id="requests of the pod stand for those of its containers",
        ),
        pytest.param({"containers": [container("1n")]}, {"cpu": 1}, id="what is finer than counted is rounded up"),
    ],
)
def test_the_requests_of_a_pod(spec: Any, want: dict[str, int]) -> None:
    assert pod_requests(spec) == want


def pod(*, phase: str = "Running", node: str = "n", labels: Any = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "labels": labels or {}, "annotations": {"big": "x" * 1000}},
        "spec": {"nodeName": node, "containers": [container("1")]},
        "status": {"phase": phase},
    }


def test_a_bound_pod_uses_capacity_and_is_small() -> None:
    small = small_pod(pod())
    assert pod_facts(small) == PodFacts(node="n", requests={"cpu": 1000})
    assert len(small) < 100


def test_a_pod_of_ours_uses_up_its_jobs_promise() -> None:
    labels = {"kueue.x-k8s.io/multikueue-worker-workload-pod": "true", "batch.kubernetes.io/job-name": "j"}
    facts = pod_facts(small_pod(pod(labels=labels)))
    assert facts is not None
    assert facts.owner == "jobs.batch ns/j"


@pytest.mark.parametrize(
    "obj", [pod(node=""), pod(phase="Succeeded"), pod(phase="Failed")], ids=["unbound", "ok", "bad"]
)
def test_a_pod_that_uses_no_capacity_is_empty(obj: dict[str, Any]) -> None:
    assert small_pod(obj) == b""
    assert pod_facts(b"") is None


@pytest.mark.parametrize(
    ("status", "unschedulable", "want"), [("True", False, True), ("False", False, False), ("True", True, False)]
)
def test_a_node(status: str, unschedulable: bool, want: bool) -> None:
    node = {
        "metadata": {"name": "n", "labels": {"a": "b"}, "managedFields": ["x" * 1000]},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": unschedulable},
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "1Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": status}],
        },
    }
    assert node_facts("n", small_node(node)) == NodeFacts(
        name="n",
        allocatable={"cpu": 3920, "memory": 1 << 30, "pods": 110},
        labels={"a": "b"},
        taints=(Taint("k"),),
        ready=want,
    )


def test_the_demand_of_a_pod_set() -> None:
    spec = {
        "containers": [container("1")],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "value": "v"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["1"]}]}]
                }
            }
        },
    }
    (found,) = demands([{"name": "main", "count": 3, "template": {"spec": spec}}])
    assert found == Demand(
        count=3,
        requests={"cpu": 1000},
        node_selector={"a": "b"},
        affinity=(NodeSelectorTerm((Requirement("z", "In", ("1",)),)),),
        tolerations=(Toleration("k", "Exists"), Toleration("l", "Equal", "v")),
    )
