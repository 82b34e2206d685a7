# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.api.conversion import convert
from multikueue.api.topologyslices import compress, expand
from multikueue.core.errors import BadInput

V1 = "kueue.x-k8s.io/v1beta1"
V2 = "kueue.x-k8s.io/v1beta2"


def _object(kind: str, version: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": {"a": "b"}}, **parts}


DOMAINS = {
    "levels": ["block", "kubernetes.io/hostname"],
    "domains": [
        {"values": ["b1", "node-1.example"], "count": 2},
        {"values": ["b1", "node-22.example"], "count": 2},
        {"values": ["b1", "node-3.example"], "count": 1},
    ],
}
SLICES: dict[str, Any] = {
    "levels": ["block", "kubernetes.io/hostname"],
    "slices": [
        {
            "domainCount": 3,
            "valuesPerLevel": [
                {"universal": "b1"},
                {"individual": {"prefix": "node-", "suffix": ".example", "roots": ["1", "22", "3"]}},
            ],
            "podCounts": {"individual": [2, 2, 1]},
        }
    ],
}

BOTH_WAYS = [
    pytest.param("ClusterQueue", {"spec": {"cohort": "all"}}, {"spec": {"cohortName": "all"}}, id="cohort of a queue"),
    pytest.param(
        "ClusterQueue",
        {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk", "onFlavors": ["f"]}]}}},
        {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk", "onFlavors": ["f"]}]}}},
        id="checks by strategy",
    ),
    pytest.param(
        "LocalQueue",
        {"status": {"flavorUsage": [{"name": "f", "resources": []}]}},
        {"status": {"flavorsUsage": [{"name": "f", "resources": []}]}},
        id="usage of a local queue",
    ),
    pytest.param(
        "Workload",
        {
            "spec": {
                "priority": 5,
                "priorityClassName": "high",
                "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
            }
        },
        {
            "spec": {
                "priority": 5,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            }
        },
        id="workload priority class",
    ),
    pytest.param(
        "Workload",
        {"spec": {"priorityClassName": "high", "priorityClassSource": "scheduling.k8s.io/priorityclass"}},
        {"spec": {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}}},
        id="pod priority class",
    ),
    pytest.param(
        "Workload",
        {"status": {"accumulatedPastExexcutionTimeSeconds": 7}},
        {"status": {"accumulatedPastExecutionTimeSeconds": 7}},
        id="the misspelt time",
    ),
    pytest.param(
        "Workload",
        {"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": DOMAINS}]}}},
        {"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": SLICES}]}}},
        id="topology assignment",
    ),
    pytest.param(
        "MultiKueueCluster",
        {"spec": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}},
        {"spec": {"clusterSource": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}}},
        id="kubeconfig of a cluster",
    ),
    pytest.param(
        "MultiKueueCluster",
        {"spec": {"kubeConfig": {"location": "", "locationType": "Secret"}, "clusterProfileRef": {"name": "p"}}},
        {"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}},
        id="profile of a cluster",
    ),
    pytest.param(
        "ResourceFlavor",
        {"spec": {"nodeLabels": {"a": "b"}}},
        {"spec": {"nodeLabels": {"a": "b"}}},
        id="a kind that is the same in both",
    ),
]
ONLY_UP = [
    pytest.param(
        "ClusterQueue",
        {"spec": {"admissionChecks": ["a", "b"]}},
        {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}},
        id="a list of checks becomes a strategy",
    ),
    pytest.param(
        "ClusterQueue",
        {
            "spec": {
                "admissionChecks": ["a", "b"],
                "admissionChecksStrategy": {"admissionChecks": [{"name": "b", "onFlavors": ["f"]}]},
            }
        },
        {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "b", "onFlavors": ["f"]}, {"name": "a"}]}}},
        id="no check is lost where both forms are given",
    ),
    pytest.param("ClusterQueue", {"spec": {"admissionChecks": []}}, {"spec": {}}, id="an empty list is nothing"),
    pytest.param(
        "ClusterQueue",
        {"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}},
        {"spec": {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}}},
        id="older words for stopping the search",
    ),
    pytest.param(
        "ClusterQueue",
        {
            "status": {
                "pendingWorkloadsStatus": {},
                "fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {}},
            }
        },
        {"status": {"fairSharing": {"weightedShare": 1}}},
        id="status that v1beta2 has not",
    ),
    pytest.param(
        "Workload",
        {"spec": {"priority": 5, "priorityClassName": "high", "priorityClassSource": ""}},
        {"spec": {"priority": 5}},
        id="a class name without a source",
    ),
    pytest.param("LocalQueue", {"status": {"flavors": []}}, {"status": {}}, id="flavors of a local queue"),
    pytest.param("AdmissionCheck", {"spec": {"retryDelayMinutes": 15}}, {"spec": {}}, id="the unused retry delay"),
    pytest.param(
        "MultiKueueCluster",
        {"spec": {"kubeConfig": {"location": "s"}, "clusterProfileRef": {"name": "p"}}},
        {"spec": {"clusterSource": {"kubeConfig": {"location": "s"}}}},
        id="a kubeconfig goes before a profile",
    ),
]
ONLY_DOWN = [
    pytest.param(
        "ClusterQueue",
        {"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}}},
        {"spec": {}},
        id="concurrent admission",
    ),
    pytest.param(
        "Workload",
        {
            "spec": {
                "preemptionGates": [{"name": "g"}],
                "podSets": [{"topologyRequest": {"required": "r", "podsetSliceRequiredTopologyConstraints": []}}],
            },
            "status": {"preemptionGates": []},
        },
        {"spec": {"podSets": [{"topologyRequest": {"required": "r"}}]}, "status": {}},
        id="gates and nested slices",
    ),
    pytest.param("MultiKueueConfig", {"spec": {"quotaManagement": "Manual"}}, {"spec": {}}, id="quota management"),
]


@pytest.mark.parametrize(("kind", "old", "new"), BOTH_WAYS + ONLY_UP)
def test_v1beta1_is_read_as_v1beta2(kind: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    given_object = _object(kind, V1, **old)
    before = copy.deepcopy(given_object)
    assert convert(given_object, V2) == _object(kind, V2, **new)
    assert given_object == before


@pytest.mark.parametrize(("kind", "old", "new"), BOTH_WAYS)
def test_v1beta2_is_shown_as_v1beta1(kind: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    given_object = _object(kind, V2, **new)
    before = copy.deepcopy(given_object)
    assert convert(given_object, V1) == _object(kind, V1, **old)
    assert given_object == before


@pytest.mark.parametrize(("kind", "new", "old"), ONLY_DOWN)
def test_fields_that_v1beta1_lacks_are_dropped(kind: str, new: dict[str, Any], old: dict[str, Any]) -> None:
    assert convert(_object(kind, V2, **new), V1) == _object(kind, V1, **old)


def test_the_same_version_is_left_as_it_is() -> None:
    given_object = _object("ClusterQueue", V2, spec={"cohortName": "a"})
    assert convert(given_object, "v1beta2") == given_object


@pytest.mark.parametrize(
    ("api_version", "to_version", "message"),
    [
        pytest.param("batch/v1", V2, "only kueue.x-k8s.io has versions", id="another group"),
        pytest.param(V1, "kueue.x-k8s.io/v1", "kueue.x-k8s.io/v1 of Cohort is not served", id="to a later version"),
        pytest.param("kueue.x-k8s.io/v1alpha1", V2, "v1alpha1 of Cohort is not served", id="from an older version"),
    ],
)
def test_a_version_that_is_not_served_is_named(api_version: str, to_version: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        convert(_object("Cohort", api_version), to_version)


names = st.text("abc-.0", max_size=5)


@st.composite
def assignments(draw: st.DrawFn) -> dict[str, Any]:
    levels = draw(st.lists(names, min_size=1, max_size=3))
    domain = st.fixed_dictionaries(
        {"values": st.lists(names, min_size=len(levels), max_size=len(levels)), "count": st.integers(1, 5)}
    )
    return {"levels": levels, "domains": draw(st.lists(domain, max_size=6))}


@given(assignment=assignments())
def test_a_topology_assignment_is_the_same_after_compression_and_expansion(assignment: dict[str, Any]) -> None:
    assert expand(compress(assignment)) == assignment


@given(assignment=assignments())
def test_a_compressed_assignment_keeps_the_rules_of_its_schema(assignment: dict[str, Any]) -> None:
    compressed = compress(assignment)
    for entry in compressed["slices"]:
        assert len(entry["valuesPerLevel"]) == len(compressed["levels"])
        assert len(entry["podCounts"]) == 1
        for level in entry["valuesPerLevel"]:
            assert ("universal" in level) != ("individual" in level)
            if "individual" in level:
                assert len(level["individual"]["roots"]) == entry["domainCount"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"domainCount": 4}, "expected 4 roots, got 3", id="too few roots"),
        pytest.param({"podCounts": {"individual": [1]}}, "expected 3 counts, got 1", id="too few counts"),
    ],
)
def test_a_slice_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    broken = SLICES | {"slices": [SLICES["slices"][0] | change]}
    with pytest.raises(BadInput, match=message):
        expand(broken)


def test_a_domain_with_a_value_too_few_is_refused() -> None:
    with pytest.raises(BadInput, match=r"domains\[0\].values: expected 2 values, one per level, got 1"):
        compress({"levels": ["a", "b"], "domains": [{"values": ["x"], "count": 1}]})


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        pytest.param("ClusterQueue", {"spec": {"admissionChecksStrategy": "mk"}}, id="text instead of a strategy"),
        pytest.param("MultiKueueCluster", {"spec": {"kubeConfig": ["a"], "clusterProfileRef": {}}}, id="a list"),
        pytest.param(
            "Workload",
            {"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {"levels": 3}}]}}},
            id="a number instead of levels",
        ),
    ],
)
def test_an_object_of_another_shape_is_named(kind: str, parts: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"{kind} x: not the shape of kueue.x-k8s.io/v1beta1"):
        convert(_object(kind, V1, **parts), V2)
