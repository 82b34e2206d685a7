# SPDX-License-Identifier: Apache-2.0
"""Watches the metadata of all objects, including kinds that are defined later.

Owns one informer per resource, and repeats discovery when a CustomResourceDefinition changes. Events are excluded: they
have no owners or dependents, and there are many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from devcluster.controllers.caches import BACKOFF
from devcluster.controllers.discovery import served
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from multikueue.core.clock import Clock
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient

log = logging.getLogger(__name__)

_IGNORED: Final = frozenset({"events", "events.events.k8s.io"})
# Discovery shows a new definition some time after it is established, on a real server up to some seconds.
_REFRESH_SECONDS: Final = (0.05, 0.5, 2.0, 5.0)
_RETRY_SECONDS: Final = 1.0

Listener = Callable[[Resource, Change], None]


class MetadataWatch:
    """The metadata of all objects of one cluster."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._listeners: list[Listener] = []
        self._clock = clock
        self._informers: dict[Resource, Informer] = {}
        self._scopes: dict[Resource, anyio.CancelScope] = {}
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._changed = anyio.Event()
        self.synced = anyio.Event()

    def add_listener(self, listener: Listener) -> None:
        """Call the listener for each later change."""
        self._listeners.append(listener)

    def count(self, name: str, namespace: str) -> int:
        """The number of objects of `jobs.batch`, `pods`, … in a namespace; 0 if the resource is not served."""
        for resource, informer in self._informers.items():
            if resource.qualified == name:
                return sum(row.key.namespace == namespace for row in informer.store.list())
        return 0

    def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind, in the watched version."""
        group = api_version.rpartition("/")[0]
        return self._kinds.get((group, kind))

    async def run(self) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                if await self._refresh(tasks):
                    break
                await anyio.sleep(_RETRY_SECONDS)
            for informer in tuple(self._informers.values()):
                await informer.synced.wait()
            self.synced.set()
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                for seconds in _REFRESH_SECONDS:
                    with anyio.move_on_after(seconds):
                        await self._changed.wait()
                    self._changed = anyio.Event()
                    await self._refresh(tasks)

    async def _refresh(self, tasks: TaskGroup) -> bool:
        try:
            found = {kind for kind in await served(self._client) if kind.qualified not in _IGNORED}
        except KubeError as error:
            log.warning("cannot discover resources error=%s", error)
            return False
        for resource in self._informers.keys() - found:
            self._end(resource)
        for resource in sorted(found - self._informers.keys(), key=str):
            self._begin(resource, tasks)
        self._kinds = {(kind.group, kind.kind): kind for kind in found}
        return True

    def _begin(self, resource: Resource, tasks: TaskGroup) -> None:
        informer = Informer(self._client, resource, metadata_only=True, clock=self._clock, backoff=BACKOFF)
        informer.add_handler(lambda change: self._notify(resource, change))
        if resource.qualified == CUSTOM_RESOURCE_DEFINITIONS.qualified:
            informer.add_handler(lambda _: self._changed.set())
        scope = anyio.CancelScope()
        self._informers[resource], self._scopes[resource] = informer, scope

        async def follow() -> None:
            with scope:
                await informer.run()

        tasks.start_soon(follow)

    def _end(self, resource: Resource) -> None:
        self._scopes.pop(resource).cancel()
        for row in self._informers.pop(resource).store.list():
            self._notify(resource, Change("DELETED", row.key, row, None))

    def _notify(self, resource: Resource, change: Change) -> None:
        for listener in self._listeners:
            listener(resource, change)
