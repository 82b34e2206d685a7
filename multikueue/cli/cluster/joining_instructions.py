# SPDX-License-Identifier: Apache-2.0
"""How to start the agent of a registered worker: a shell command, or manifests for kubectl and for upgrades.

Pure. The token is passed in a file and never as a process argument, which every user of the machine can read.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import yaml

from multikueue import __version__
from multikueue.api.constants import AGENT_NAMESPACE, BATCH_JOB_FRAMEWORK
from multikueue.api.meta import JsonObject
from multikueue.cli.cluster.registering import Registration
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.roles import agent_roles
from multikueue.jobs.framework.registry import dispatched_integrations
from worker_agent.kinds import served_integrations

NAMESPACE: Final = AGENT_NAMESPACE
AGENT: Final = "multikueue-agent"
IDENTITY: Final = "multikueue-agent-identity"
_BOOTSTRAP: Final = "multikueue-agent-bootstrap"
_MOUNT: Final = "/etc/multikueue/bootstrap"


def chosen_frameworks(text: str) -> tuple[str, ...]:
    """The comma-separated frameworks of `--frameworks`. Raises `BadInput` for those that no worker can run."""
    names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if text and not names:
        raise BadInput(f"--frameworks: expected names such as {BATCH_JOB_FRAMEWORK}, found {excerpt(text)}")
    served = {each.framework for each in served_integrations(names)}
    left = [name for name in names if name not in served]
    if left:
        raise BadInput(f"--frameworks: jobs of {', '.join(left)} are not sent to workers")
    return names


def chosen_external(text: str) -> tuple[str, ...]:
    """The comma-separated kinds of `--external-frameworks`, each once. Raises `BadInput` for what is no such kind."""
    names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if text and not names:
        raise BadInput(f"--external-frameworks: expected names such as Pipeline.v1.example.com, found {excerpt(text)}")
    served_integrations((), external=names)
    return names


def external_rights(external: Sequence[str]) -> tuple[str, ...]:
    """What the agent needs on the worker for each of these kinds, as one line: its verbs and the resource."""
    rules = [rule for role in _external_roles(external) for rule in role.get("rules") or ()]
    return tuple(f"{','.join(rule['verbs'])} {rule['resources'][0]}.{rule['apiGroups'][0]}" for rule in rules)


def _external_roles(external: Sequence[str]) -> tuple[JsonObject, ...]:
    """The ClusterRole of each of these kinds, and its binding."""
    kinds = served_integrations((), external=external)
    return tuple(role for each in kinds for role in agent_roles(each.resource))


def role_files(frameworks: Sequence[str]) -> tuple[str, ...]:
    """The files with the roles that the agent needs for these kinds, beside its own."""
    integrations = dispatched_integrations()
    kinds = []
    for name in frameworks:
        sent_as = integrations[name].traits.sent_as if name in integrations else None
        if name != BATCH_JOB_FRAMEWORK:
            kinds.append(name.rpartition("/")[2] if sent_as is None else sent_as.kind.lower())
    return tuple(f"deploy/rbac/kinds/{kind}-agent.yaml" for kind in dict.fromkeys(kinds))


def command(made: Registration, *, frameworks: Sequence[str] = (), external: Sequence[str] = ()) -> str:
    """One shell command for the worker's side; it uses the current kubeconfig there."""
    encoded = base64.b64encode(_text(made)).decode()
    file = f"{made.cluster}.bootstrap"
    return (
        f"(umask 077; echo {encoded} | base64 -d > {file}) && "
        f"mk-worker-agent --cluster {made.cluster} --bootstrap-kubeconfig {file} --hub-kubeconfig {made.cluster}.hub"
        + "".join(f" {flag} {names}" for flag, names in _kind_flags(frameworks, external))
    )


def manifest(
    made: Registration, *, image: str = "", frameworks: Sequence[str] = (), external: Sequence[str] = ()
) -> str:
    """The agent's Deployment, its RBAC on the worker and the bootstrap token, as YAML.

    With `frameworks` the agent serves these kinds; `role_files` names the roles that it needs for them. Those for
    `external` kinds, of which there are no files, are in the manifest.
    """
    namespace, *others = _agent(made.cluster, image, frameworks, external)
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(_BOOTSTRAP),
        "data": {"kubeconfig": base64.b64encode(_text(made)).decode()},
    }
    return _yaml(namespace, token, *others)


def newer_manifest(
    cluster: str, *, image: str = "", frameworks: Sequence[str] = (), external: Sequence[str] = ()
) -> str:
    """The manifest for a worker that has joined: the Deployment and RBAC of this version, without a token."""
    return _yaml(*_agent(cluster, image, frameworks, external))


def _yaml(*documents: JsonObject) -> str:
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def _agent(cluster: str, image: str, frameworks: Sequence[str], external: Sequence[str]) -> tuple[JsonObject, ...]:
    """The agent's objects, its Namespace first."""
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(AGENT)},
        *_rights(),
        *_external_roles(external),
        _deployment(cluster, image or f"multikueue/worker-agent:{__version__}", _kind_flags(frameworks, external)),
    )


def _kind_flags(frameworks: Sequence[str], external: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The flags that name the kinds, each with its value; none for the agent's default."""
    flags = (("--frameworks", frameworks), ("--external-frameworks", external))
    return tuple((flag, ",".join(names)) for flag, names in flags if names)


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
                    "resources": ["localqueues", "clusterqueues", "cohorts"],
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


def _deployment(cluster: str, image: str, kinds: Sequence[tuple[str, str]]) -> JsonObject:
    labels = {"app.kubernetes.io/name": AGENT}
    arguments = [
        f"--cluster={cluster}",
        f"--hub-secret={NAMESPACE}/{IDENTITY}",
        f"--bootstrap-kubeconfig={_MOUNT}/kubeconfig",
        # Set by the kubelet, so that another namespace needs no change here.
        "--namespace=$(POD_NAMESPACE)",
        "--health-bind=0.0.0.0:8081",
        *(f"{flag}={names}" for flag, names in kinds),
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
        "volumeMounts": [{"name": "bootstrap", "mountPath": _MOUNT, "readOnly": True}],
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
                    "volumes": [{"name": "bootstrap", "secret": {"secretName": _BOOTSTRAP}}],
                },
            },
        },
    }


def _metadata(name: str) -> JsonObject:
    return {"name": name, "namespace": NAMESPACE}
