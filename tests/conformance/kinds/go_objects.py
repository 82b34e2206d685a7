# SPDX-License-Identifier: Apache-2.0
"""Objects with many fields, as Go clients send them in protobuf, by resource: its path, and the object."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.kinds.go_pods import POD, SIMPLE, TEMPLATE, Document

_SELECTOR: Final[Document] = {"matchLabels": {"app": "a"}}


def _of(api_version: str, kind: str, name: str = "{id}", **more: Any) -> Document:
    metadata = {"name": name, "labels": {"a": "b"}, "annotations": {"empty": ""}, "finalizers": ["example.com/keep"]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def _hook(**more: Any) -> Document:
    return {
        "name": "a.example.com",
        "clientConfig": {"service": {"namespace": "n", "name": "s", "path": "/p", "port": 8443}, "caBundle": "YQ=="},
        "rules": [
            {"operations": ["CREATE"], "apiGroups": ["g.example.com"], "apiVersions": ["v1"], "resources": ["things"]}
        ],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "c", "expression": "true"}],
        "namespaceSelector": {"matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]},
        **more,
    }


_DEFINITION: Final[Document] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.{id}.example.com"},
    "spec": {
        "group": "{id}.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "things",
            "singular": "thing",
            "kind": "Thing",
            "listKind": "ThingList",
            "shortNames": ["th"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                },
                "selectableFields": [{"jsonPath": ".spec.host"}],
                "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["n"],
                                "x-kubernetes-validations": [
                                    {"rule": "self.n > 0", "message": "positive", "reason": "FieldValueInvalid"}
                                ],
                                "properties": {
                                    "n": {"type": "integer", "minimum": 1, "maximum": 10.5, "default": 3},
                                    "host": {"type": "string", "enum": ["a", "b"], "maxLength": 0, "nullable": True},
                                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "either": {"x-kubernetes-int-or-string": True},
                                    "object": {"type": "object", "x-kubernetes-embedded-resource": True},
                                    "list": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["k"],
                                        "items": {
                                            "type": "object",
                                            "required": ["k"],
                                            "properties": {"k": {"type": "string"}},
                                        },
                                    },
                                    "map": {
                                        "type": "object",
                                        "x-kubernetes-map-type": "atomic",
                                        "additionalProperties": {"type": "number", "multipleOf": 0.5},
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
_RULE: Final[Document] = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]}
_METRIC: Final[Document] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
}
_NAMESPACED: Final = "/namespaces/{ns}"
OBJECTS: Final[dict[str, tuple[str, Document]]] = {
    "pods": (f"/api/v1{_NAMESPACED}", _of("v1", "Pod", spec=POD)),
    "configmaps": (
        f"/api/v1{_NAMESPACED}",
        _of("v1", "ConfigMap", data={"k": "v", "e": ""}, binaryData={"b": "AAE="}, immutable=False),
    ),
    "secrets": (f"/api/v1{_NAMESPACED}", _of("v1", "Secret", type="Opaque", data={"k": "AAE=", "e": ""})),
    "services": (
        f"/api/v1{_NAMESPACED}",
        _of(
            "v1",
            "Service",
            spec={
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {"a": "b"},
                "ports": [{"name": "h", "port": 80, "targetPort": "http"}, {"name": "g", "port": 81, "targetPort": 82}],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
            },
        ),
    ),
    "serviceaccounts": (
        f"/api/v1{_NAMESPACED}",
        _of("v1", "ServiceAccount", imagePullSecrets=[{"name": "p"}], automountServiceAccountToken=False),
    ),
    "limitranges": (
        f"/api/v1{_NAMESPACED}",
        _of(
            "v1", "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "0.5"}}]}
        ),
    ),
    "resourcequotas": (
        f"/api/v1{_NAMESPACED}",
        _of(
            "v1",
            "ResourceQuota",
            spec={
                "hard": {"pods": "0", "requests.cpu": "1500m"},
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
                },
            },
        ),
    ),
    "persistentvolumeclaims": (
        f"/api/v1{_NAMESPACED}",
        _of(
            "v1",
            "PersistentVolumeClaim",
            spec={
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "volumeMode": "Block",
                "resources": {"requests": {"storage": "1Gi"}},
                "dataSourceRef": {"apiGroup": "g.example.com", "kind": "Thing", "name": "t"},
            },
        ),
    ),
    "nodes": (
        "/api/v1",
        _of(
            "v1",
            "Node",
            spec={
                "unschedulable": True,
                "podCIDRs": ["10.0.0.0/24"],
                "podCIDR": "10.0.0.0/24",
                "taints": [{"key": "k", "effect": "NoSchedule"}],
            },
        ),
    ),
    "jobs": (
        f"/apis/batch/v1{_NAMESPACED}",
        _of(
            "batch/v1",
            "Job",
            spec={
                "parallelism": 0,
                "completions": 4,
                "completionMode": "Indexed",
                "suspend": True,
                "backoffLimit": 0,
                "activeDeadlineSeconds": 60,
                "ttlSecondsAfterFinished": 0,
                "managedBy": "example.com/other",
                "podReplacementPolicy": "Failed",
                "podFailurePolicy": {
                    "rules": [
                        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 42]}},
                    ]
                },
                "successPolicy": {"rules": [{"succeededIndexes": "0-2", "succeededCount": 2}]},
                "template": {"metadata": {"labels": {"l": "m"}}, "spec": POD},
            },
        ),
    ),
    "cronjobs": (
        f"/apis/batch/v1{_NAMESPACED}",
        _of(
            "batch/v1",
            "CronJob",
            spec={
                "schedule": "0 0 1 1 *",
                "timeZone": "Etc/UTC",
                "suspend": False,
                "startingDeadlineSeconds": 0,
                "failedJobsHistoryLimit": 0,
                "jobTemplate": {"spec": {"template": {"spec": {**SIMPLE, "restartPolicy": "Never"}}}},
            },
        ),
    ),
    "deployments": (
        f"/apis/apps/v1{_NAMESPACED}",
        _of(
            "apps/v1",
            "Deployment",
            spec={
                "replicas": 0,
                "minReadySeconds": 2,
                "paused": True,
                "revisionHistoryLimit": 0,
                "selector": _SELECTOR,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "30%", "maxUnavailable": 0}},
                "template": TEMPLATE,
            },
        ),
    ),
    "statefulsets": (
        f"/apis/apps/v1{_NAMESPACED}",
        _of(
            "apps/v1",
            "StatefulSet",
            spec={
                "replicas": 0,
                "serviceName": "s",
                "ordinals": {"start": 3},
                "selector": _SELECTOR,
                "template": TEMPLATE,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    }
                ],
            },
        ),
    ),
    "leases": (
        f"/apis/coordination.k8s.io/v1{_NAMESPACED}",
        _of(
            "coordination.k8s.io/v1",
            "Lease",
            spec={
                "holderIdentity": "",
                "leaseDurationSeconds": 15,
                "leaseTransitions": 0,
                "acquireTime": "2026-01-02T03:04:05.000006Z",
                "renewTime": "2026-01-02T03:04:06.100000Z",
            },
        ),
    ),
    "poddisruptionbudgets": (
        f"/apis/policy/v1{_NAMESPACED}",
        _of("policy/v1", "PodDisruptionBudget", spec={"minAvailable": "50%", "selector": _SELECTOR}),
    ),
    "horizontalpodautoscalers": (
        f"/apis/autoscaling/v2{_NAMESPACED}",
        _of(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            spec={
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [_METRIC],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled"}},
            },
        ),
    ),
    "networkpolicies": (
        f"/apis/networking.k8s.io/v1{_NAMESPACED}",
        _of(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            spec={
                "podSelector": {},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {
                        "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                        "ports": [{"port": 80, "endPort": 90}, {"port": "http"}],
                    }
                ],
            },
        ),
    ),
    "ingresses": (
        f"/apis/networking.k8s.io/v1{_NAMESPACED}",
        _of(
            "networking.k8s.io/v1",
            "Ingress",
            spec={
                "ingressClassName": "c",
                "defaultBackend": {"resource": {"apiGroup": "g.example.com", "kind": "Thing", "name": "t"}},
                "rules": [
                    {
                        "host": "h.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        },
                    }
                ],
            },
        ),
    ),
    "ingressclasses": (
        "/apis/networking.k8s.io/v1",
        _of(
            "networking.k8s.io/v1",
            "IngressClass",
            spec={
                "controller": "example.com/c",
                "parameters": {"apiGroup": "g.example.com", "kind": "T", "name": "t", "scope": "Cluster"},
            },
        ),
    ),
    "roles": (
        f"/apis/rbac.authorization.k8s.io/v1{_NAMESPACED}",
        _of("rbac.authorization.k8s.io/v1", "Role", rules=[_RULE]),
    ),
    "clusterroles": (
        "/apis/rbac.authorization.k8s.io/v1",
        _of(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            rules=[{"nonResourceURLs": ["/healthz"], "verbs": ["get"]}],
            aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "{id}"}}]},
        ),
    ),
    "rolebindings": (
        f"/apis/rbac.authorization.k8s.io/v1{_NAMESPACED}",
        _of(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            subjects=[{"kind": "ServiceAccount", "name": "s", "namespace": "n"}, {"kind": "User", "name": "u"}],
        ),
    ),
    "priorityclasses": (
        "/apis/scheduling.k8s.io/v1",
        _of("scheduling.k8s.io/v1", "PriorityClass", value=-5, preemptionPolicy="Never", description="low"),
    ),
    "endpointslices": (
        f"/apis/discovery.k8s.io/v1{_NAMESPACED}",
        _of(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            addressType="IPv4",
            ports=[{"name": "", "port": 80, "protocol": "TCP", "appProtocol": "example.com/p"}],
            endpoints=[
                {
                    "addresses": ["10.0.0.1"],
                    "conditions": {"ready": False, "serving": True},
                    "targetRef": {"kind": "Pod", "namespace": "n", "name": "p"},
                }
            ],
        ),
    ),
    "events": (
        f"/apis/events.k8s.io/v1{_NAMESPACED}",
        _of(
            "events.k8s.io/v1",
            "Event",
            eventTime="2026-01-02T03:04:05.000006Z",
            reportingController="example.com/c",
            reportingInstance="i",
            action="Did",
            reason="Why",
            note="n",
            type="Normal",
            regarding={"kind": "Pod", "namespace": "{ns}", "name": "p", "apiVersion": "v1"},
        ),
    ),
    "storageclasses": (
        "/apis/storage.k8s.io/v1",
        _of(
            "storage.k8s.io/v1",
            "StorageClass",
            provisioner="example.com/p",
            parameters={"a": "b"},
            allowVolumeExpansion=False,
            volumeBindingMode="WaitForFirstConsumer",
        ),
    ),
    "runtimeclasses": (
        "/apis/node.k8s.io/v1",
        _of(
            "node.k8s.io/v1",
            "RuntimeClass",
            handler="h",
            overhead={"podFixed": {"cpu": "10m"}},
            scheduling={"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
        ),
    ),
    "validatingwebhookconfigurations": (
        "/apis/admissionregistration.k8s.io/v1",
        _of("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", webhooks=[_hook(timeoutSeconds=3)]),
    ),
    "mutatingwebhookconfigurations": (
        "/apis/admissionregistration.k8s.io/v1",
        _of(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            webhooks=[_hook(reinvocationPolicy="IfNeeded")],
        ),
    ),
    "validatingadmissionpolicies": (
        "/apis/admissionregistration.k8s.io/v1",
        _of(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
            spec={
                "failurePolicy": "Ignore",
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "operations": ["CREATE"],
                            "apiGroups": ["g.example.com"],
                            "apiVersions": ["v1"],
                            "resources": ["things"],
                            "resourceNames": ["one"],
                        }
                    ]
                },
                "variables": [{"name": "v", "expression": "1"}],
                "validations": [{"expression": "variables.v == 1", "message": "m", "reason": "Forbidden"}],
                "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}],
            },
        ),
    ),
    "customresourcedefinitions": ("/apis/apiextensions.k8s.io/v1", _DEFINITION),
    "apiservices": (
        "/apis/apiregistration.k8s.io/v1",
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1.{id}.example.com"},
            "spec": {
                "group": "{id}.example.com",
                "version": "v1",
                "groupPriorityMinimum": 100,
                "versionPriority": 1,
                "insecureSkipTLSVerify": True,
                "service": {"namespace": "n", "name": "s", "port": 444},
            },
        },
    ),
    "localsubjectaccessreviews": (
        f"/apis/authorization.k8s.io/v1{_NAMESPACED}",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": "{ns}"},
            "spec": {
                "user": "u",
                "groups": ["g"],
                "extra": {"scope": ["a", ""]},
                "resourceAttributes": {"namespace": "{ns}", "verb": "get", "resource": "pods"},
            },
        },
    ),
}
