# SPDX-License-Identifier: Apache-2.0
"""Users of a case's own, and what they are granted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.harness import Exchange, Side

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS: Final = "/apis/authorization.k8s.io/v1"
ROLES: Final = f"{RBAC}/namespaces/{{ns}}/roles"
BINDINGS: Final = f"{RBAC}/namespaces/{{ns}}/rolebindings"
CLUSTER_ROLES: Final = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS: Final = f"{RBAC}/clusterrolebindings"
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
USER: Final = "user-{id}"
_PATIENCE: Final = 60.0

Rule = dict[str, Any]


def acting(name: str = USER, *groups: str) -> Mapping[str, str]:
    """The headers of a request on behalf of a user."""
    found = {"Impersonate-User": name}
    if groups:
        (found["Impersonate-Group"],) = groups
    return found


def rule(*verbs: str, on: tuple[str, ...] = ("configmaps",), group: str = "", names: tuple[str, ...] = ()) -> Rule:
    """What may be done to resources of a group."""
    found: Rule = {"verbs": [*verbs], "apiGroups": [group], "resources": [*on]}
    return {**found, "resourceNames": [*names]} if names else found


def role(*rules: Rule, name: str = "{id}", kind: str = "Role", **more: object) -> dict[str, Any]:
    """A role, or a cluster role."""
    return {
        "kind": kind,
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": name},
        "rules": [*rules],
        **more,
    }


def user(name: str = USER) -> dict[str, str]:
    """A user as a subject."""
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def binding(
    *subjects: dict[str, str], to: str = "Role", name: str = "{id}", kind: str = "RoleBinding", of: str = "{id}"
) -> dict[str, Any]:
    """A binding of a role to its subjects."""
    return {
        "kind": kind,
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": name},
        "subjects": [*(subjects or (user(),))],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": to, "name": of},
    }


async def grant(side: Side, *rules: Rule, subjects: tuple[dict[str, str], ...] = ()) -> None:
    """Let the case's user do something in the case's namespace, and wait until it holds."""
    await side.quietly(Exchange("POST", ROLES, role(*rules)))
    await side.quietly(Exchange("POST", BINDINGS, binding(*subjects)))
    await holds(side, rules[0], namespace="{ns}", subject=(subjects or (user(),))[0])


async def grant_everywhere(side: Side, *rules: Rule, subjects: tuple[dict[str, str], ...] = ()) -> None:
    """Let the case's user do something everywhere, and wait until it holds."""
    await side.quietly(Exchange("POST", CLUSTER_ROLES, role(*rules, kind="ClusterRole")))
    body = binding(*subjects, to="ClusterRole", kind="ClusterRoleBinding")
    await side.quietly(Exchange("POST", CLUSTER_BINDINGS, body))
    await holds(side, rules[0], subject=(subjects or (user(),))[0])


async def holds(side: Side, rule: Rule, *, namespace: str = "", subject: dict[str, str] | None = None) -> None:
    """Wait until both servers apply a rule."""
    if "nonResourceURLs" in rule:
        wanted = {"nonResourceAttributes": {"verb": rule["verbs"][0], "path": rule["nonResourceURLs"][0].rstrip("*")}}
    else:
        resource, _, sub = rule["resources"][0].partition("/")
        attributes = {
            "verb": rule["verbs"][0],
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": sub,
            "namespace": namespace,
            "name": rule.get("resourceNames", [""])[0],
        }
        wanted = {"resourceAttributes": attributes}
    who = subject or user()
    spec: dict[str, Any] = {"user": who["name"], **wanted}
    if who["kind"] == "Group":
        spec = {"groups": [who["name"]], **wanted}
    elif who["kind"] == "ServiceAccount":
        spec = {"user": f"system:serviceaccount:{who['namespace']}:{who['name']}", **wanted}
    body = {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec}
    async with asyncio.timeout(_PATIENCE):
        while True:
            found = await side.quietly(Exchange("POST", f"{REVIEWS}/subjectaccessreviews", body))
            if found.body["status"]["allowed"]:
                return
            await asyncio.sleep(0.05)
