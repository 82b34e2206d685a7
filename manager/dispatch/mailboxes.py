# SPDX-License-Identifier: Apache-2.0
"""The mailbox of a worker cluster on the management cluster: a namespace, and what its agent may do in it.

Owns the namespace with the manager's identity, the Lease and ClusterReport that the agent updates, and the Role that
is all an agent has: read assignments, write their status, renew its Lease, write its report. It cannot create or
delete anything. Made by the manager, so that an agent needs no right to.
"""

from __future__ import annotations

from typing import Final

from manager.context import ManagerContext
from multikueue.api.constants import (
    AGENT_USER_PREFIX,
    CLUSTER_LABEL,
    MAILBOX_OBJECT_NAME,
    MANAGER_UID_ANNOTATION,
)
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_REPORTS,
    LEASES,
    NAMESPACES,
    OWN_GROUP,
    REMOTE_ASSIGNMENTS,
    ROLE_BINDINGS,
    ROLES,
    Resource,
)
from multikueue.core.keys import Key
from multikueue.federation.wire import cluster_label
from multikueue.kube.errors import AlreadyExists, NotFound

FIELD_MANAGER: Final = "multikueue-mailboxes"
ROLE_NAME: Final = "multikueue-agent"


class Mailboxes:
    """Makes mailboxes and keeps them whole."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._granted: set[tuple[str, str]] = set()

    async def ensure(self, cluster: str) -> None:
        """Make what is missing of the cluster's mailbox. Nothing is sent when all of it is there."""
        namespace = mailbox_namespace(cluster)
        metadata = await self._ensure_namespace(namespace, cluster)
        for resource in (LEASES, CLUSTER_REPORTS):
            if self._context.caches.view(resource).get(Key(namespace, MAILBOX_OBJECT_NAME)) is None:
                await self._create(resource, namespace)
        # Roles are not watched: they are written once for each namespace that this process meets.
        known = (namespace, metadata["uid"])
        if known not in self._granted:
            for resource, body in ((ROLES, _role(namespace)), (ROLE_BINDINGS, _binding(namespace, cluster))):
                await self._context.client.apply(resource, ROLE_NAME, body, namespace=namespace, manager=FIELD_MANAGER)
            self._granted.add(known)

    async def ask(self, cluster: str, *, quotas: bool) -> None:
        """Say in the report's spec what its agent is to tell beside the rest; sent only where it is news."""
        view = self._context.caches.view(CLUSTER_REPORTS)
        namespace = mailbox_namespace(cluster)
        report = view.object(Key(namespace, MAILBOX_OBJECT_NAME))
        if report is None or (report["spec"].get("quotas") is True) is quotas:
            return
        try:
            answer = await self._context.client.patch(
                CLUSTER_REPORTS, MAILBOX_OBJECT_NAME, {"spec": {"quotas": quotas}}, namespace=namespace
            )
        except NotFound:
            return  # the cluster was removed
        view.observe(answer)

    async def _ensure_namespace(self, namespace: str, cluster: str) -> JsonObject:
        view = self._context.caches.view(NAMESPACES)
        wanted = {"labels": {CLUSTER_LABEL: cluster_label(cluster)}, "annotations": self._annotations(cluster)}
        current = view.object(Key("", namespace))
        if current is not None:
            metadata: JsonObject = current["metadata"]
            if all(wanted[field].items() <= (metadata.get(field) or {}).items() for field in wanted):
                return metadata
        body = {
            "apiVersion": NAMESPACES.api_version,
            "kind": NAMESPACES.kind,
            "metadata": {"name": namespace, **wanted},
        }
        answer = await self._context.client.apply(NAMESPACES, namespace, body, manager=FIELD_MANAGER)
        view.observe(answer)
        stored = view.object(Key("", namespace))
        assert stored is not None, "just observed"
        made: JsonObject = stored["metadata"]
        return made

    def _annotations(self, cluster: str) -> dict[str, str]:
        return {CLUSTER_LABEL: cluster, MANAGER_UID_ANNOTATION: self._context.manager_uid}

    async def _create(self, resource: Resource, namespace: str) -> None:
        body: JsonObject = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": MAILBOX_OBJECT_NAME, "namespace": namespace},
        }
        if resource is LEASES:
            body["spec"] = {}
        try:
            self._context.caches.view(resource).observe(
                await self._context.client.create(resource, body, namespace=namespace)
            )
        except AlreadyExists:
            return  # made by a former leader, and not in the cache yet


def _role(namespace: str) -> JsonObject:
    only = [MAILBOX_OBJECT_NAME]
    return {
        "apiVersion": ROLES.api_version,
        "kind": ROLES.kind,
        "metadata": {"name": ROLE_NAME, "namespace": namespace},
        "rules": [
            {"apiGroups": [OWN_GROUP], "resources": [REMOTE_ASSIGNMENTS.plural], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [OWN_GROUP], "resources": [f"{REMOTE_ASSIGNMENTS.plural}/status"], "verbs": ["patch"]},
            {
                "apiGroups": [OWN_GROUP],
                "resources": [CLUSTER_REPORTS.plural, f"{CLUSTER_REPORTS.plural}/status"],
                "resourceNames": only,
                "verbs": ["get", "patch"],
            },
            {
                "apiGroups": [LEASES.group],
                "resources": [LEASES.plural],
                "resourceNames": only,
                "verbs": ["get", "update", "patch"],
            },
            # Its own namespace object tells the agent whose mailbox this is.
            {"apiGroups": [""], "resources": [NAMESPACES.plural], "resourceNames": [namespace], "verbs": ["get"]},
        ],
    }


def _binding(namespace: str, cluster: str) -> JsonObject:
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": ROLE_NAME, "namespace": namespace},
        "roleRef": {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": ROLE_NAME},
        "subjects": [{"apiGroup": ROLES.group, "kind": "User", "name": f"{AGENT_USER_PREFIX}{cluster}"}],
    }
