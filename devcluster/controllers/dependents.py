# SPDX-License-Identifier: Apache-2.0
"""The dependents of an owner with a selector: adopted, released, created and deleted.

An owner adopts objects without a controller that its selector matches, and releases its own that the selector no longer
matches. Before an adoption the owner is read from the server: a cache could show one that is being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import orjson

from devcluster.controllers.caches import BY_CONTROLLER, BY_NAMESPACE, ORPHANS, controllers
from devcluster.controllers.recent_writes import RecentWrites
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.selectors import LabelSelector, Requirement
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind

_NO_LABELS: Final[Mapping[str, str]] = {}


class Dependents:
    """The dependents of one kind that owners of one kind have."""

    def __init__(
        self, client: KubeClient, informer: Informer, *, owner: Resource, owners: Informer, clock: Clock
    ) -> None:
        """`informer` needs the indexes by controller and of orphans, `owners` that by namespace."""
        self._client = client
        self._informer = informer
        self._owner = owner
        self._owners = owners
        self._writes = RecentWrites(informer, clock=clock, indexer=controllers)

    @property
    def resource(self) -> Resource:
        """The kind of the dependents."""
        return self._informer.resource

    def follow(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` with the owner of each object that changes, and with those that could adopt it."""

        def changed(change: Change) -> None:
            namespace = change.key.namespace
            owner = self._name(change.row.object())
            if owner is not None:
                enqueue(Key(namespace, owner))
                return
            before = self._name(change.old.object()) if change.old is not None else None
            if before is not None:
                enqueue(Key(namespace, before))
            if change.new is None or controller_of(change.new.object()) is not None:
                return
            labels = change.new.labels
            for row in self._owners.store.list(BY_NAMESPACE, namespace):
                if selects(row.object(), labels):
                    enqueue(row.key)

        self._informer.add_handler(changed)

    async def claim(
        self, owner: JsonObject, *, accepts: Callable[[JsonObject], bool] = lambda obj: True
    ) -> list[JsonObject]:
        """The dependents of the owner, after adoption and release; `accepts` adds to the selector."""
        metadata = owner["metadata"]
        deleting = "deletionTimestamp" in metadata
        found = []
        for obj in self._writes.objects(BY_CONTROLLER, metadata["uid"]):
            if selects(owner, obj["metadata"].get("labels") or _NO_LABELS) and accepts(obj):
                found.append(obj)
            elif not deleting:
                await self._release(owner, obj)
        if deleting:
            return found
        candidates = [obj for obj in self._orphans(metadata["namespace"]) if accepts(obj)]
        matching = [obj for obj in candidates if selects(owner, obj["metadata"].get("labels") or _NO_LABELS)]
        if matching and await self._may_adopt(owner):
            for obj in matching:
                adopted = await self._adopt(owner, obj)
                if adopted is not None:
                    found.append(adopted)
        return found

    def of(self, uid: str) -> list[JsonObject]:
        """The objects whose controller has that uid."""
        return self._writes.objects(BY_CONTROLLER, uid)

    async def create(self, body: JsonObject) -> JsonObject:
        """Create an object, and return it as the server stored it. Raises `ApiError`."""
        kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        stored = await self._client.create(self.resource, {**kind, **body}, namespace=body["metadata"]["namespace"])
        return self._put(stored)

    async def patch(self, obj: JsonObject, body: JsonObject, *, kind: PatchKind = PatchKind.MERGE) -> JsonObject:
        """Change part of this object, not of another of its name, and return it. Raises `ApiError`."""
        metadata = {**(body.get("metadata") or {}), "uid": obj["metadata"]["uid"]}
        stored = await self._client.patch(
            self.resource,
            obj["metadata"]["name"],
            {**body, "metadata": metadata},
            namespace=obj["metadata"]["namespace"],
            kind=kind,
        )
        return self._put(stored)

    async def delete(self, obj: JsonObject) -> bool:
        """Delete this object; False if it was gone."""
        metadata = obj["metadata"]
        try:
            await self._client.delete(
                self.resource, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except (NotFound, Conflict):
            return False  # deleted, or replaced by another of that name
        self._writes.mark_deleted(metadata["uid"])
        return True

    def _put(self, stored: bytes) -> JsonObject:
        found: JsonObject = orjson.loads(stored)
        self._writes.put(found)
        return found

    def _orphans(self, namespace: str) -> list[JsonObject]:
        """Objects without a controller, of which none is being deleted."""
        latest = [self._writes.object(row.key) for row in self._informer.store.list(ORPHANS, namespace)]
        return [
            obj
            for obj in latest
            if obj is not None and controller_of(obj) is None and "deletionTimestamp" not in obj["metadata"]
        ]

    async def _may_adopt(self, owner: JsonObject) -> bool:
        metadata = owner["metadata"]
        try:
            current = await self._client.get_object(self._owner, metadata["name"], namespace=metadata["namespace"])
        except NotFound:
            return False
        return current["metadata"]["uid"] == metadata["uid"] and "deletionTimestamp" not in current["metadata"]

    async def _adopt(self, owner: JsonObject, obj: JsonObject) -> JsonObject | None:
        body = {"metadata": {"ownerReferences": [reference_to(owner, self._owner)]}}
        try:
            return await self.patch(obj, body, kind=PatchKind.STRATEGIC)
        except (NotFound, Conflict, Invalid):
            return None  # gone, replaced, or adopted by another owner

    async def _release(self, owner: JsonObject, obj: JsonObject) -> None:
        body = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner["metadata"]["uid"]}]}}
        try:
            await self.patch(obj, body, kind=PatchKind.STRATEGIC)
        except (NotFound, Conflict, Invalid):
            return  # gone, replaced, or released before

    def _name(self, obj: JsonObject) -> str | None:
        """The name of the object's owner, if that is of our kind."""
        owner = controller_of(obj)
        if owner is None or (owner["kind"], owner["apiVersion"]) != (self._owner.kind, self._owner.api_version):
            return None
        return str(owner["name"])


def reference_to(owner: JsonObject, resource: Resource) -> JsonObject:
    """The owner reference to a controller."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selects(owner: JsonObject, labels: Mapping[str, str]) -> bool:
    """Whether the owner's selector matches; a selector that is absent, empty or invalid matches nothing."""
    written = owner["spec"].get("selector") or {}
    try:
        expressions = tuple(
            Requirement(entry["key"], entry["operator"], tuple(entry.get("values") or ()))
            for entry in written.get("matchExpressions") or ()
        )
    except BadInput:
        return False
    selector = LabelSelector((*LabelSelector.of(written.get("matchLabels") or {}).requirements, *expressions))
    return bool(selector.requirements) and selector.matches(labels)


def is_namespace_ending(error: ApiError) -> bool:
    """Whether a creation was refused since the namespace is being deleted, which no retry changes."""
    return isinstance(error, Forbidden) and any(c.reason == "NamespaceTerminating" for c in error.details.causes)
