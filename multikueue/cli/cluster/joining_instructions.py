# SPDX-License-Identifier: Apache-2.0
"""How to start the agent of a registered worker: a shell command, or manifests for kubectl and for upgrades.

Pure. The token is passed in a file and never as a process argument, which every user of the machine can read.
"""

from __future__ import annotations

import base64
import shlex
from typing import Final

import yaml

from multikueue import __version__
from multikueue.api.constants import AGENT_NAMESPACE
from multikueue.api.meta import JsonObject
from multikueue.cli.cluster.agent_kinds import AgentKinds
from multikueue.cli.cluster.registering import Registration

NAMESPACE: Final = AGENT_NAMESPACE
AGENT: Final = "multikueue-agent"
IDENTITY: Final = "multikueue-agent-identity"
_BOOTSTRAP: Final = "multikueue-agent-bootstrap"
_MOUNT: Final = "/etc/multikueue/bootstrap"
_KINDS: Final = "multikueue-agent-job-kinds"
_KINDS_MOUNT: Final = "/etc/multikueue/job-kinds"
_KINDS_FILE: Final = "job-kinds.yaml"
_JOB_KINDS: Final = "--job-kinds"
DEFAULT_KINDS: Final = AgentKinds()


def command(made: Registration, kinds: AgentKinds = DEFAULT_KINDS) -> str:
    """One shell command for the worker's side; it uses the current kubeconfig there."""
    file, declared = f"{made.cluster}.bootstrap", f"{made.cluster}.job-kinds.yaml"
    text = kinds.declared().encode()
    flags = [*kinds.flags(), *(((_JOB_KINDS, declared),) if text else ())]
    return (
        f"(umask 077; echo {_encoded(_text(made))} | base64 -d > {file}) && "
        + (f"echo {_encoded(text)} | base64 -d > {declared} && " if text else "")
        + f"mk-worker-agent --cluster {made.cluster} --bootstrap-kubeconfig {file} --hub-kubeconfig {made.cluster}.hub"
        + "".join(f" {flag} {shlex.quote(value)}" for flag, value in flags)
    )


def manifest(made: Registration, *, image: str = "", kinds: AgentKinds = DEFAULT_KINDS) -> str:
    """The agent's Deployment, its RBAC on the worker and the bootstrap token, as YAML.

    The roles for shipped kinds are files that `AgentKinds.role_files` names; those for other kinds are in the manifest.
    """
    namespace, *others = _agent(made.cluster, image, kinds)
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(_BOOTSTRAP),
        "data": {"kubeconfig": _encoded(_text(made))},
    }
    return as_yaml(namespace, token, *others)


def newer_manifest(cluster: str, *, image: str = "", kinds: AgentKinds = DEFAULT_KINDS) -> str:
    """The manifest for a worker that has joined: the Deployment and RBAC of this version, without a token."""
    return as_yaml(*_agent(cluster, image, kinds))


def as_yaml(*documents: JsonObject) -> str:
    """Objects for kubectl."""
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def _agent(cluster: str, image: str, kinds: AgentKinds) -> tuple[JsonObject, ...]:
    """The agent's objects, its Namespace first."""
    declared = kinds.declared()
    files: tuple[JsonObject, ...] = (
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(_KINDS), "data": {_KINDS_FILE: declared}},)
        if declared
        else ()
    )
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(AGENT)},
        *_rights(),
        *kinds.roles(),
        *files,
        _deployment(cluster, image or f"multikueue/worker-agent:{__version__}", kinds),
    )


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _text(made: Registration) -> bytes:
    return yaml.safe_dump(made.kubeconfig, sort_keys=False).encode()


def _rights() -> tuple[JsonObject, ...]:
    """The agent's RBAC: manage Jobs and Workloads, read nodes, queues, logs and the one Secret with its identity."""
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": AGENT, "namespace": NAMESPACE}]
    return (
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": AGENT},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes", "pods", "namespaces"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]},
                # Whether the objects exist that the pods of a Job name; for Secrets there is a role of its own.
                {
                    "apiGroups": [""],
                    "resources": ["configmaps", "serviceaccounts", "persistentvolumeclaims"],
                    "verbs": ["get"],
                },
                {
                    "apiGroups": ["resource.k8s.io"],
                    "resources": ["resourceclaims", "resourceclaimtemplates"],
                    "verbs": ["get"],
                },
                # The last lines of a failed Job.
                {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
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
                # The preemption gate of a Workload is in its status.
                {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["patch"]},
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "resources": ["localqueues", "clusterqueues", "cohorts", "resourceflavors"],
                    "verbs": ["get", "list", "watch"],
                },
                # For provisioning checks of the hub.
                {
                    "apiGroups": ["autoscaling.x-k8s.io"],
                    "resources": ["provisioningrequests"],
                    "verbs": ["get", "list", "watch", "create", "delete"],
                },
                {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["get", "create", "delete"]},
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


def _deployment(cluster: str, image: str, kinds: AgentKinds) -> JsonObject:
    labels = {"app.kubernetes.io/name": AGENT}
    mounts: list[JsonObject] = [{"name": "bootstrap", "mountPath": _MOUNT, "readOnly": True}]
    volumes: list[JsonObject] = [{"name": "bootstrap", "secret": {"secretName": _BOOTSTRAP}}]
    if kinds.declarations:
        mounts.append({"name": "job-kinds", "mountPath": _KINDS_MOUNT, "readOnly": True})
        volumes.append({"name": "job-kinds", "configMap": {"name": _KINDS}})
    arguments = [
        f"--cluster={cluster}",
        f"--hub-secret={NAMESPACE}/{IDENTITY}",
        f"--bootstrap-kubeconfig={_MOUNT}/kubeconfig",
        # Set by the kubelet, so that another namespace needs no change here.
        "--namespace=$(POD_NAMESPACE)",
        "--health-bind=0.0.0.0:8081",
        *(f"{flag}={names}" for flag, names in kinds.flags()),
        *((f"{_JOB_KINDS}={_KINDS_MOUNT}/{_KINDS_FILE}",) if kinds.declarations else ()),
    ]
    container: JsonObject = {
        "name": "agent",
        "image": image,
        "command": ["mk-worker-agent", *arguments],
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8081}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(AGENT),
        "spec": {
            "replicas": 1,
            # Two agents with one identity would both act on the same assignments.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": AGENT,
                    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    }


def _metadata(name: str) -> JsonObject:
    return {"name": name, "namespace": NAMESPACE}
