# SPDX-License-Identifier: Apache-2.0
"""The rights of the fuzzed identities; those of agents are the manager's own Roles."""

from __future__ import annotations

from typing import Any

from devcluster.federation.enrolment import agent_user
from tests.security.fuzz.catalogue import NAMESPACE, PULL, SPARE_NODE, TENANT, WORKER_USER


def hub_rights() -> list[dict[str, Any]]:
    """What the fuzzed identities may do on the hub beside the manager's own Roles.

    The tenant has what `edit` gives in its namespace, and statuses and Workloads beside it; the agent may ask for a
    certificate, as `mkctl cluster register` allows it, and is registered.
    """
    agent = agent_user(PULL)
    rule = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"],
        "verbs": ["create", "get", "list"],
    }
    registration = {
        "apiVersion": "multikueue.io/v1alpha1",
        "kind": "ClusterRegistration",
        "metadata": {"name": PULL},
        "spec": {"accepted": True},
    }
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "workloads/status"], "verbs": ["*"]},
    ]
    return [registration, *_everywhere("certificates", agent, [rule]), *_role_and_binding(TENANT, rules)]


def worker_rights() -> list[dict[str, Any]]:
    """What the user of a worker may do there: its namespace, one node and one namespace more."""
    outside = [
        {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "resourceNames": [SPARE_NODE], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["spare"], "verbs": ["patch"]},
    ]
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["*"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "workloads/status"], "verbs": ["*"]},
    ]
    return [*_everywhere(WORKER_USER, WORKER_USER, outside), *_role_and_binding(WORKER_USER, rules)]


def _everywhere(name: str, user: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]


def _role_and_binding(user: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    metadata = {"name": user, "namespace": NAMESPACE}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]
