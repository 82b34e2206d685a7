# SPDX-License-Identifier: Apache-2.0
"""Computes the usage of ResourceQuotas and maintains their status. Admission enforces them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from devcluster import quota_usage
from devcluster.controllers.caches import BACKOFF, BY_NAMESPACE, ControllerCaches, namespaces
from devcluster.controllers.discovery import served
from devcluster.controllers.metadata_watch import MetadataWatch
from devcluster.resources import RESOURCE_QUOTAS, VOLUME_CLAIMS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, SERVICES, Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_GATHER_SECONDS: Final = 0.2  # batches the pods of a Job
_DEFINED_SECONDS: Final = 2.0  # until discovery shows a new definition


class ResourceQuotas:
    """The ResourceQuota controller of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, watch: MetadataWatch, *, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._watch = watch
        self._clock = clock
        self._quotas = self._informer(RESOURCE_QUOTAS)
        self._full = {kind.plural: self._informer(kind) for kind in (SERVICES, VOLUME_CLAIMS)}
        # These run only once a quota needs more of the objects than their number.
        self._running: set[str] = set()
        self._tasks: TaskGroup | None = None
        self._served: frozenset[str] = frozenset()
        self._controller: Controller[Key] = Controller(
            "resource-quotas", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        self._quotas.add_handler(lambda change: self._controller.enqueue(change.key))
        for informer in (caches.pods, *self._full.values()):
            informer.add_handler(self._object_changed)
        watch.add_listener(self._metadata_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses and that always run."""
        return (self._quotas,)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.pods.synced.wait()
        await self._watch.synced.wait()
        async with anyio.create_task_group() as self._tasks:
            await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Update the usage of one quota."""
        quota = self._quotas.store.object(key)
        if quota is None:
            return None
        hard = quota["spec"].get("hard") or {}
        before = quota.get("status") or {}
        kept = {name: amount for name, amount in (before.get("used") or {}).items() if name in hard}
        used = {**kept, **await self._usage(quota, hard)}
        status = {"hard": hard, "used": used}
        if status != before:
            body = {**quota, "apiVersion": "v1", "kind": RESOURCE_QUOTAS.kind, "status": status}
            try:
                await self._client.replace(
                    RESOURCE_QUOTAS, key.name, body, namespace=key.namespace, subresource="status"
                )
            except NotFound:
                return None
        return None

    async def _usage(self, quota: JsonObject, hard: Iterable[str]) -> JsonObject:
        """The usage of each name for which the objects of a served resource count."""
        spec, namespace = quota["spec"], quota["metadata"]["namespace"]
        scoped = quota_usage.has_scopes(spec)
        found: JsonObject = {}
        for resource in quota_usage.MEASURED:
            names = quota_usage.tracked(resource, hard)
            if any(quota_usage.counted_resource(name) != resource for name in names) or (names and scoped):
                values = await self._objects(resource, namespace)
                amounts = quota_usage.total(resource, values, spec, names=names, now=self._clock.now())
                found |= {name: str(amount) for name, amount in amounts.items()}
        for name in hard:
            resource = quota_usage.counted_resource(name)
            if name not in found and resource and await self._is_counted(resource):
                found[name] = "0" if scoped else str(self._watch.count(resource, namespace))
        return found

    async def _objects(self, resource: str, namespace: str) -> Iterable[JsonObject]:
        """The objects of pods, services or claims in a namespace."""
        informer = self._full.get(resource, self._caches.pods)
        if resource in self._full and resource not in self._running and self._tasks is not None:
            self._running.add(resource)
            self._tasks.start_soon(informer.run)
        await informer.synced.wait()
        return informer.store.objects(BY_NAMESPACE, namespace)

    async def _is_counted(self, resource: str) -> bool:
        """Whether it is a resource of namespaced objects that is served."""
        if resource not in self._served:
            known = await served(self._client)
            self._served = frozenset(kind.qualified for kind in known if kind.namespaced) - quota_usage.UNCOUNTED
        return resource in self._served

    def _informer(self, resource: Resource) -> Informer:
        by_namespace = {BY_NAMESPACE: namespaces}
        return Informer(self._client, resource, indexers=by_namespace, clock=self._clock, backoff=BACKOFF)

    def _object_changed(self, change: Change) -> None:
        for row in self._quotas.store.list(BY_NAMESPACE, change.key.namespace):
            self._controller.queue.add_after(row.key, _GATHER_SECONDS)

    def _metadata_changed(self, resource: Resource, change: Change) -> None:
        if resource.qualified == CUSTOM_RESOURCE_DEFINITIONS.qualified and change.type != "DELETED":
            for row in self._quotas.store.list():
                self._controller.queue.add_after(row.key, _DEFINED_SECONDS)
        # An update changes no count; pods have a cache of their own.
        elif change.type != "MODIFIED" and change.key.namespace and resource.plural != "pods":
            self._object_changed(change)
