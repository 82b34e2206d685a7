# SPDX-License-Identifier: Apache-2.0
"""What all operators share: one kind, followed with its children, reconciled, and a status that is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from devcluster.controllers.caches import BY_CONTROLLER, controllers
from devcluster.controllers.recent_writes import RecentWrites
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_BACKOFF: Final = Backoff(base=0.02, factor=2.0, cap=1.0, jitter=0.2)


class Operator(ABC):
    """The controller of one kind, whose objects have children of one kind."""

    def __init__(
        self, client: KubeClient, resource: Resource, *, children: Resource, clock: Clock | None = None
    ) -> None:
        self.client = client
        self.resource = resource
        self.clock = clock or SystemClock()
        self._objects = Informer(client, resource, clock=self.clock, backoff=_BACKOFF)
        indexers = {BY_CONTROLLER: controllers}
        self._children = Informer(client, children, indexers=indexers, clock=self.clock, backoff=_BACKOFF)
        self.children = RecentWrites(self._children, clock=self.clock, indexer=controllers)
        self._controller: Controller[Key] = Controller(
            f"operator-{resource.plural}",
            self._reconcile,
            queue=WorkQueue(clock=self.clock, backoff=_BACKOFF),
            clock=self.clock,
        )
        self._objects.add_handler(lambda change: self._controller.enqueue(change.key))
        self._children.add_handler(self._child_changed)

    @abstractmethod
    async def reconcile(self, obj: JsonObject, children: list[JsonObject]) -> JsonObject:
        """Change the children, and return the status that the object is to have."""

    @abstractmethod
    def is_managed(self, obj: JsonObject) -> bool:
        """Whether the object is this operator's, by its `managedBy`."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._objects.run)
            tasks.start_soon(self._children.run)
            await self.synced()
            tasks.start_soon(self._controller.run)

    async def synced(self) -> None:
        """Wait until the initial lists are complete."""
        await self._objects.synced.wait()
        await self._children.synced.wait()

    def reference(self, obj: JsonObject) -> JsonObject:
        """The owner reference of its children."""
        named = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "name": obj["metadata"]["name"]}
        return {**named, "uid": obj["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}

    def condition(self, conditions: list[JsonObject], type_: str, status: str, reason: str) -> list[JsonObject]:
        """The conditions with this one; its time changes with its status."""
        old = next((each for each in conditions if each["type"] == type_), None)
        if old is not None and (old["status"], old["reason"]) == (status, reason):
            return conditions
        stamp = format_time(self.clock.now())
        if old is not None and old["status"] == status:
            stamp = old["lastTransitionTime"]
        message = f"{self.resource.kind}: {reason}"
        made = {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp}
        return [*(each for each in conditions if each["type"] != type_), made]

    async def _reconcile(self, key: Key) -> Result | None:
        obj = self._objects.store.object(key)
        if obj is None or "deletionTimestamp" in obj["metadata"] or not self.is_managed(obj):
            return None
        status = await self.reconcile(obj, self.children.objects(BY_CONTROLLER, obj["metadata"]["uid"]))
        if status != (obj.get("status") or {}):
            kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
            body = {**obj, **kind, "status": status}
            try:
                await self.client.replace(self.resource, key.name, body, namespace=key.namespace, subresource="status")
            except NotFound:
                return None
        return None

    def _child_changed(self, change: Change) -> None:
        owner = controller_of(change.row.object())
        if owner is not None and owner["kind"] == self.resource.kind:
            self._controller.enqueue(Key(change.key.namespace, owner["name"]))


@asynccontextmanager
async def operating(*operators: Operator) -> AsyncIterator[None]:
    """Run the operators; their kinds are served already."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for operator in operators:
            tasks.start_soon(operator.run)
        for operator in operators:
            await operator.synced()
        try:
            yield
        except Exception as error:
            failure = error  # raised below: the task group would wrap it in an ExceptionGroup
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
