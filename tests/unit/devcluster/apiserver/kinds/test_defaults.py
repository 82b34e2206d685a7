# SPDX-License-Identifier: Apache-2.0
"""Defaults of built-in kinds; that they are those of a real server is compared in tests/conformance."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.apiserver.kinds import catalog, volumes
from devcluster.apiserver.kinds.behaviour import RequestContext

Document = dict[str, Any]
_NOW = "2026-01-02T03:04:05Z"
_TCP = {"port": 80, "protocol": "TCP"}


def _made(group: str, plural: str, **content: Any) -> Document:
    """An object as it is stored when a client creates it."""
    value: Document = {"metadata": {"name": "a", "uid": "u"}, **content}
    behaviour = catalog.behaviour(group, plural)
    behaviour.default(value)
    behaviour.prepare_create(value, RequestContext(_NOW))
    return value


def _changed(group: str, plural: str, value: Document, **content: Any) -> Document:
    """The object after a change of some of its fields."""
    changed: Document = {**value, "metadata": dict(value["metadata"]), **content}
    behaviour = catalog.behaviour(group, plural)
    behaviour.default(changed)
    behaviour.prepare_update(changed, value, RequestContext(_NOW))
    return changed


@pytest.mark.parametrize(
    ("group", "plural", "content", "field", "expected"),
    [
        pytest.param(
            "networking.k8s.io",
            "networkpolicies",
            {"spec": {"ingress": [{"ports": [{"port": 80}]}]}},
            "spec",
            {"ingress": [{"ports": [_TCP]}], "policyTypes": ["Ingress"]},
            id="network policy",
        ),
        pytest.param(
            "discovery.k8s.io", "endpointslices", {"ports": [{"port": 80}]}, "ports", [{"name": "", **_TCP}], id="slice"
        ),
        pytest.param(
            "", "endpoints", {"subsets": [{"ports": [{"port": 80}]}]}, "subsets", [{"ports": [_TCP]}], id="ends"
        ),
        pytest.param(
            "networking.k8s.io",
            "ingressclasses",
            {"spec": {"parameters": {"kind": "T"}}},
            "spec",
            {"parameters": {"kind": "T", "scope": "Cluster"}},
            id="ingress class",
        ),
        pytest.param("storage.k8s.io", "storageclasses", {}, "reclaimPolicy", "Delete", id="storage class"),
        pytest.param(
            "",
            "persistentvolumes",
            {"spec": {"capacity": {"storage": "0.5Gi"}, "hostPath": {"path": "/"}}},
            "spec",
            {
                "capacity": {"storage": "512Mi"},
                "hostPath": {"path": "/", "type": ""},
                "persistentVolumeReclaimPolicy": "Retain",
                "volumeMode": "Filesystem",
            },
            id="volume",
        ),
        pytest.param(
            "node.k8s.io",
            "runtimeclasses",
            {"overhead": {"podFixed": {"cpu": "0.5"}}},
            "overhead",
            {"podFixed": {"cpu": "500m"}},
            id="runtime",
        ),
        pytest.param(
            "policy",
            "poddisruptionbudgets",
            {},
            "status",
            dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0),
            id="budget",
        ),
        pytest.param(
            "flowcontrol.apiserver.k8s.io", "flowschemas", {}, "spec", {"matchingPrecedence": 1000}, id="flow"
        ),
        pytest.param(
            "flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations",
            {"spec": {"type": "Exempt"}},
            "spec",
            {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
            id="exempt",
        ),
        pytest.param(
            "resource.k8s.io",
            "resourceclaims",
            {"spec": {"devices": {"requests": [{"exactly": {}}, {"firstAvailable": [{"allocationMode": "All"}]}]}}},
            "spec",
            {
                "devices": {
                    "requests": [
                        {"exactly": {"allocationMode": "ExactCount", "count": 1}},
                        {"firstAvailable": [{"allocationMode": "All"}]},
                    ]
                }
            },
            id="claim of devices",
        ),
    ],
)
def test_defaults(group: str, plural: str, content: Document, field: str, expected: object) -> None:
    assert _made(group, plural, **content)[field] == expected


def test_a_claim_has_both_forms_of_its_source() -> None:
    """A cluster's protection keeps it while a pod uses it."""
    source = {"kind": "PersistentVolumeClaim", "name": "o", "apiGroup": None}
    claim = _made("", "persistentvolumeclaims", spec={"dataSource": {"kind": "PersistentVolumeClaim", "name": "o"}})
    assert claim["spec"] == {"volumeMode": "Filesystem", "dataSource": source, "dataSourceRef": source}
    assert claim["status"] == {"phase": "Pending"}
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert "generation" not in claim["metadata"]


def test_a_reference_to_another_namespace_is_dropped() -> None:
    spec: Document = {"dataSourceRef": {"kind": "T", "name": "o", "namespace": "n"}}
    volumes.join_sources(spec)
    assert spec == {}


def test_generations_count_what_counts() -> None:
    policy = _made("networking.k8s.io", "networkpolicies", spec={})
    assert policy["metadata"]["generation"] == 1
    assert (
        _changed("networking.k8s.io", "networkpolicies", policy, spec={"egress": [{}]})["metadata"]["generation"] == 2
    )
    driver = _made("storage.k8s.io", "csidrivers", spec={})
    assert "generation" not in driver["metadata"]
    assert _changed("storage.k8s.io", "csidrivers", driver, spec={"seLinuxMount": True})["metadata"]["generation"] == 1
    rank = _made("scheduling.k8s.io", "priorityclasses", value=1)
    assert _changed("scheduling.k8s.io", "priorityclasses", rank, description="d")["metadata"]["generation"] == 1


def test_labels_of_an_endpoint_slice_count() -> None:
    made = _made("discovery.k8s.io", "endpointslices", endpoints=[])
    changed = _changed("discovery.k8s.io", "endpointslices", made, metadata={**made["metadata"], "labels": {"a": "b"}})
    assert changed["metadata"]["generation"] == 2


def test_an_autoscaler_has_metrics_and_rules() -> None:
    spec = _made("autoscaling", "horizontalpodautoscalers", spec={"behavior": {"scaleUp": {"selectPolicy": "Min"}}})[
        "spec"
    ]
    assert spec["minReplicas"] == 1
    assert spec["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}
    assert spec["behavior"]["scaleUp"]["selectPolicy"] == "Min"
    assert spec["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert [rule["type"] for rule in spec["behavior"]["scaleUp"]["policies"]] == ["Pods", "Percent"]
    assert "stabilizationWindowSeconds" not in spec["behavior"]["scaleDown"]


def test_a_replication_controller_takes_the_labels_of_its_template() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    found = _made("", "replicationcontrollers", spec={"template": template})
    assert found["spec"]["selector"] == found["metadata"]["labels"] == {"a": "b"}


def test_the_phase_of_a_volume_has_a_time() -> None:
    volume = _made("", "persistentvolumes", spec={})
    behaviour = catalog.behaviour("", "persistentvolumes")
    bound = {**volume, "metadata": dict(volume["metadata"]), "status": {**volume["status"], "phase": "Bound"}}
    behaviour.prepare_update(bound, volume, RequestContext("2027-01-02T03:04:05Z", subresource="status"))
    assert bound["status"] == {"phase": "Bound", "lastPhaseTransitionTime": "2027-01-02T03:04:05Z"}


def test_a_revision_keeps_its_data() -> None:
    behaviour = catalog.behaviour("apps", "controllerrevisions")
    old: Document = {"metadata": {}, "data": {"a": 1}}
    fields = [
        cause.field
        for cause in behaviour.validate({**old, "data": {"a": 2}, "revision": -1}, old, RequestContext(_NOW))
    ]
    assert fields == ["data", "revision"]


def test_warnings_of_headless_services_and_tokens() -> None:
    service = catalog.behaviour("", "services")
    spec = {"clusterIP": "None", "sessionAffinity": "ClientIP", "externalIPs": ["10.0.0.1"]}
    assert [text.split()[0] for text in service.warnings({"spec": spec}, None)] == [
        "spec.externalIPs",
        "spec.SessionAffinity",
    ]
    assert service.warnings({"spec": {**spec, "clusterIP": "10.0.0.1"}}, None) == []
    driver, value = catalog.behaviour("storage.k8s.io", "csidrivers"), {"spec": {"tokenRequests": [{"audience": "a"}]}}
    assert len(driver.warnings(value, None)) == 1
    assert driver.warnings(value, value) == []


def test_volumes_of_pods() -> None:
    sized: Document = {"name": "a", "emptyDir": {"sizeLimit": "0.5Gi"}}
    claim: Document = {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    info: Document = {
        "name": "c",
        "downwardAPI": {"items": [{"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}}]},
    }
    for volume in (sized, claim, info):
        volumes.default_volume(volume)
    assert sized["emptyDir"] == {"sizeLimit": "512Mi"}
    assert claim["ephemeral"]["volumeClaimTemplate"]["spec"] == {"volumeMode": "Filesystem"}
    assert info["downwardAPI"]["items"][0]["resourceFieldRef"]["divisor"] == "0"
