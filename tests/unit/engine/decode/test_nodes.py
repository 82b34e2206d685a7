# SPDX-License-Identifier: Apache-2.0
"""Nodes, pods on them, and the topology parts of Workloads as engine values."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from multikueue.api.constants import DelayedTopology
from multikueue.api.topologyslices import compress
from multikueue.core.errors import BadInput
from multikueue.core.taints import Taint
from multikueue.engine import decode
from multikueue.engine.topology.capacity import Node
from multikueue.engine.workloads import AssignedDomains, PodSetAdmission, TopologyRequest

NODE = {
    "metadata": {"name": "n", "labels": {"rack": "r1", "kubernetes.io/hostname": "n"}},
    "spec": {
        "taints": [
            {"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
            {"key": "e", "effect": "NoExecute"},
        ]
    },
    "status": {
        "allocatable": {"cpu": "3920m", "memory": "1Ki", "pods": "110", "example.com/gpu": 8},
        "capacity": {"cpu": "4"},
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
    },
}


def ready(status: str, **spec: object) -> Node:
    return decode.node(
        {
            "metadata": {"name": "n"},
            "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": status}, {"type": "Other", "status": "True"}]},
        }
    )


def admitted(assignment: Mapping[str, object]) -> PodSetAdmission:
    data = {
        "metadata": {"name": "w", "namespace": "n"},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", **assignment}]}},
    }
    admission = decode.workload(data, decode.Shapes()).admission
    assert admission is not None
    return admission.pod_sets[0]


def request(value: object) -> TopologyRequest | None:
    data = {"metadata": {"name": "w", "namespace": "n"}, "spec": {"podSets": [{"topologyRequest": value}]}}
    return decode.workload(data, decode.Shapes()).pod_sets[0].topology


def test_a_node() -> None:
    assert decode.node(NODE) == Node(
        name="n",
        labels={"rack": "r1", "kubernetes.io/hostname": "n"},
        taints=(Taint("k", "v", "NoSchedule"), Taint("e", "", "NoExecute")),
        allocatable={"cpu": 3920, "memory": 1024, "pods": 110, "example.com/gpu": 8},
        usable=True,
    )


@pytest.mark.parametrize(
    ("status", "spec", "want"),
    [
        pytest.param("True", {}, True, id="that is ready"),
        pytest.param("False", {}, False, id="not one that is not"),
        pytest.param("Unknown", {}, False, id="nor one of which that is not known"),
        pytest.param("True", {"unschedulable": True}, False, id="nor a cordoned one"),
        pytest.param("True", {"unschedulable": False}, True, id="one that is cordoned no more"),
    ],
)
def test_a_node_is_usable(status: str, spec: dict[str, object], want: bool) -> None:
    assert ready(status, **spec).usable is want


def test_a_new_node_has_nothing_and_is_not_usable() -> None:
    found = decode.node({"metadata": {"name": "n"}})
    assert (found.name, found.labels, found.taints, found.allocatable, found.usable) == ("n", {}, (), {}, False)


@pytest.mark.parametrize(
    "part",
    [
        {"spec": {"taints": "k"}},
        {"status": {"allocatable": {"cpu": "many"}}},
        {"status": {"conditions": {}}},
    ],
    ids=["with taints that are none", "with an amount that is none", "with conditions that are none"],
)
def test_a_node_that_cannot_be_read(part: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        decode.node({**NODE, **part})


def test_what_a_pod_uses_of_its_node() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "nodeName": "a",
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Ki"}}},
                {"name": "d"},
            ],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}],
            "overhead": {"cpu": "50m"},
        },
    }
    assert decode.pod_requests(pod, decode.Shapes()) == {"cpu": 1050, "memory": 1024, "pods": 1}
    assert decode.pod_requests({"metadata": {"name": "p"}}, decode.Shapes()) == {"pods": 1}


def test_the_domains_of_an_admission() -> None:
    domains = [{"values": ["r1", "a-1"], "count": 2}, {"values": ["r1", "a-2"], "count": 1}]
    topology = compress({"levels": ["rack", "host"], "domains": domains})
    assert admitted({"topologyAssignment": topology}).topology == AssignedDomains(
        ("rack", "host"), ((("r1", "a-1"), 2), (("r1", "a-2"), 1))
    )


def test_domains_of_several_slices_are_one_list() -> None:
    slices = [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"roots": ["1", "2"], "prefix": "x", "suffix": "y"}}],
            "podCounts": {"individual": [3, 4]},
        },
        {"domainCount": 1, "valuesPerLevel": [{"universal": "z"}], "podCounts": {"universal": 5}},
    ]
    assert admitted({"topologyAssignment": {"levels": ["host"], "slices": slices}}).topology == AssignedDomains(
        ("host",), ((("x1y",), 3), (("x2y",), 4), (("z",), 5))
    )


def test_an_admission_without_a_topology() -> None:
    assert admitted({}).topology is None
    assert admitted({"topologyAssignment": None}).topology is None
    assert admitted({}).delayed_topology is None
    assert admitted({"delayedTopologyRequest": "Pending"}).delayed_topology is DelayedTopology.PENDING


def test_a_topology_without_domains() -> None:
    assert admitted({"topologyAssignment": {"levels": ["host"], "slices": []}}).topology == AssignedDomains(
        ("host",), ()
    )


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            {"domainCount": 10**9, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}},
            id="with more domains than there may be",
        ),
        pytest.param(
            {"domainCount": 2, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"individual": [1]}},
            id="with counts for some domains",
        ),
        pytest.param(
            {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}},
            id="with values for some domains",
        ),
    ],
)
def test_a_topology_that_contradicts_itself(entry: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        admitted({"topologyAssignment": {"levels": ["host"], "slices": [entry]}})


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param({"levels": ["host"], "slices": [{}]}, id="a slice of nothing"),
        pytest.param(
            {"levels": ["host"], "slices": [{"domainCount": 1, "valuesPerLevel": [{}], "podCounts": {"universal": 1}}]},
            id="a level without values",
        ),
        pytest.param(
            {
                "levels": ["host"],
                "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {}}],
            },
            id="no counts",
        ),
        pytest.param(
            {
                "levels": ["host"],
                "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": []}}],
            },
            id="a count that is none",
        ),
        pytest.param({"levels": ["host"], "slices": "none"}, id="slices that are none"),
    ],
)
def test_a_topology_that_cannot_be_read(topology: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        admitted({"topologyAssignment": topology})


def test_a_topology_with_more_values_than_levels() -> None:
    entry = {
        "domainCount": 1,
        "valuesPerLevel": [{"universal": "r1"}, {"universal": "a"}],
        "podCounts": {"universal": 1},
    }
    with pytest.raises(BadInput):
        admitted({"topologyAssignment": {"levels": ["host"], "slices": [entry]}})


def test_topology_requests_of_pod_sets() -> None:
    found = request(
        {
            "podSetGroupName": "g",
            "preferred": "block",
            "podSetSliceRequiredTopology": "rack",
            "podSetSliceSize": 4,
        }
    )
    assert found is not None
    assert (found.group, found.preferred, found.slice_required, found.slice_size) == ("g", "block", "rack", 4)
    assert (found.required, found.unconstrained, found.slices, found.explicit) == ("", False, (), True)


def test_slices_of_several_levels() -> None:
    found = request(
        {"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]}
    )
    assert found is not None
    assert (found.slices, found.explicit) == ((("rack", 4), ("host", 2)), True)


def test_no_topology_request_is_none() -> None:
    assert request(None) is None
    assert request({}) is None


def test_unconstrained_is_a_request() -> None:
    (yes, no) = (request({"unconstrained": True}), request({"unconstrained": False, "podSetGroupName": "g"}))
    assert yes is not None
    assert no is not None
    assert (yes.explicit, no.explicit) == (True, False)


def test_different_requests_have_different_fingerprints() -> None:
    found = [request({"required": "rack"}), request({"preferred": "rack"}), request({"required": "rack"})]
    first, second, third = (each.fingerprint for each in found if each is not None)
    assert first == third != second
