# SPDX-License-Identifier: Apache-2.0
"""How assignments reach a worker cluster and its status comes back.

Owns the `Transport` interface and pull: objects in the cluster's mailbox namespace. Promises that every transport gives
the plan the same view: an assignment that is being removed is not observed any more, and one that was just written is
observed as written. ConfigMaps and Secrets that are sent with jobs need rights in mailbox namespaces that an
administrator gives (deploy/rbac/manager-send-objects.yaml).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import orjson

from manager.context import ManagerContext
from multikueue.api.constants import SENT_OBJECT_LABEL, SENT_VERSION_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, assignment_name, mailbox_namespace
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.merge_patch import merge_patch
from multikueue.dispatch.hub.facts import Observation
from multikueue.dispatch.protocol.digests import Digests
from multikueue.dispatch.protocol.wire import observation_of, unanswered_observation, workload_of
from multikueue.dispatch.sending.sent_objects import SENT_OBJECT_LABEL_VALUE
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import AlreadyExists, Conflict, Details, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind

_log = logging.getLogger(__name__)
Kept: TypeAlias = Callable[[JsonObject, JsonObject], JsonObject]
"""Of the body of an assignment and the one that it replaces, what is written."""
FIELD_MANAGER: Final = "multikueue-sent-objects"
_SELECTOR: Final = f"{SENT_OBJECT_LABEL}={SENT_OBJECT_LABEL_VALUE}"


def replaced(body: JsonObject, current: JsonObject) -> JsonObject:
    """The body: nothing of the former assignment is kept."""
    return body


class Transport(Protocol):
    """One way between the manager and agents."""

    def observations(self, workload: Key) -> Mapping[str, Observation]:
        """The observations of the workload, by cluster."""

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        """The workloads with an assignment, in one mailbox or in any."""

    async def assign(self, cluster: str, workload: Key, body: JsonObject, *, kept: Kept = replaced) -> None:
        """Create the assignment, or update it; `kept` makes of the body and the former assignment what is written."""

    async def set_intent(self, cluster: str, workload: Key, intent: Intent) -> None:
        """Change the intent. A missing assignment is ignored."""

    async def remove(self, cluster: str, workload: Key) -> None:
        """Remove the assignment."""

    async def set_sent_objects(self, cluster: str, workload: Key, entries: list[JsonObject]) -> None:
        """Replace the list of objects that are sent with the job. A missing assignment is ignored."""

    async def put_sent_object(self, cluster: str, obj: JsonObject) -> None:
        """Store an object that is sent with jobs where the agent of the cluster reads it."""

    async def sent_versions(self, cluster: str) -> Mapping[str, str]:
        """The version of each object that is stored for the cluster, by its name."""

    async def drop_sent_object(self, cluster: str, name: str) -> None:
        """Remove an object that is stored for the cluster."""


@dataclass(frozen=True, slots=True)
class _Entry:
    uid: str
    workload: Key
    observation: Observation


class MailboxTransport:
    """Assignments as objects in mailbox namespaces."""

    def __init__(self, context: ManagerContext, *, changed: Callable[[Key], None]) -> None:
        self._client = context.client
        self._view = context.caches.view(REMOTE_ASSIGNMENTS)
        self._changed = changed
        self._entries: dict[Key, _Entry] = {}
        self._by_workload: dict[Key, dict[str, Key]] = {}
        self._removing: set[str] = set()
        self._digests: dict[str, Digests] = {}
        self._objects = MailboxObjects(context.client)
        self._view.subscribe(self._take)

    def observations(self, workload: Key) -> Mapping[str, Observation]:
        """By cluster, without those whose removal was sent."""
        entries = (self._entries[key] for key in self._by_workload.get(workload, {}).values())
        return {entry.observation.cluster: entry.observation for entry in entries if entry.uid not in self._removing}

    def digests(self, namespace: str) -> Sequence[str]:
        """Of one mailbox as it is in the cache."""
        return self._digests.setdefault(namespace, Digests()).values()

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        """The workloads with an assignment now."""
        return [key for key, clusters in self._by_workload.items() if cluster is None or cluster in clusters]

    async def assign(self, cluster: str, workload: Key, body: JsonObject, *, kept: Kept = replaced) -> None:
        """Create, or patch what differs. Raises `Conflict` while another object of that name is being deleted."""
        key = _key(cluster, workload)
        entry = self._entries.get(key)
        if entry is None or entry.uid in self._removing:
            try:
                self._view.on_write(await self._client.create(REMOTE_ASSIGNMENTS, body, namespace=key.namespace))
                return
            except AlreadyExists:
                pass  # written before a restart or by a former leader, and not in the cache yet
        try:
            # The cache does not keep what was sent.
            current = await self._client.get_object(REMOTE_ASSIGNMENTS, key.name, namespace=key.namespace)
        except NotFound:
            return  # gone meanwhile; its event follows
        await self._update(current, kept(body, current))

    async def set_intent(self, cluster: str, workload: Key, intent: Intent) -> None:
        """A patch of one field, guarded by the uid."""
        await self._patch(_key(cluster, workload), {"intent": str(intent)})

    async def _patch(self, key: Key, fields: JsonObject) -> None:
        """Change fields of the spec; a missing assignment is ignored."""
        entry = self._entries.get(key)
        if entry is None:
            return
        patch = {"metadata": {"uid": entry.uid}, "spec": fields}
        try:
            answer = await self._client.patch(
                REMOTE_ASSIGNMENTS, key.name, patch, namespace=key.namespace, kind=PatchKind.MERGE
            )
        except NotFound:
            return
        self._view.on_write(answer)

    async def remove(self, cluster: str, workload: Key) -> None:
        """Delete by uid, so that a later assignment of that name is not affected."""
        key = _key(cluster, workload)
        entry = self._entries.get(key)
        if entry is None or entry.uid in self._removing:
            return
        self._removing.add(entry.uid)
        try:
            await self._client.delete(REMOTE_ASSIGNMENTS, key.name, namespace=key.namespace, uid=entry.uid)
        except NotFound:
            return  # its event follows
        except BaseException:
            # Also after a conflict: it may be of another object, or of one in which this object still exists.
            self._removing.discard(entry.uid)
            raise

    async def set_sent_objects(self, cluster: str, workload: Key, entries: list[JsonObject]) -> None:
        """A patch of one field, guarded by the uid."""
        await self._patch(_key(cluster, workload), {"sentObjects": entries})

    async def put_sent_object(self, cluster: str, obj: JsonObject) -> None:
        """As an object in the mailbox namespace."""
        await self._objects.put(cluster, obj)

    async def sent_versions(self, cluster: str) -> Mapping[str, str]:
        """Of the objects in the mailbox namespace."""
        return await self._objects.versions(cluster)

    async def drop_sent_object(self, cluster: str, name: str) -> None:
        """From the mailbox namespace."""
        await self._objects.drop(cluster, name)

    async def _update(self, current: JsonObject, body: JsonObject) -> None:
        if current["spec"]["workload"] != body["spec"]["workload"]:
            # The workload was deleted and created again: the assignment belongs to the former one.
            await self._client.delete(
                REMOTE_ASSIGNMENTS,
                current["metadata"]["name"],
                namespace=current["metadata"]["namespace"],
                uid=current["metadata"]["uid"],
            )
            raise Conflict(
                request=f"PATCH RemoteAssignment {current['metadata']['namespace']}/{current['metadata']['name']}",
                status=409,
                reason="Conflict",
                message="it belongs to a former workload of that name and is replaced",
                details=Details(),
            )
        metadata = {name: current["metadata"].get(name) or {} for name in ("labels", "annotations")}
        # Requests for logs are of `dispatch.log_relay`.
        logs = {"logs": current["spec"]["logs"]} if "logs" in current["spec"] else {}
        wanted = {**metadata, **{name: body["metadata"][name] for name in metadata}}
        patch = merge_patch(
            {"metadata": metadata, "spec": current["spec"]}, {"metadata": wanted, "spec": {**body["spec"], **logs}}
        )
        if not patch:
            return
        patch["metadata"] = {**patch.get("metadata", {}), "uid": current["metadata"]["uid"]}
        name, namespace = current["metadata"]["name"], current["metadata"]["namespace"]
        answer = await self._client.patch(REMOTE_ASSIGNMENTS, name, patch, namespace=namespace, kind=PatchKind.MERGE)
        self._view.on_write(answer)

    def _take(self, change: Change) -> None:
        # First: while the new version cannot be read, the former observation is kept.
        obj: JsonObject = {} if change.new is None else change.new.object()
        old = self._entries.pop(change.key, None)
        if old is not None:
            clusters = self._by_workload[old.workload]
            clusters.pop(old.observation.cluster, None)
            if not clusters:
                del self._by_workload[old.workload]
        digests = self._digests.setdefault(change.key.namespace, Digests())
        if change.new is None:
            digests.remove(change.key.name)
            if old is not None:
                self._removing.discard(old.uid)
                self._changed(old.workload)
            return
        digests.put(obj)
        workload = workload_of(obj)
        unreadable: BadInput | None = None
        try:
            observation = observation_of(obj)
        except BadInput as error:
            # The assignment exists all the same: without it the workload would be sent elsewhere as well.
            observation, unreadable = unanswered_observation(obj), error
        self._entries[change.key] = _Entry(change.new.uid, workload, observation)
        self._by_workload.setdefault(workload, {})[observation.cluster] = change.key
        self._changed(workload)
        if unreadable is not None:
            raise unreadable


def _key(cluster: str, workload: Key) -> Key:
    return Key(mailbox_namespace(cluster), assignment_name(workload))


class MailboxObjects:
    """Writes and removes them."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def put(self, cluster: str, obj: JsonObject) -> None:
        """Create or update one: an apply removes the keys that it does not have any more."""
        await self._client.apply(
            SENDABLE_KINDS[obj["kind"]],
            obj["metadata"]["name"],
            obj,
            namespace=mailbox_namespace(cluster),
            manager=FIELD_MANAGER,
        )

    async def versions(self, cluster: str) -> dict[str, str]:
        """The version of each, by its name; their contents are not read."""
        found: dict[str, str] = {}
        for resource in SENDABLE_KINDS.values():
            page = await self._client.list_all(
                resource, namespace=mailbox_namespace(cluster), label_selector=_SELECTOR, metadata_only=True
            )
            for raw in page.items:
                metadata: JsonObject = orjson.loads(raw)["metadata"]
                annotations: dict[str, str] = metadata.get("annotations") or {}
                found[metadata["name"]] = annotations.get(SENT_VERSION_ANNOTATION, "")
        return found

    async def drop(self, cluster: str, name: str) -> None:
        """Remove one, of either kind: no two have the same name."""
        for resource in SENDABLE_KINDS.values():
            try:
                await self._client.delete(resource, name, namespace=mailbox_namespace(cluster))
            except NotFound:
                continue
