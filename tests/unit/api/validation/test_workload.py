# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.api import codec, featuregates
from multikueue.api.validation import validate_workload
from multikueue.api.workload import Workload

TIME = "2026-01-01T00:00:00Z"
RESERVED = [
    {"type": "QuotaReserved", "status": "True", "reason": "r", "message": "", "lastTransitionTime": TIME},
]
ADMISSION = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "count": 3, "resourceUsage": {"cpu": "3", "memory": "3Gi"}}],
}
HELD = {"conditions": RESERVED, "admission": ADMISSION}
EVICTED = {**HELD, "conditions": [*RESERVED, {**RESERVED[0], "type": "Evicted"}]}
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


def elastic(gate: str) -> bool:
    """The default gates, with elastic jobs on."""
    return gate == featuregates.ELASTIC_JOBS or featuregates.default(gate)


def _workload(
    *,
    pod_sets: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Workload:
    sets = [{"name": "main", "count": 3}] if pod_sets is None else pod_sets
    body = {
        "metadata": {"name": "w", "namespace": "ns", "annotations": annotations or {}},
        "spec": {"podSets": sets, **spec},
        "status": status or {},
    }
    return codec.load_as(Workload, body)


def _container(**resources: Any) -> dict[str, Any]:
    return {"name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}}


def _check(state: str, **entry: Any) -> dict[str, Any]:
    return {"name": "ac", "state": state, "message": "", "lastTransitionTime": TIME, **entry}


def _start(got: list[Any], want: list[str]) -> None:
    texts = [str(error) for error in got]
    assert len(texts) == len(want), texts
    assert all(text.startswith(start) for text, start in zip(texts, want, strict=True)), texts


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(_workload(), [], id="a plain one"),
        pytest.param(_workload(status=HELD), [], id="one that holds quota"),
        pytest.param(
            _workload(pod_sets=[{"name": "main", "template": {"metadata": {"labels": {"a": "b c"}}}}]),
            ['spec.podSets[0].template.metadata.labels: Invalid value: "b c"'],
            id="an illegal label in a template",
        ),
        pytest.param(
            _workload(pod_sets=[_container(requests={"pods": "1", "cpu": "-1"})]),
            [
                'spec.podSets[0].template.spec.containers[0].resources.requests[pods]: Invalid value: "pods"',
                'spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: Invalid value: "-1"',
            ],
            id="pods as a request, and a negative one",
        ),
        pytest.param(
            _workload(pod_sets=[{"name": "main", "topologyRequest": {"podSetSliceRequiredTopology": "rack"}}]),
            ["spec.podSets[0].topologyRequest.podSetSliceSize: Required value"],
            id="slices without a size",
        ),
        pytest.param(
            _workload(pod_sets=[{"name": "main", "topologyRequest": {"podSetSliceSize": 2}}]),
            ["spec.podSets[0].topologyRequest.podSetSliceRequiredTopology: Required value"],
            id="a slice size without a topology",
        ),
        pytest.param(
            _workload(pod_sets=[{"name": "a", "minCount": 1}, {"name": "b", "minCount": 1}]),
            ["spec.podSets: Invalid value: 2: at most one podSet can use minCount"],
            id="two pod sets that may shrink",
        ),
        pytest.param(
            _workload(pod_sets=[{"name": "a", "minCount": 1}], annotations=ELASTIC),
            ["spec.podSets[0].minCount: Forbidden"],
            id="a pod set that may shrink in an elastic job",
        ),
        pytest.param(
            _workload(status={"conditions": RESERVED}),
            ["status.admission: Required value"],
            id="quota without admission",
        ),
        pytest.param(
            _workload(status=HELD | {"admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "other"}]}}),
            [
                "status.admission.podSetAssignments: Required value: podSet main has no assignment",
                'status.admission.podSetAssignments[0].name: Not found: "other"',
            ],
            id="an assignment of another pod set",
        ),
        pytest.param(
            _workload(
                status=HELD
                | {
                    "admission": {
                        "clusterQueue": "cq",
                        "podSetAssignments": [{"name": "main", "resourceUsage": {"cpu": "1", "gpu": "3"}}],
                    }
                }
            ),
            ['status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: "1": is not a multiple of 3'],
            id="usage that its pods cannot share",
        ),
        pytest.param(
            _workload(status={"reclaimablePods": [{"name": "main", "count": 4}, {"name": "x", "count": 0}]}),
            [
                "status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 3",
                'status.reclaimablePods[x].name: Unsupported value: "x": supported values: "main"',
            ],
            id="more pods reclaimed than there are",
        ),
        pytest.param(
            _workload(status={"reclaimablePods": [{"name": "main", "count": 4}]}, annotations=ELASTIC),
            [],
            id="an elastic job may have been larger",
        ),
        pytest.param(
            _workload(
                status={
                    "admissionChecks": [_check("Ready", podSetUpdates=[{"name": "x", "nodeSelector": {"a": "b c"}}])]
                }
            ),
            [
                'status.admissionChecks[0].podSetUpdates[0].name: Unsupported value: "x"',
                'status.admissionChecks[0].podSetUpdates[0].nodeSelector: Invalid value: "b c"',
            ],
            id="an update of no pod set",
        ),
        pytest.param(
            _workload(
                status={"admissionChecks": [_check("Ready", podSetUpdates=[{"name": "main"}, {"name": "main"}])]}
            ),
            [
                "status.admissionChecks[0].podSetUpdates: Invalid value: 2",
                'status.admissionChecks[0].podSetUpdates[0].name: Duplicate value: "main"',
                'status.admissionChecks[0].podSetUpdates[1].name: Duplicate value: "main"',
            ],
            id="two updates of a pod set",
        ),
        pytest.param(
            _workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a.b/c,,a.b/c,x"}),
            [
                'metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: ""',
                'metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Duplicate value: "a.b/c"',
                'metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: "x"',
            ],
            id="gates that are none",
        ),
        pytest.param(
            _workload(annotations={"kueue.x-k8s.io/priority-boost": ""}),
            ['metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: "": must be a 32-bit integer'],
            id="an empty boost",
        ),
        pytest.param(
            _workload(annotations={"kueue.x-k8s.io/priority-boost": "2147483648"}),
            ['metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: "2147483648"'],
            id="a boost too large",
        ),
        pytest.param(_workload(annotations={"kueue.x-k8s.io/priority-boost": "-5"}), [], id="a boost"),
    ],
)
def test_a_workload_by_itself(workload: Workload, want: list[str]) -> None:
    _start(validate_workload(workload, gate=elastic), want)


def _cpu(cpu: str, **more: Any) -> dict[str, Any]:
    assignment = {"name": "main", "count": 3, "resourceUsage": {"cpu": cpu}, **more}
    return {"conditions": RESERVED, "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}}


TOPOLOGY = {"levels": ["h"], "slices": []}


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(
            _workload(status=HELD),
            _workload(status=HELD, pod_sets=[{"name": "main", "count": 4}]),
            ["spec.podSets: Forbidden: field is immutable while quota is reserved"],
            id="pod sets while quota is held",
        ),
        pytest.param(_workload(), _workload(pod_sets=[{"name": "main", "count": 4}]), [], id="pod sets before"),
        pytest.param(
            _workload(status=HELD, annotations=ELASTIC),
            _workload(status=HELD, annotations=ELASTIC, pod_sets=[{"name": "main", "count": 2}]),
            [],
            id="the size of an elastic job",
        ),
        pytest.param(
            _workload(status=HELD, annotations=ELASTIC),
            _workload(status=HELD, annotations=ELASTIC, pod_sets=[_container()]),
            ["spec.podSets: Forbidden"],
            id="the shape of an elastic job",
        ),
        pytest.param(
            _workload(status=HELD | {"reclaimablePods": [{"name": "main", "count": 2}]}),
            _workload(status=HELD | {"reclaimablePods": [{"name": "main", "count": 1}]}),
            ["status.reclaimablePods[main].count: Invalid value: 1: cannot be less than 2"],
            id="fewer reclaimable pods",
        ),
        pytest.param(
            _workload(status=HELD | {"reclaimablePods": [{"name": "main", "count": 2}]}),
            _workload(status=HELD),
            ["status.reclaimablePods[main]: Required value: cannot be removed"],
            id="no reclaimable pods any more",
        ),
        pytest.param(
            _workload(status=HELD | {"reclaimablePods": [{"name": "main", "count": 2}]}),
            _workload(status=EVICTED),
            [],
            id="no reclaimable pods before an eviction is complete",
        ),
        pytest.param(
            _workload(status=HELD | {"reclaimablePods": [{"name": "main", "count": 2}]}),
            _workload(status={}),
            [],
            id="no reclaimable pods after an eviction",
        ),
        pytest.param(
            _workload(status=_cpu("3")),
            _workload(status=_cpu("6")),
            ["status.admission: Forbidden: can be set or unset, but not changed"],
            id="an edit of the admission",
        ),
        pytest.param(
            _workload(status=_cpu("3", delayedTopologyRequest="Pending")),
            _workload(status=_cpu("3", delayedTopologyRequest="Ready", topologyAssignment=TOPOLOGY)),
            [],
            id="a topology that was put off",
        ),
        pytest.param(_workload(status=HELD), _workload(), [], id="giving the quota back"),
        pytest.param(_workload(), _workload(status=HELD), [], id="taking quota"),
        pytest.param(
            _workload(status={"admissionChecks": [_check("Ready")]}),
            _workload(status={"admissionChecks": [_check("Ready", podSetUpdates=[{"name": "main"}])]}),
            ["status.admissionChecks[0].podSetUpdates: Forbidden: field is immutable while the check is Ready"],
            id="updates of a check that was ready",
        ),
        pytest.param(
            _workload(status={"admissionChecks": [_check("Pending")]}),
            _workload(status={"admissionChecks": [_check("Ready", podSetUpdates=[{"name": "main"}])]}),
            [],
            id="updates of a check that gets ready",
        ),
        pytest.param(
            _workload(status={"nominatedClusterNames": ["w1"]}),
            _workload(status={"clusterName": "w1"}),
            [],
            id="a nominated cluster is chosen",
        ),
        pytest.param(
            _workload(status={"nominatedClusterNames": ["w1"]}),
            _workload(status={"clusterName": "w2"}),
            ['status.clusterName: Invalid value: "w2": must be one of the nominated clusters: w1'],
            id="another cluster is chosen",
        ),
        pytest.param(
            _workload(),
            _workload(
                status={"clusterName": "w2"},
                annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "ns/older"},
            ),
            [],
            id="a slice goes where the older one runs",
        ),
        pytest.param(
            _workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a.b/c,a.b/d"}),
            _workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a.b/d"}),
            [],
            id="a gate less",
        ),
        pytest.param(
            _workload(),
            _workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a.b/d"}),
            ["metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Forbidden: gates can be added only at creation"],
            id="a gate more",
        ),
    ],
)
def test_a_workload_that_changes(old: Workload, new: Workload, want: list[str]) -> None:
    _start(validate_workload(new, old, gate=elastic), want)


def test_gates_switch_single_rules_off() -> None:
    workload = _workload(pod_sets=[_container(requests={"cpu": "-1"})])
    assert validate_workload(workload, gate=lambda name: name != "WorkloadValidateResourcesAreNonNegative") == []
