# SPDX-License-Identifier: Apache-2.0
"""Specs of pods with many fields, among them zeros and empty texts that differ from absent."""

from __future__ import annotations

from typing import Any, Final

Document = dict[str, Any]

_CONTAINER: Final[Document] = {
    "name": "main",
    "image": "registry.example/main:1",
    "command": ["run"],
    "args": ["--fast", ""],
    "workingDir": "/work",
    "ports": [{"name": "http", "containerPort": 8080}],
    "envFrom": [{"prefix": "A_", "configMapRef": {"name": "settings", "optional": False}}],
    "env": [
        {"name": "EMPTY"},
        {"name": "PLAIN", "value": "x"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k", "optional": True}}},
    ],
    "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    "volumeMounts": [{"name": "empty", "mountPath": "/e", "readOnly": True}, {"name": "all", "mountPath": "/a"}],
    "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}, "initialDelaySeconds": 3},
    "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 7, "failureThreshold": 1},
    "startupProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 2},
    "lifecycle": {"preStop": {"sleep": {"seconds": 0}}, "postStart": {"exec": {"command": ["true"]}}},
    "securityContext": {
        "privileged": False,
        "runAsUser": 0,
        "runAsNonRoot": False,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "stdin": True,
    "tty": True,
}
POD: Final[Document] = {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 0,
    "activeDeadlineSeconds": 600,
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "shareProcessNamespace": False,
    "nodeSelector": {"zone": "a", "empty": ""},
    "priorityClassName": "system-node-critical",
    "schedulingGates": [{"name": "example.com/gate"}],
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    "securityContext": {"fsGroup": 0, "supplementalGroups": [1, 2], "sysctls": [{"name": "a.b", "value": ""}]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}],
    "imagePullSecrets": [{"name": "pull"}],
    "dnsConfig": {"nameservers": ["10.0.0.2"], "options": [{"name": "ndots", "value": "2"}]},
    "dnsPolicy": "None",
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                }
            ],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaceSelector": {}}
            ]
        },
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {},
            "minDomains": 2,
        }
    ],
    "initContainers": [{"name": "first", "image": "i", "restartPolicy": "Always"}],
    "containers": [_CONTAINER],
    "volumes": [
        {"name": "empty", "emptyDir": {}},
        {"name": "sized", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {
            "name": "all",
            "projected": {
                "defaultMode": 0,
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 700}},
                    {"configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 0}]}},
                    {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ],
            },
        },
        {"name": "claim", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "host", "hostPath": {"path": "/x", "type": ""}},
        {
            "name": "own",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            },
        },
    ],
}
SIMPLE: Final[Document] = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE: Final[Document] = {"metadata": {"labels": {"app": "a"}, "annotations": {"e": ""}}, "spec": SIMPLE}
