# SPDX-License-Identifier: Apache-2.0
"""An object of each built-in kind: how it is stored, counted in generations, changed and deleted."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from devcluster.apiserver.registry.resources import Registry
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Side

pytestmark = pytest.mark.binaries

CASES = Cases("objects")
Document = dict[str, Any]

_SELECTOR: Final[Document] = {"matchLabels": {"app": "a"}}
_POD: Final[Document] = {"containers": [{"name": "c", "image": "i"}]}
_TEMPLATE: Final[Document] = {"metadata": {"labels": {"app": "a"}}, "spec": _POD}
_CLAIM: Final[Document] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0.5Gi"}}}
_RULE: Final[Document] = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_TARGET: Final[Document] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
_NOTHING: Final[Document] = {
    "operations": ["CREATE"],
    "apiGroups": ["g.example.com"],
    "apiVersions": ["v1"],
    "resources": ["things"],
}
_BACKEND: Final[Document] = {"service": {"name": "s", "port": {"number": 80}}}
_HOOK: Final[Document] = {
    "name": "a.example.com",
    "clientConfig": {"service": {"namespace": "n", "name": "s"}},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [_NOTHING],
}
_SCHEMA: Final[Document] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
_MUTATION: Final[Document] = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"},
}
_EXPOSED: Final[Document] = {
    "name": "d0",
    "attributes": {"model": {"string": "m"}, "size": {"int": 3}},
    "capacity": {"memory": {"value": "0.5Gi"}},
}
_REQUEST: Final[Document] = {
    "name": "one",
    "exactly": {"deviceClassName": "c", "tolerations": [{"key": "k", "value": "v"}]},
}

# The contents of an object, a change of it, and a change of its status.
_OBJECTS: Final[dict[tuple[str, str], tuple[Document, Document, Document | None]]] = {
    ("", "configmaps"): ({"data": {"a": "b"}}, {"data": {"a": "c"}}, None),
    ("", "endpoints"): (
        {"subsets": [{"addresses": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
        {"subsets": [{"notReadyAddresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 80, "protocol": "UDP"}]}]},
        None,
    ),
    ("", "events"): (
        {"involvedObject": {"namespace": "{ns}", "name": "n"}, "reason": "r", "message": "m", "type": "Normal"},
        {"count": 2},
        None,
    ),
    ("", "limitranges"): (
        {
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "1.5", "memory": "2048Mi"},
                        "default": {"cpu": "0.5"},
                        "maxLimitRequestRatio": {"cpu": "4.0"},
                    },
                    {"type": "PersistentVolumeClaim", "min": {"storage": "0.5Gi"}},
                ]
            }
        },
        {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2000m"}}]}},
        None,
    ),
    ("", "namespaces"): ({}, {"metadata": {"labels": {"a": "b"}}}, {"phase": "Active"}),
    ("", "nodes"): (
        {"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "0.5", "memory": "1024Mi"}}},
        {"spec": {"unschedulable": True}},
        {"capacity": {"cpu": "1500m"}, "allocatable": {"cpu": "0.5"}},
    ),
    ("", "persistentvolumeclaims"): (
        {"spec": {**_CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}},
        {"spec": {"volumeName": "v"}},
        {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "0.5Gi"}},
    ),
    ("", "persistentvolumes"): (
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "0.5Gi"},
                "hostPath": {"path": "/x"},
                "claimRef": {"namespace": "n", "name": "c"},
            }
        },
        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
        {"phase": "Bound"},
    ),
    ("", "pods"): (
        {"spec": {**_POD, "automountServiceAccountToken": False}},
        {"spec": {"containers": [{"name": "c", "image": "j"}]}},
        {"phase": "Running"},
    ),
    ("", "podtemplates"): (
        {"template": _TEMPLATE},
        {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}},
        None,
    ),
    ("", "replicationcontrollers"): (
        {"spec": {"template": _TEMPLATE}},
        {"spec": {"replicas": 0}},
        {"replicas": 1, "readyReplicas": 1},
    ),
    ("", "resourcequotas"): (
        {"spec": {"hard": {"pods": "4", "requests.cpu": "0.5"}}},
        {"spec": {"hard": {"pods": "5"}}},
        {"hard": {"pods": "5"}, "used": {"pods": "0"}},
    ),
    ("", "secrets"): ({"stringData": {"a": "b"}}, {"data": {"a": "YQ=="}}, None),
    ("", "serviceaccounts"): ({}, {"automountServiceAccountToken": False}, None),
    ("", "services"): (
        {"spec": {"clusterIP": "None", "selector": {"a": "b"}}},
        {"spec": {"publishNotReadyAddresses": True}},
        {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}},
    ),
    ("apiregistration.k8s.io", "apiservices"): (
        {"spec": {"group": "{id}.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 1}},
        {"spec": {"versionPriority": 2}},
        None,
    ),
    ("apps", "controllerrevisions"): ({"revision": 1, "data": {"spec": {"a": [1]}}}, {"revision": 2}, None),
    ("apps", "daemonsets"): (
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 5}},
        {"numberReady": 1},
    ),
    ("apps", "deployments"): (
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 5}},
        {"replicas": 1},
    ),
    ("apps", "replicasets"): (
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 5}},
        {"replicas": 1},
    ),
    ("apps", "statefulsets"): (
        {
            "spec": {
                "selector": _SELECTOR,
                "template": _TEMPLATE,
                "volumeClaimTemplates": [
                    {"metadata": {"name": "a"}, "spec": _CLAIM},
                    {"metadata": {"name": "b"}, "spec": {**_CLAIM, "volumeMode": "Block"}},
                ],
            }
        },
        {"spec": {"minReadySeconds": 5}},
        {"replicas": 1},
    ),
    ("autoscaling", "horizontalpodautoscalers"): (
        {"spec": {"scaleTargetRef": _TARGET, "maxReplicas": 3}},
        {
            "spec": {
                "metrics": [
                    {"type": "Resource", "resource": {"name": "m", "target": {"type": "Value", "averageValue": "0.5"}}},
                    {
                        "type": "External",
                        "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "0.5"}},
                    },
                ],
                "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]}},
            }
        },
        {"currentReplicas": 1, "desiredReplicas": 2},
    ),
    ("batch", "cronjobs"): (
        {
            "spec": {
                "schedule": "0 0 1 1 *",
                "jobTemplate": {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
            }
        },
        {"spec": {"suspend": True}},
        {"lastScheduleTime": "2026-01-02T03:04:05Z"},
    ),
    ("batch", "jobs"): (
        {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
        {"spec": {"suspend": True}},
        {"startTime": "2026-01-02T03:04:05Z"},
    ),
    ("networking.k8s.io", "ingressclasses"): (
        {
            "spec": {
                "controller": "example.com/c",
                "parameters": {"apiGroup": "g.example.com", "kind": "T", "name": "t"},
            }
        },
        {"spec": {"parameters": {"name": "u"}}},
        None,
    ),
    ("networking.k8s.io", "ingresses"): (
        {
            "spec": {
                "tls": [{"hosts": ["h.example.com"], "secretName": "s"}],
                "rules": [
                    {
                        "host": "h.example.com",
                        "http": {"paths": [{"pathType": "Exact", "path": "/a", "backend": _BACKEND}]},
                    }
                ],
            }
        },
        {"spec": {"defaultBackend": _BACKEND}},
        {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}},
    ),
    ("networking.k8s.io", "ipaddresses"): (
        {"spec": {"parentRef": {"resource": "things", "name": "t"}}},
        {"metadata": {"labels": {"a": "b"}}},
        None,
    ),
    ("networking.k8s.io", "networkpolicies"): (
        {
            "spec": {
                "podSelector": {"matchLabels": {"a": "b"}},
                "ingress": [{"ports": [{"port": 80}], "from": [{"podSelector": {}}]}, {}],
            }
        },
        {
            "spec": {
                "policyTypes": ["Ingress", "Egress"],
                "egress": [{"ports": [{"port": "dns", "protocol": "UDP"}, {"port": 80}]}],
            }
        },
        None,
    ),
    ("networking.k8s.io", "servicecidrs"): (
        {"spec": {"cidrs": ["10.200.0.0/16"]}},
        {"metadata": {"labels": {"a": "b"}}},
        {
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-02T03:04:05Z"}
            ]
        },
    ),
    ("policy", "poddisruptionbudgets"): (
        {"spec": {"maxUnavailable": 1, "selector": _SELECTOR}},
        {"spec": {"maxUnavailable": "10%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}},
        {"disruptionsAllowed": 1},
    ),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): (
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
        },
        {"subjects": [{"kind": "Group", "name": "g"}]},
        None,
    ),
    ("rbac.authorization.k8s.io", "clusterroles"): (
        {"rules": [_RULE]},
        {"rules": [{**_RULE, "verbs": ["list"]}]},
        None,
    ),
    ("rbac.authorization.k8s.io", "rolebindings"): (
        {
            "roleRef": {"kind": "Role", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "User", "name": "u"}],
        },
        {"subjects": [{"kind": "Group", "name": "g"}]},
        None,
    ),
    ("rbac.authorization.k8s.io", "roles"): ({"rules": [_RULE]}, {"rules": [{**_RULE, "verbs": ["list"]}]}, None),
    ("storage.k8s.io", "csidrivers"): (
        {"spec": {"tokenRequests": [{"audience": "a"}]}},
        {"spec": {"requiresRepublish": True, "storageCapacity": True}},
        None,
    ),
    ("storage.k8s.io", "csinodes"): (
        {
            "spec": {
                "drivers": [
                    {"name": "d.example.com", "nodeID": "n", "allocatable": {"count": 3}, "topologyKeys": ["a/b"]}
                ]
            }
        },
        {"metadata": {"labels": {"a": "b"}}},
        None,
    ),
    ("storage.k8s.io", "csistoragecapacities"): (
        {"storageClassName": "c", "capacity": "0.5Gi", "maximumVolumeSize": "1024Mi", "nodeTopology": {}},
        {"capacity": "1Gi"},
        None,
    ),
    ("storage.k8s.io", "storageclasses"): ({"provisioner": "example.com/p"}, {"allowVolumeExpansion": True}, None),
    ("storage.k8s.io", "volumeattachments"): (
        {"spec": {"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"attached": True, "attachmentMetadata": {"a": "b"}},
    ),
    ("storage.k8s.io", "volumeattributesclasses"): (
        {"driverName": "d.example.com", "parameters": {"a": "b"}},
        {"metadata": {"labels": {"a": "b"}}},
        None,
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): (
        {
            "spec": {
                "matchConstraints": {"resourceRules": [_NOTHING]},
                "mutations": [_MUTATION],
                "reinvocationPolicy": "Never",
            }
        },
        {"spec": {"failurePolicy": "Ignore"}},
        None,
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): (
        {"spec": {"policyName": "none"}},
        {"spec": {"matchResources": {"resourceRules": [_NOTHING]}}},
        None,
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): (
        {"webhooks": [_HOOK]},
        {"webhooks": [{**_HOOK, "timeoutSeconds": 3}]},
        None,
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): (
        {"spec": {"matchConstraints": {"resourceRules": [_NOTHING]}, "validations": [{"expression": "true"}]}},
        {"spec": {"failurePolicy": "Ignore"}},
        {"observedGeneration": 1},
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): (
        {"spec": {"policyName": "none", "validationActions": ["Deny"]}},
        {"spec": {"validationActions": ["Warn"]}},
        None,
    ),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): (
        {"webhooks": [_HOOK]},
        {"webhooks": [{**_HOOK, "timeoutSeconds": 3}]},
        None,
    ),
    ("scheduling.k8s.io", "priorityclasses"): ({"value": 5}, {"description": "d"}, None),
    ("coordination.k8s.io", "leases"): ({"spec": {"holderIdentity": "a"}}, {"spec": {"holderIdentity": "b"}}, None),
    ("node.k8s.io", "runtimeclasses"): (
        {"handler": "h", "overhead": {"podFixed": {"cpu": "0.5"}}, "scheduling": {"tolerations": [{"key": "k"}]}},
        {"scheduling": {"nodeSelector": {"a": "b"}}},
        None,
    ),
    ("discovery.k8s.io", "endpointslices"): (
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
        {"endpoints": [{"addresses": ["10.0.0.2"]}]},
        None,
    ),
    ("resource.k8s.io", "deviceclasses"): (
        {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'a.example.com'"}}]}},
        {"spec": {"config": [{"opaque": {"driver": "a.example.com", "parameters": {"a": 1}}}]}},
        None,
    ),
    ("resource.k8s.io", "resourceclaims"): (
        {"spec": {"devices": {"requests": [_REQUEST]}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"reservedFor": []},
    ),
    ("resource.k8s.io", "resourceclaimtemplates"): (
        {"spec": {"spec": {"devices": {"requests": [_REQUEST]}}}},
        {"metadata": {"labels": {"a": "b"}}},
        None,
    ),
    ("resource.k8s.io", "resourceslices"): (
        {
            "spec": {
                "driver": "a.example.com",
                "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [_EXPOSED],
            }
        },
        {"spec": {"devices": [_EXPOSED, {"name": "d1"}]}},
        None,
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): (
        {
            "spec": {
                "priorityLevelConfiguration": {"name": "none"},
                "rules": [
                    {
                        "subjects": [{"kind": "User", "user": {"name": "u"}}],
                        "resourceRules": [
                            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["n"]}
                        ],
                    }
                ],
            }
        },
        {"spec": {"distinguisherMethod": {"type": "ByUser"}, "matchingPrecedence": 500}},
        {"conditions": [{"type": "Dangling", "status": "False"}]},
    ),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): (
        {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}},
        {"spec": {"limited": {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject", "queuing": None}}}},
        {"conditions": [{"type": "Ready", "status": "False"}]},
    ),
}
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
            "volumeClaimTemplate": {"spec": {**_CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "o"}}}
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
        {"spec": {"selector": _SELECTOR, "template": {"metadata": {"labels": {"app": "a"}}, "spec": _RICH}}},
    ),
    "a stateful set of claims with sources": (
        "apps",
        "statefulsets",
        {
            "spec": {
                "selector": _SELECTOR,
                "template": _TEMPLATE,
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "a"},
                        "spec": {**_CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "o"}},
                        "status": {"phase": "Lost"},
                    }
                ],
            }
        },
    ),
    "a replication controller of its own selector": (
        "",
        "replicationcontrollers",
        {"spec": {"replicas": 0, "selector": {"app": "a"}, "template": _TEMPLATE, "minReadySeconds": 3}},
    ),
    "a claim of a reference": (
        "",
        "persistentvolumeclaims",
        {"spec": {**_CLAIM, "dataSourceRef": {"apiGroup": "g.example.com", "kind": "T", "name": "o"}}},
    ),
    "a claim of a reference elsewhere": (
        "",
        "persistentvolumeclaims",
        {
            "spec": {
                **_CLAIM,
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
                "scaleTargetRef": _TARGET,
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
    content, change, status = _OBJECTS[group, plural]
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


for _group, _plural in _OBJECTS:
    _add(_group, _plural)
for _name, _more in _MORE.items():
    _add_more(_name, *_more)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_kind_is_kept_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Defaults, generations, status and what a deletion answers."""
    await judge(case)
