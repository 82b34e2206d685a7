# SPDX-License-Identifier: Apache-2.0
"""An object of each built-in kind, a change of it and a status, by group and plural."""

from __future__ import annotations

from typing import Any, Final

Document = dict[str, Any]

SELECTOR: Final[Document] = {"matchLabels": {"app": "a"}}
_POD: Final[Document] = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE: Final[Document] = {"metadata": {"labels": {"app": "a"}}, "spec": _POD}
CLAIM: Final[Document] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0.5Gi"}}}
_RULE: Final[Document] = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
TARGET: Final[Document] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
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
OBJECTS: Final[dict[tuple[str, str], tuple[Document, Document, Document | None]]] = {
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
        {"spec": {**CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}},
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
        {"template": TEMPLATE},
        {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}},
        None,
    ),
    ("", "replicationcontrollers"): (
        {"spec": {"template": TEMPLATE}},
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
        {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        {"spec": {"minReadySeconds": 5}},
        {"numberReady": 1},
    ),
    ("apps", "deployments"): (
        {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        {"spec": {"minReadySeconds": 5}},
        {"replicas": 1},
    ),
    ("apps", "replicasets"): (
        {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        {"spec": {"minReadySeconds": 5}},
        {"replicas": 1},
    ),
    ("apps", "statefulsets"): (
        {
            "spec": {
                "selector": SELECTOR,
                "template": TEMPLATE,
                "volumeClaimTemplates": [
                    {"metadata": {"name": "a"}, "spec": CLAIM},
                    {"metadata": {"name": "b"}, "spec": {**CLAIM, "volumeMode": "Block"}},
                ],
            }
        },
        {"spec": {"minReadySeconds": 5}},
        {"replicas": 1},
    ),
    ("autoscaling", "horizontalpodautoscalers"): (
        {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}},
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
        {"spec": {"maxUnavailable": 1, "selector": SELECTOR}},
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
