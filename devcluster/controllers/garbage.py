# SPDX-License-Identifier: Apache-2.0
"""The garbage collector: deletes objects without owners, and handles foreground deletion and orphaning.

Executes the decisions of `ownership_graph`. Before it deletes an object, it reads the object and every owner that is
missing from the graph from the API server, as the cache may lag.
"""

from __future__ import annotations

import logging
from typing import Final

import orjson

from devcluster.controllers.caches import BACKOFF
from devcluster.controllers.metadata_watch import MetadataWatch
from devcluster.controllers.ownership_graph import (
    FOREGROUND,
    ORPHAN,
    Disown,
    Item,
    Owner,
    OwnershipGraph,
    OwnerState,
    RemoveObject,
    decide,
    item_of,
)
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import Conflict, MethodNotAllowed, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

log = logging.getLogger(__name__)

_WORKERS: Final = 8
_ABSENT_KEPT: Final = 10_000


class GarbageCollector:
    """The garbage collector of one cluster."""

    def __init__(self, client: KubeClient, watch: MetadataWatch, *, clock: Clock) -> None:
        self._client = client
        self._graph = OwnershipGraph()
        self._watch = watch
        watch.add_listener(self._changed)
        self._absent: dict[str, None] = {}
        self._controller: Controller[str] = Controller(
            "garbage-collector",
            self.reconcile,
            workers=_WORKERS,
            queue=WorkQueue(clock=clock, backoff=BACKOFF),
            clock=clock,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        await self._watch.synced.wait()
        for item in self._graph.items():
            self._consider(item)
        await self._controller.run()

    async def reconcile(self, uid: str) -> Result | None:
        """Reconcile one object with its owners and its deletion finalizers."""
        known = self._graph.get(uid)
        if known is None:
            return None
        metadata = await self._read(known.resource, known.key.namespace, known.key.name)
        if metadata is None or metadata["uid"] != uid:
            return None  # the watch event updates the graph
        item = item_of(known.resource, metadata)
        if item.orphans_dependents:
            await self._orphan(item, metadata)
        elif item.awaits_dependents:
            await self._await(item, metadata)
        elif item.owners and not item.deleting:
            states = {owner.uid: await self._state(item, owner) for owner in item.owners}
            decision = decide(item, states, dependents=self._graph.dependents(uid))
            if isinstance(decision, Disown):
                await self._disown(item, metadata, decision.uids)
            elif isinstance(decision, RemoveObject):
                if decision.unblock:
                    await self._unblock(item, metadata)
                await self._remove(item, decision.propagation)
        return None

    async def _orphan(self, item: Item, metadata: JsonObject) -> None:
        for dependent in self._graph.dependents(item.uid):
            theirs = await self._read(dependent.resource, dependent.key.namespace, dependent.key.name)
            if theirs is not None and theirs["uid"] == dependent.uid:
                await self._disown(dependent, theirs, (item.uid,))
        await self._remove_finalizer(item, metadata, ORPHAN)

    async def _await(self, item: Item, metadata: JsonObject) -> None:
        if not self._graph.blockers(item.uid):
            await self._remove_finalizer(item, metadata, FOREGROUND)
            return
        for dependent in self._graph.dependents(item.uid):
            if not dependent.deleting:
                self._controller.enqueue(dependent.uid)

    async def _state(self, item: Item, owner: Owner) -> OwnerState:
        if owner.uid in self._absent:
            return OwnerState.ABSENT
        known = self._graph.get(owner.uid)
        if known is not None and _named(known, item, owner):
            return OwnerState.AWAITS if known.awaits_dependents else OwnerState.PRESENT
        resource = self._watch.resource_of(owner.api_version, owner.kind)
        if resource is None or (resource.namespaced and not item.key.namespace):
            log.warning(
                "cannot resolve owner object=%s/%s owner=%s/%s", item.resource, item.key, owner.kind, owner.name
            )
            return OwnerState.UNKNOWN
        metadata = await self._read(resource, item.key.namespace if resource.namespaced else "", owner.name)
        if metadata is None or metadata["uid"] != owner.uid:
            self._remember_absent(owner.uid)
            return OwnerState.ABSENT
        return OwnerState.AWAITS if item_of(resource, metadata).awaits_dependents else OwnerState.PRESENT

    async def _read(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        try:
            found = orjson.loads(await self._client.get(resource, name, namespace=namespace or None))
        except (NotFound, MethodNotAllowed):
            return None
        metadata: JsonObject = found["metadata"]
        return metadata

    async def _remove(self, item: Item, propagation: str) -> None:
        try:
            await self._client.delete(
                item.resource,
                item.key.name,
                namespace=item.key.namespace or None,
                propagation=propagation,
                uid=item.uid,
            )
        except (NotFound, Conflict):
            return  # deleted, or replaced by another object of that name

    async def _disown(self, item: Item, metadata: JsonObject, uids: tuple[str, ...]) -> None:
        references = metadata.get("ownerReferences") or []
        kept = [entry for entry in references if entry["uid"] not in uids]
        if len(kept) != len(references):
            await self._patch(item, {"ownerReferences": kept or None}, version=metadata["resourceVersion"])

    async def _unblock(self, item: Item, metadata: JsonObject) -> None:
        references = metadata.get("ownerReferences") or []
        if any(entry.get("blockOwnerDeletion") for entry in references):
            unblocked = [{**entry, "blockOwnerDeletion": False} for entry in references]
            await self._patch(item, {"ownerReferences": unblocked}, version=metadata["resourceVersion"])

    async def _remove_finalizer(self, item: Item, metadata: JsonObject, finalizer: str) -> None:
        kept = [name for name in metadata.get("finalizers") or () if name != finalizer]
        await self._patch(item, {"finalizers": kept or None}, version=metadata["resourceVersion"])

    async def _patch(self, item: Item, metadata: JsonObject, *, version: str) -> None:
        body = {"metadata": {"uid": item.uid, **metadata}}
        try:
            await self._client.patch(
                item.resource,
                item.key.name,
                body,
                namespace=item.key.namespace or None,
                resource_version=version,
            )
        except NotFound:
            return

    def _changed(self, resource: Resource, change: Change) -> None:
        if change.new is None:
            self._removed(change.row.uid)
            return
        item = item_of(resource, orjson.loads(change.new.raw)["metadata"])
        before = self._graph.put(item)
        if self._watch.synced.is_set():
            self._consider(item)
            if before is not None and before.owners != item.owners:
                self._consider_owners(before)

    def _removed(self, uid: str) -> None:
        item = self._graph.remove(uid)
        for dependent in self._graph.dependents(uid):
            self._controller.enqueue(dependent.uid)
        if item is None:
            return
        if self._graph.dependents(uid):
            self._remember_absent(uid)
        self._consider_owners(item)

    def _consider(self, item: Item) -> None:
        """Enqueue an item if it may need a change."""
        if item.deleting:
            if item.awaits_dependents or item.orphans_dependents:
                self._controller.enqueue(item.uid)
            return
        for owner in item.owners:
            known = self._graph.get(owner.uid)
            if known is None or known.awaits_dependents or not _named(known, item, owner):
                self._controller.enqueue(item.uid)
                return

    def _consider_owners(self, item: Item) -> None:
        """Enqueue owners that waited for an item that no longer blocks them."""
        for owner in item.owners:
            known = self._graph.get(owner.uid)
            if known is not None and known.awaits_dependents:
                self._controller.enqueue(known.uid)

    def _remember_absent(self, uid: str) -> None:
        self._absent[uid] = None
        while len(self._absent) > _ABSENT_KEPT:
            del self._absent[next(iter(self._absent))]


def _named(known: Item, item: Item, owner: Owner) -> bool:
    """Whether the owner reference of `item` matches the owner."""
    if (known.resource.group, known.resource.kind, known.key.name) != (
        owner.api_version.rpartition("/")[0],
        owner.kind,
        owner.name,
    ):
        return False
    return known.key.namespace in ("", item.key.namespace)
