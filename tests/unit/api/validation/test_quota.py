# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.api import codec
from multikueue.api.clusterqueue import ClusterQueue
from multikueue.api.cohort import Cohort
from multikueue.api.resourceflavor import ResourceFlavor
from multikueue.api.validation import validate_cluster_queue, validate_cohort, validate_resource_flavor


def _quota(name: str = "cpu", nominal: str = "10", **limits: str) -> dict[str, Any]:
    return {"name": name, "nominalQuota": nominal, **limits}


def _group(*flavors: tuple[str, list[dict[str, Any]]], covers: tuple[str, ...] = ("cpu",)) -> dict[str, Any]:
    return {
        "coveredResources": list(covers),
        "flavors": [{"name": name, "resources": resources} for name, resources in flavors],
    }


def _queue(**spec: Any) -> ClusterQueue:
    return codec.load_as(ClusterQueue, {"metadata": {"name": "cq"}, "spec": spec})


def _checks(*on_flavors: str) -> dict[str, Any]:
    return {"admissionChecks": [{"name": "ac", "onFlavors": list(on_flavors)}]}


GOOD = _group(("a", [_quota()]), ("b", [_quota()]))
POLICY = {"migration": {"mode": "TryPreferredFlavors"}}
GROUPS = "spec.resourceGroups"
FIRST = f"{GROUPS}[0].flavors[0].resources[0]"

QUEUES = [
    pytest.param({"resourceGroups": [GOOD], "fairSharing": {"weight": "0"}}, [], id="a good one"),
    pytest.param(
        {"resourceGroups": [_group(("a", [_quota("a b")]), covers=("a b",))]},
        [f"{GROUPS}[0].coveredResources[0]: Invalid value"],
        id="a resource with an illegal name",
    ),
    pytest.param(
        {"resourceGroups": [GOOD, _group(("c", [_quota()]))]},
        [f'{GROUPS}[1].coveredResources[0]: Duplicate value: "cpu"'],
        id="a resource in two groups",
    ),
    pytest.param(
        {"resourceGroups": [GOOD, _group(("a", [_quota("memory")]), covers=("memory",))]},
        [f'{GROUPS}[1].flavors[0].name: Duplicate value: "a"'],
        id="a flavor in two groups",
    ),
    pytest.param(
        {"resourceGroups": [_group(("a", [_quota("memory"), _quota("cpu")]), covers=("cpu", "memory"))]},
        [
            f'{FIRST}.name: Invalid value: "memory": must match the name in coveredResources',
            f'{GROUPS}[0].flavors[0].resources[1].name: Invalid value: "cpu": must match the name in coveredResources',
        ],
        id="resources in another order",
    ),
    pytest.param(
        {"resourceGroups": [_group(("a", [_quota(nominal="-1")]))]},
        [f'{FIRST}.nominalQuota: Invalid value: "-1": must be greater than or equal to 0'],
        id="a negative quota",
    ),
    pytest.param(
        {"resourceGroups": [_group(("a", [_quota(borrowingLimit="1", lendingLimit="1")]))]},
        [
            f'{FIRST}.borrowingLimit: Invalid value: "1": must be nil when cohort is empty',
            f'{FIRST}.lendingLimit: Invalid value: "1": must be nil when cohort is empty',
        ],
        id="limits without a cohort",
    ),
    pytest.param(
        {"cohortName": "c", "resourceGroups": [_group(("a", [_quota(lendingLimit="11")]))]},
        [f'{FIRST}.lendingLimit: Invalid value: "11": must be less than or equal to the nominalQuota'],
        id="more lent than there is",
    ),
    pytest.param(
        {"fairSharing": {"weight": "-1"}},
        ['spec.fairSharing.weight: Invalid value: "-1": must be greater than or equal to 0'],
        id="a negative weight",
    ),
    pytest.param(
        {"fairSharing": {"weight": "1n"}},
        ['spec.fairSharing.weight: Invalid value: "1n": must be 0 or greater than 10^-9'],
        id="a weight too small to divide by",
    ),
    pytest.param(
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        ["spec.namespaceSelector.matchExpressions[0].values: Required value"],
        id="a selector without values",
    ),
    pytest.param(
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["v"]}]}},
        ["spec.namespaceSelector.matchExpressions[0].values: Forbidden"],
        id="a selector with values too many",
    ),
    pytest.param(
        {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
        ['spec.preemption: Invalid value: "LowerPriority": reclaimWithinCohort=Never'],
        id="preemption while borrowing without reclaiming",
    ),
    pytest.param(
        {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"}},
        [],
        id="a preference between two policies that go on",
    ),
    pytest.param(
        {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}},
        ['spec.flavorFungibility.preference: Invalid value: "PreemptionOverBorrowing"'],
        id="a preference where the search stops",
    ),
    pytest.param(
        {"resourceGroups": [GOOD], "admissionChecksStrategy": _checks("a", "z")},
        ['spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]: Not found: "z"'],
        id="a check on a flavor that is not there",
    ),
    pytest.param(
        {
            "resourceGroups": [GOOD],
            "queueingStrategy": "StrictFIFO",
            "concurrentAdmissionPolicy": {
                "migration": {"mode": "RetainFirstAdmission", "constraints": {"lastAcceptableFlavorName": "z"}}
            },
        },
        [
            'spec.queueingStrategy: Invalid value: "StrictFIFO"',
            "spec.concurrentAdmissionPolicy.migration.constraints: Forbidden",
            'spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName: Not found: "z"',
        ],
        id="concurrent admission that contradicts itself",
    ),
    pytest.param(
        {"concurrentAdmissionPolicy": POLICY},
        ["spec.resourceGroups: Invalid value: 0: must be exactly one"],
        id="concurrent admission without quota",
    ),
    pytest.param(
        {
            "resourceGroups": [
                _group(
                    *((f"f{i}", [_quota(f"r{j}") for j in range(32)]) for i in range(17)),
                    covers=tuple(f"r{j}" for j in range(32)),
                )
            ]
        },
        ["spec.resourceGroups[0]: Invalid value: 544: must have at most 512"],
        id="too many combinations",
    ),
]


@pytest.mark.parametrize(("spec", "want"), QUEUES)
def test_a_cluster_queue(spec: dict[str, Any], want: list[str]) -> None:
    got = [str(error) for error in validate_cluster_queue(_queue(**spec))]
    assert len(got) == len(want), got
    assert all(text.startswith(start) for text, start in zip(got, want, strict=True)), got


def test_too_many_flavors_over_all_groups_are_refused() -> None:
    groups = [_group(*((f"f{g}-{i}", [_quota(f"r{g}")]) for i in range(60)), covers=(f"r{g}",)) for g in range(5)]
    errors = validate_cluster_queue(_queue(resourceGroups=groups))
    assert [str(error) for error in errors] == [
        "spec.resourceGroups.flavors: Too many: 300: must have at most 256 items"
    ]


def test_a_check_on_a_missing_flavor_is_tolerated_where_it_was_before() -> None:
    old = _queue(resourceGroups=[GOOD], admissionChecksStrategy=_checks("z"))
    assert validate_cluster_queue(old, old) == []
    assert validate_cluster_queue(old, old, gate=lambda name: True) != []
    worse = _queue(resourceGroups=[GOOD], admissionChecksStrategy=_checks("z", "y"))
    assert [error.value for error in validate_cluster_queue(worse, old)] == ["y"]


def test_concurrent_admission_cannot_be_changed() -> None:
    new = _queue(resourceGroups=[GOOD], concurrentAdmissionPolicy=POLICY)
    assert validate_cluster_queue(new, new) == []
    errors = validate_cluster_queue(new, _queue(resourceGroups=[GOOD]))
    assert [str(error) for error in errors] == ["spec.concurrentAdmissionPolicy: Forbidden: field is immutable"]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"parentName": "p", "resourceGroups": [_group(("a", [_quota(lendingLimit="99")]))]},
            0,
            id="may lend more than it has itself",
        ),
        pytest.param(
            {"resourceGroups": [_group(("a", [_quota(lendingLimit="1")]))]}, 1, id="needs a parent for limits"
        ),
        pytest.param({"fairSharing": {"weight": "-1"}}, 1, id="cannot weigh less than nothing"),
    ],
)
def test_a_cohort(spec: dict[str, Any], want: int) -> None:
    assert len(validate_cohort(codec.load_as(Cohort, {"spec": spec}))) == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, [], id="may be empty"),
        pytest.param(
            {"nodeLabels": {"a": "b c"}}, ['spec.nodeLabels: Invalid value: "b c"'], id="has legal node labels"
        ),
        pytest.param(
            {"nodeTaints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule", "value": "v"}]},
            ['spec.nodeTaints[1]: Duplicate value: "k:NoSchedule"'],
            id="has a taint only once",
        ),
        pytest.param(
            {"nodeTaints": [{"key": "k", "effect": "Sometimes"}]},
            ['spec.nodeTaints[0].effect: Unsupported value: "Sometimes"'],
            id="has taints with known effects",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Equal"}]},
            ['spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists'],
            id="tolerates everything only by Exists",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "tolerationSeconds": 3}]},
            ["spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute'"],
            id="tolerates for a time only what evicts",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
            ['spec.tolerations[0].operator: Invalid value: "v": value must be empty'],
            id="needs no value for Exists",
        ),
    ],
)
def test_a_flavor(spec: dict[str, Any], want: list[str]) -> None:
    got = [str(error) for error in validate_resource_flavor(codec.load_as(ResourceFlavor, {"spec": spec}))]
    assert len(got) == len(want), got
    assert all(text.startswith(start) for text, start in zip(got, want, strict=True)), got
