# SPDX-License-Identifier: Apache-2.0
"""The mailbox of a worker cluster on the management cluster: a namespace, and the rights of its agent in it.

Owns the namespace with the manager's identity, the Lease and ClusterReport that the agent updates, and the Role that
is all an agent has: read assignments, write their status, renew its Lease, write its report, and read the ConfigMaps
and Secrets there if these are sent with jobs. It cannot create or delete anything. The manager creates them, so that an
agent needs no right to. Promises that a namespace of another creator is not used: the manager knows its namespaces by a
seal, or an administrator has handed it over.
"""

from __future__ import annotations

import logging
from typing import Final

from manager.context import ManagerContext
from manager.dispatch.condition_writes import active_condition
from multikueue.api.constants import (
    AGENT_USER_PREFIX,
    CLUSTER_LABEL,
    MAILBOX_NAMESPACE_UID_ANNOTATION,
    MAILBOX_OBJECT_NAME,
    MAILBOX_SEAL_ANNOTATION,
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
from multikueue.core.printable import excerpt
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.hub.health import MailboxProblem
from multikueue.dispatch.protocol.wire import cluster_label
from multikueue.dispatch.sending.sending_policy import sending_rules
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS
from multikueue.kube.errors import AlreadyExists, NotFound

_log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "multikueue-mailboxes"
ROLE_NAME: Final = "multikueue-agent"


class Mailboxes:
    """Creates and repairs mailboxes."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._granted: dict[str, tuple[str, frozenset[str]]] = {}
        """The uid of each namespace with a Role, and the kinds that the agent may get there."""

    def problem(self, cluster: JsonObject) -> MailboxProblem | None:
        """Why the cluster cannot have a mailbox; None when it has one or it can be created."""
        name: str = cluster["metadata"]["name"]
        namespace = self._context.caches.view(NAMESPACES).object(Key("", mailbox_namespace(name)))
        if namespace is None or self._is_ours(namespace, cluster):
            return None
        metadata = namespace["metadata"]
        return MailboxProblem(namespace=metadata["name"], uid=metadata["uid"], cluster=name)

    async def ensure(self, cluster: JsonObject) -> bool:
        """Create what is missing of the cluster's mailbox. Nothing is sent when it is complete.

        False when there is no mailbox now: its namespace is being deleted, or turns out to be another creator's.
        """
        name: str = cluster["metadata"]["name"]
        namespace = mailbox_namespace(name)
        metadata = await self._ensure_namespace(namespace, cluster)
        if metadata is None:
            return False
        for resource in (LEASES, CLUSTER_REPORTS):
            found = self._context.caches.view(resource).object(Key(namespace, MAILBOX_OBJECT_NAME))
            if found is None:
                await self._create(resource, namespace)
            else:
                await self._take_finalizers(resource, found)
        # Roles are not watched: they are written once for each namespace in this process, and when they change.
        sent = sending_rules(cluster["metadata"].get("annotations") or {}).kinds
        if self._granted.get(namespace) != (metadata["uid"], sent):
            for resource, body in ((ROLES, _role(namespace, sent)), (ROLE_BINDINGS, _binding(namespace, name))):
                await self._context.client.apply(resource, ROLE_NAME, body, namespace=namespace, manager=FIELD_MANAGER)
            self._granted[namespace] = (metadata["uid"], sent)
        return True

    async def release(self, cluster: str) -> bool:
        """Remove finalizers from a mailbox that is being deleted; returns whether it still exists.

        An agent may write finalizers on its Lease and report, and no controller would remove them.
        """
        name = mailbox_namespace(cluster)
        namespace = self._context.caches.view(NAMESPACES).object(Key("", name))
        if namespace is None or not _terminates(namespace) or not self._context.seals.released_mailbox(namespace):
            return False
        for resource in (LEASES, CLUSTER_REPORTS, REMOTE_ASSIGNMENTS):
            view = self._context.caches.view(resource)
            for key in view.keys():  # noqa: SIM118  (a view is no mapping)
                found = view.object(key) if key.namespace == name else None
                if found is not None:
                    await self._take_finalizers(resource, found)
        return True

    async def ask(self, cluster: str, *, quotas: bool) -> None:
        """Set in the report's spec whether its agent is to report quotas; sent only if it changes."""
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
        view.on_write(answer)

    async def _ensure_namespace(self, namespace: str, cluster: JsonObject) -> JsonObject | None:
        name: str = cluster["metadata"]["name"]
        view, seals = self._context.caches.view(NAMESPACES), self._context.seals
        if view.get(Key("", namespace)) is None:
            body = {
                "apiVersion": NAMESPACES.api_version,
                "kind": NAMESPACES.kind,
                "metadata": {
                    "name": namespace,
                    **self._marks(name, seals.mailbox_seal(namespace=namespace, cluster=name)),
                },
            }
            try:
                answer = await self._context.client.create(NAMESPACES, body)
            except AlreadyExists:
                answer = await self._context.client.get(NAMESPACES, namespace)
            view.on_write(answer)
        current = view.object(Key("", namespace))
        assert current is not None, "just observed"
        if not self._is_ours(current, cluster):
            return None
        metadata: JsonObject = current["metadata"]
        if _terminates(current):
            await self.release(name)
            return None
        seal = seals.mailbox_seal(namespace=namespace, cluster=name, uid=metadata["uid"])
        wanted = self._marks(name, seal)
        if all(wanted[field].items() <= (metadata.get(field) or {}).items() for field in wanted):
            return metadata
        # The uid is a precondition: a namespace that was created again meanwhile is another one.
        patch = {"metadata": {"uid": metadata["uid"], **wanted}}
        view.on_write(await self._context.client.patch(NAMESPACES, namespace, patch, manager=FIELD_MANAGER))
        stored = view.object(Key("", namespace))
        assert stored is not None, "just observed"
        made: JsonObject = stored["metadata"]
        return made

    def _is_ours(self, namespace: JsonObject, cluster: JsonObject) -> bool:
        name, seals = cluster["metadata"]["name"], self._context.seals
        handed_over = (cluster["metadata"].get("annotations") or {}).get(MAILBOX_NAMESPACE_UID_ANNOTATION)
        return (
            seals.made_mailbox(namespace, cluster=name)
            or seals.makes_mailbox(namespace, cluster=name)
            or handed_over == namespace["metadata"]["uid"]
            or self._is_of_former_version(namespace, cluster)
        )

    def _is_of_former_version(self, namespace: JsonObject, cluster: JsonObject) -> bool:
        """Whether a manager before 0.2 created it, without a seal: it is older than the key, and was in use then.

        Users cannot write the condition that proves the latter.
        """
        metadata: JsonObject = namespace["metadata"]
        annotations: dict[str, str] = metadata.get("annotations") or {}
        active, since = active_condition(cluster), self._context.seals.since
        return (
            self._annotations(cluster["metadata"]["name"]).items() <= annotations.items()
            and MAILBOX_SEAL_ANNOTATION not in annotations
            and parse_time(metadata["creationTimestamp"]) < since
            and active is not None
            and active.last_transition_time < since
        )

    async def _take_finalizers(self, resource: Resource, found: JsonObject) -> None:
        metadata: JsonObject = found["metadata"]
        if not metadata.get("finalizers"):
            return
        _log.warning(
            "foreign finalizers removed from mailbox kind=%s key=%s finalizers=%s",
            resource.kind,
            Key(metadata["namespace"], metadata["name"]),
            excerpt(", ".join(metadata["finalizers"])),
        )
        body = {"metadata": {"uid": metadata["uid"], "finalizers": None}}
        try:
            await self._context.client.patch(resource, metadata["name"], body, namespace=metadata["namespace"])
        except NotFound:
            return

    def _marks(self, cluster: str, seal: str) -> dict[str, dict[str, str]]:
        return {
            "labels": {CLUSTER_LABEL: cluster_label(cluster)},
            "annotations": {**self._annotations(cluster), MAILBOX_SEAL_ANNOTATION: seal},
        }

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
            self._context.caches.view(resource).on_write(
                await self._context.client.create(resource, body, namespace=namespace)
            )
        except AlreadyExists:
            return  # made by a former leader, and not in the cache yet


def _terminates(namespace: JsonObject) -> bool:
    return "deletionTimestamp" in namespace["metadata"]


def _role(namespace: str, sent: frozenset[str]) -> JsonObject:
    only = [MAILBOX_OBJECT_NAME]
    sendable = [resource.plural for kind, resource in SENDABLE_KINDS.items() if kind in sent]
    return {
        "apiVersion": ROLES.api_version,
        "kind": ROLES.kind,
        "metadata": {"name": ROLE_NAME, "namespace": namespace},
        "rules": [
            {"apiGroups": [OWN_GROUP], "resources": [REMOTE_ASSIGNMENTS.plural], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [OWN_GROUP], "resources": [f"{REMOTE_ASSIGNMENTS.plural}/status"], "verbs": ["patch"]},
            {
                "apiGroups": [OWN_GROUP],
                "resources": [f"{CLUSTER_REPORTS.plural}/status"],
                "resourceNames": only,
                "verbs": ["patch"],
            },
            {
                "apiGroups": [LEASES.group],
                "resources": [LEASES.plural],
                "resourceNames": only,
                "verbs": ["patch"],
            },
            # The annotations of the namespace tell the agent whose mailbox this is.
            {"apiGroups": [""], "resources": [NAMESPACES.plural], "resourceNames": [namespace], "verbs": ["get"]},
            # What is sent with jobs, if an administrator of the hub allows that for the cluster.
            *([{"apiGroups": [""], "resources": sendable, "verbs": ["get"]}] if sendable else []),
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
