# SPDX-License-Identifier: Apache-2.0
"""An object of each built-in kind: how it is stored, counted in generations, changed and deleted."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from devcluster.apiserver.registry.resources import Registry
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Side
from tests.conformance.kinds.kind_objects import CLAIM, OBJECTS, SELECTOR, TARGET, TEMPLATE, Document

pytestmark = pytest.mark.binaries

CASES = Cases("objects")

_POLICY: Final[Document] = {"type": "Percent", "value": 5, "periodSeconds": 5}
_VOLUMES: Final[list[Document]] = [
    {"name": "a", "emptyDir": {"sizeLimit": "0.5Gi"}},
    {"name": "b", "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.com.example:storage", "lun": 0}},
    {"name": "c", "image": {"reference": "registry.example/a:latest"}},
    {
        "name": "d",
        "downwardAPI": {"items": [{"path": "p", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]},
    },
    {
        "name": "e",
        "ephemeral": {
            "volumeClaimTemplate": {"spec": {**CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "o"}}}
        },
    },
    {
        "name": "f",
        "projected": {"sources": [{"secret": {"name": "s"}}]},
    },
    {"name": "g", "hostPath": {"path": "/x"}},
    {"name": "h"},
]
_RICH: Final[Document] = {
    "containers": [
        {
            "name": "c",
            "image": "i:1",
            "env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
            "livenessProbe": {"grpc": {"port": 1}},
        }
    ],
    "volumes": _VOLUMES,
    "overhead": {"cpu": "0.1"},
}
_EXTERNAL: Final[Document] = {
    "type": "External",
    "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "1500m"}},
}
# More contents of objects, by the name of the case.
_MORE: Final[dict[str, tuple[str, str, Document]]] = {
    "a pod template of many volumes": ("", "podtemplates", {"template": {"spec": _RICH}}),
    "a Deployment of many volumes": (
        "apps",
        "deployments",
        {"spec": {"selector": SELECTOR, "template": {"metadata": {"labels": {"app": "a"}}, "spec": _RICH}}},
    ),
    "a stateful set of claims with sources": (
        "apps",
        "statefulsets",
        {
            "spec": {
                "selector": SELECTOR,
                "template": TEMPLATE,
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "a"},
                        "spec": {**CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "o"}},
                        "status": {"phase": "Lost"},
                    }
                ],
            }
        },
    ),
    "a replication controller of its own selector": (
        "",
        "replicationcontrollers",
        {"spec": {"replicas": 0, "selector": {"app": "a"}, "template": TEMPLATE, "minReadySeconds": 3}},
    ),
    "a claim of a reference": (
        "",
        "persistentvolumeclaims",
        {"spec": {**CLAIM, "dataSourceRef": {"apiGroup": "g.example.com", "kind": "T", "name": "o"}}},
    ),
    "a claim of a reference elsewhere": (
        "",
        "persistentvolumeclaims",
        {
            "spec": {
                **CLAIM,
                "dataSourceRef": {"apiGroup": "g.example.com", "kind": "T", "name": "o", "namespace": "n"},
            }
        },
    ),
    "a volume of a driver": (
        "",
        "persistentvolumes",
        {
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "capacity": {"storage": "1024Mi"},
                "csi": {"driver": "d.example.com", "volumeHandle": "h"},
                "volumeMode": "Block",
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}
                },
            }
        },
    ),
    "a volume of iSCSI": (
        "",
        "persistentvolumes",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.com.example:storage", "lun": 0},
            }
        },
    ),
    "a driver that sets all": (
        "storage.k8s.io",
        "csidrivers",
        {
            "spec": {
                "attachRequired": False,
                "podInfoOnMount": True,
                "volumeLifecycleModes": ["Ephemeral", "Persistent"],
                "fsGroupPolicy": "File",
                "seLinuxMount": True,
                "nodeAllocatableUpdatePeriodSeconds": 60,
            }
        },
    ),
    "a headless service of addresses": (
        "",
        "services",
        {
            "spec": {
                "clusterIP": "None",
                "externalIPs": ["1.2.3.4"],
                "selector": {"a": "b"},
                "sessionAffinity": "ClientIP",
            }
        },
    ),
    "a network policy for what goes out": (
        "networking.k8s.io",
        "networkpolicies",
        {"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 1, "endPort": 5}]}]}},
    ),
    "a network policy of nothing": ("networking.k8s.io", "networkpolicies", {"spec": {"podSelector": {}}}),
    "an ingress of a resource": (
        "networking.k8s.io",
        "ingresses",
        {"spec": {"defaultBackend": {"resource": {"kind": "ConfigMap", "name": "t"}}}},
    ),
    "an ingress class of a namespace": (
        "networking.k8s.io",
        "ingressclasses",
        {
            "spec": {
                "controller": "example.com/c",
                "parameters": {"kind": "T", "name": "t", "scope": "Namespace", "namespace": "n"},
            }
        },
    ),
    "an autoscaler of metrics and rules": (
        "autoscaling",
        "horizontalpodautoscalers",
        {
            "spec": {
                "scaleTargetRef": TARGET,
                "minReplicas": 2,
                "maxReplicas": 3,
                "metrics": [_EXTERNAL],
                "behavior": {"scaleDown": {"policies": [_POLICY], "selectPolicy": "Min", "tolerance": "0.05"}},
            }
        },
    ),
    "a disruption budget of a percentage": (
        "policy",
        "poddisruptionbudgets",
        {"spec": {"minAvailable": "0%", "selector": {}}},
    ),
    "a limit range of pods": (
        "",
        "limitranges",
        {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "0.5"}, "min": {"cpu": "0.1"}}]}},
    ),
    "a resource claim of alternatives": (
        "resource.k8s.io",
        "resourceclaims",
        {
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "one",
                            "firstAvailable": [
                                {"name": "a", "deviceClassName": "c"},
                                {"name": "b", "deviceClassName": "c", "allocationMode": "All"},
                            ],
                        }
                    ],
                    "config": [{"requests": ["one"], "opaque": {"driver": "d.example.com", "parameters": {"a": 1}}}],
                }
            }
        },
    ),
    "a flow schema of groups": (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        {
            "spec": {
                "matchingPrecedence": 3,
                "priorityLevelConfiguration": {"name": "none"},
                "rules": [
                    {
                        "subjects": [{"kind": "Group", "group": {"name": "g"}}],
                        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
                    }
                ],
            }
        },
    ),
    "a priority level that rejects": (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}, "borrowingLimitPercent": 0}}},
    ),
    "a priority level without queues": (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}},
    ),
    "an attachment of its own volume": (
        "storage.k8s.io",
        "volumeattachments",
        {
            "spec": {
                "attacher": "a.example.com",
                "nodeName": "n",
                "source": {
                    "inlineVolumeSpec": {
                        "accessModes": ["ReadWriteOnce"],
                        "csi": {"driver": "d.example.com", "volumeHandle": "h"},
                    }
                },
            }
        },
    ),
    "a slice of shared counters": (
        "resource.k8s.io",
        "resourceslices",
        {
            "spec": {
                "driver": "a.example.com",
                "allNodes": True,
                "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1},
                "sharedCounters": [{"name": "s", "counters": {"m": {"value": "1024Mi"}}}],
            }
        },
    ),
}
_NAMES: Final = {
    ("apiregistration.k8s.io", "apiservices"): "v1.{id}.example.com",
    ("networking.k8s.io", "ipaddresses"): "10.96.77.1",
}


def _add(group: str, plural: str) -> None:
    kind = next(kind for kind in Registry().types(group) if kind.plural == plural)
    content, change, status = OBJECTS[group, plural]
    name = _NAMES.get((group, plural), "{id}-x" if plural == "namespaces" else "{id}")
    root = f"/apis/{kind.api_version}" if group else "/api/v1"
    place = f"{root}/namespaces/{{ns}}/{plural}" if kind.namespaced else f"{root}/{plural}"
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **content}

    @CASES.case(f"{kind.qualified} are made, changed and deleted")
    async def play(side: Side) -> None:
        if plural == "pods":
            account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
            await side.post("/api/v1/namespaces/{ns}/serviceaccounts", account)
        path = f"{place}/{name}"
        await _post(side, place, document)
        await side.patch("merge", path, change)
        await side.patch("merge", path, {"metadata": {"labels": {"l": "m"}}})
        if status is not None:
            await side.patch("merge", f"{path}/status", {"status": status})
        found = await side.get(path)
        await side.put(path, _compact(found.body))
        if plural != "namespaces":
            await side.delete(f"{path}?dryRun=All&gracePeriodSeconds=0")
            await side.patch("merge", path, {"metadata": {"finalizers": None}})
        await side.delete(f"{path}?gracePeriodSeconds=0")


def _compact(value: Any) -> bytes:
    """The body without spaces: a real server compares the text of values that have no type."""
    return json.dumps(value, separators=(",", ":")).encode()


async def _post(side: Side, place: str, document: Document) -> None:
    await side.post(place, _compact(side.own(document)))


def _add_more(name: str, group: str, plural: str, content: Document) -> None:
    kind = next(kind for kind in Registry().types(group) if kind.plural == plural)
    root = f"/apis/{kind.api_version}" if group else "/api/v1"
    place = f"{root}/namespaces/{{ns}}/{plural}" if kind.namespaced else f"{root}/{plural}"
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "{id}"}, **content}

    @CASES.case(name)
    async def play(side: Side) -> None:
        await _post(side, place, document)
        found = await side.get(f"{place}/{{id}}")
        if plural != "persistentvolumeclaims":
            # A real server writes a claim anew with its first PUT, though nothing of it is other.
            await side.put(f"{place}/{{id}}", _compact(found.body))


for _group, _plural in OBJECTS:
    _add(_group, _plural)
for _name, _more in _MORE.items():
    _add_more(_name, *_more)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_kind_is_kept_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Defaults, generations, status and what a deletion answers."""
    await judge(case)
