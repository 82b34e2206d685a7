# SPDX-License-Identifier: Apache-2.0
"""What is run beside a worker that was registered: a shell command, or objects for kubectl, anew at each upgrade.

Pure. The token is in a file of the worker and never an argument of a process, where everybody on the machine reads it.
"""

from __future__ import annotations

import base64
from typing import Final

import yaml

from multikueue import __version__
from multikueue.api.meta import JsonObject
from multikueue.cli.registering import Registration

NAMESPACE: Final = "multikueue-system"
AGENT: Final = "multikueue-agent"
IDENTITY: Final = "multikueue-agent-identity"
_BOOTSTRAP: Final = "multikueue-agent-bootstrap"
_MOUNT: Final = "/etc/multikueue/bootstrap"


def command(made: Registration) -> str:
    """One line for a shell beside the worker, whose kubeconfig is the current one there."""
    encoded = base64.b64encode(_text(made)).decode()
    file = f"{made.cluster}.bootstrap"
    return (
        f"(umask 077; echo {encoded} | base64 -d > {file}) && "
        f"mk-worker-agent --cluster {made.cluster} --bootstrap-kubeconfig {file} --hub-kubeconfig {made.cluster}.hub"
    )


def manifest(made: Registration, *, image: str = "") -> str:
    """The agent as a Deployment with its rights on the worker, and the token with which it joins, as YAML."""
    namespace, *others = _agent(made.cluster, image)
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(_BOOTSTRAP),
        "data": {"kubeconfig": base64.b64encode(_text(made)).decode()},
    }
    return _yaml(namespace, token, *others)


def newer_manifest(cluster: str, *, image: str = "") -> str:
    """The same for a worker that has joined: this version's Deployment and rights, and no token, as YAML."""
    return _yaml(*_agent(cluster, image))


def _yaml(*documents: JsonObject) -> str:
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def _agent(cluster: str, image: str) -> tuple[JsonObject, ...]:
    """Its namespace first."""
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(AGENT)},
        *_rights(),
        _deployment(cluster, image or f"multikueue/worker-agent:{__version__}"),
    )


def _text(made: Registration) -> bytes:
    return yaml.safe_dump(made.kubeconfig, sort_keys=False).encode()


def _rights() -> tuple[JsonObject, ...]:
    """Jobs, and a look at where they could run; of Secrets only the one that holds its identity."""
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": AGENT, "namespace": NAMESPACE}]
    return (
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": AGENT},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes", "pods", "namespaces"], "verbs": ["get", "list", "watch"]},
                {
                    "apiGroups": ["batch"],
                    "resources": ["jobs"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "resources": ["workloads"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                # The preemption gate of a Workload stands in its status.
                {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["patch"]},
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "resources": ["localqueues", "clusterqueues"],
                    "verbs": ["get", "list", "watch"],
                },
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": AGENT},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": AGENT},
            "subjects": subjects,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": _metadata(AGENT),
            "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
                {
                    "apiGroups": [""],
                    "resources": ["secrets"],
                    "resourceNames": [IDENTITY],
                    "verbs": ["get", "patch", "update"],
                },
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": _metadata(AGENT),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": AGENT},
            "subjects": subjects,
        },
    )


def _deployment(cluster: str, image: str) -> JsonObject:
    labels = {"app.kubernetes.io/name": AGENT}
    arguments = [
        f"--cluster={cluster}",
        f"--hub-secret={NAMESPACE}/{IDENTITY}",
        f"--bootstrap-kubeconfig={_MOUNT}/kubeconfig",
        "--health-bind=0.0.0.0:8081",
    ]
    container: JsonObject = {
        "name": "agent",
        "image": image,
        "command": ["mk-worker-agent", *arguments],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8081}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "bootstrap", "mountPath": _MOUNT, "readOnly": True}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(AGENT),
        "spec": {
            "replicas": 1,
            # Two agents of one identity would answer each other's assignments.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": AGENT,
                    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
                    "containers": [container],
                    "volumes": [{"name": "bootstrap", "secret": {"secretName": _BOOTSTRAP}}],
                },
            },
        },
    }


def _metadata(name: str) -> JsonObject:
    return {"name": name, "namespace": NAMESPACE}
