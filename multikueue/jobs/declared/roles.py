# SPDX-License-Identifier: Apache-2.0
"""The roles that manager and agents need for one job kind, besides those for Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from multikueue.api.constants import AGENT_NAMESPACE, DEFAULT_NAMESPACE
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource

_GROUP: Final = "rbac.authorization.k8s.io"
_MANAGER: Final = "kueue-controller-manager"
_AGENT: Final = "multikueue-agent"


def manager_roles(resource: Resource, *, runtimes: Iterable[Resource] = ()) -> tuple[JsonObject, ...]:
    """A ClusterRole and its binding: start, stop and show jobs of the kind on the management cluster.

    `runtimes` are the kinds of objects that describe their pods.
    """
    rules = [
        _rule(resource, "", "get", "list", "watch", "patch", "delete"),
        _rule(resource, "status", "patch"),
        # The owner reference of a Workload blocks the deletion of its job, which needs this right.
        _rule(resource, "finalizers", "update"),
        *(_rule(each, "", "get", "list", "watch") for each in runtimes),
    ]
    return _bound(f"kueue-manager-{_named(resource)}-role", rules, account=_MANAGER, namespace=DEFAULT_NAMESPACE)


def holding_manager_roles(resource: Resource) -> tuple[JsonObject, ...]:
    """A ClusterRole and its binding: read jobs of a kind whose pods are started and stopped instead."""
    rules = [_rule(resource, "", "get", "list", "watch"), _rule(resource, "finalizers", "update")]
    return _bound(f"kueue-manager-{_named(resource)}-role", rules, account=_MANAGER, namespace=DEFAULT_NAMESPACE)


def agent_roles(resource: Resource) -> tuple[JsonObject, ...]:
    """A ClusterRole and its binding: run jobs of the kind on a worker cluster."""
    rules = [_rule(resource, "", "get", "list", "watch", "create", "patch", "delete")]
    return _bound(f"{_AGENT}-{_named(resource)}", rules, account=_AGENT, namespace=AGENT_NAMESPACE)


def recovery_role(resources: Iterable[Resource]) -> JsonObject:
    """A ClusterRole, to be bound besides kueue-recover-role: recreate or annotate jobs of the kinds on the hub."""
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kueue-recover-kinds-role"},
        "rules": [_rule(each, "", "get", "create", "patch") for each in resources],
    }


def _named(resource: Resource) -> str:
    return "-".join(filter(None, (resource.plural, resource.group.replace(".", "-"))))


def _rule(resource: Resource, subresource: str, *verbs: str) -> JsonObject:
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return {"apiGroups": [resource.group], "resources": [name], "verbs": list(verbs)}


def _bound(name: str, rules: Sequence[JsonObject], *, account: str, namespace: str) -> tuple[JsonObject, ...]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return (
        {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)},
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
    )
