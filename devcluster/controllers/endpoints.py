# SPDX-License-Identifier: Apache-2.0
"""Maintains the EndpointSlices and Endpoints of Services with a selector, as `service_endpoints` computes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from devcluster.controllers.caches import BACKOFF, BY_NAMESPACE, ControllerCaches
from devcluster.controllers.recent_writes import RecentWrites
from devcluster.controllers.service_endpoints import (
    SLICE_MANAGER,
    endpoints_of,
    selects,
    slices_of,
)
from devcluster.resources import ENDPOINT_SLICES, ENDPOINTS, MANAGED_BY_LABEL, SERVICE_NAME_LABEL
from multikueue.api.objects import JsonObject
from multikueue.api.resource import SERVICES
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_BY_SERVICE: Final = "service"
_GATHER_SECONDS: Final = 0.05  # batches pods that become ready together


class ServiceEndpoints:
    """The endpoints and EndpointSlice controller of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._pods = caches.pods
        self._services = Informer(client, SERVICES, indexers={BY_NAMESPACE: _namespaces}, clock=clock, backoff=BACKOFF)
        self._slices = Informer(
            client,
            ENDPOINT_SLICES,
            label_selector=f"{MANAGED_BY_LABEL}={SLICE_MANAGER}",
            indexers={_BY_SERVICE: _services},
            clock=clock,
            backoff=BACKOFF,
        )
        self._endpoints = Informer(client, ENDPOINTS, clock=clock, backoff=BACKOFF)
        self._known_slices = RecentWrites(self._slices, clock=clock, indexer=_services)
        self._known_endpoints = RecentWrites(self._endpoints, clock=clock)
        self._controller: Controller[Key] = Controller(
            "service-endpoints", self.reconcile, workers=2, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        self._without_service: set[Key] = set()
        """The Endpoints to remove: their Service was deleted. Others make Endpoints without a Service."""
        self._services.add_handler(self._service_changed)
        self._slices.add_handler(self._slice_changed)
        self._endpoints.add_handler(self._endpoints_changed)
        caches.pods.add_handler(self._pod_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses."""
        return (self._services, self._slices, self._endpoints)

    async def run(self) -> None:
        """Run until cancelled."""
        for informer in (*self.informers, self._pods):
            await informer.synced.wait()
        for row in self._endpoints.store.list():
            if row.key not in self._services.store:  # it may have been deleted while no controller ran
                self._without_service.add(row.key)
                self._controller.enqueue(row.key)
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Update the endpoints of one Service."""
        service = self._services.store.object(key)
        if service is None:
            # Slices are garbage collected; Endpoints have no owner reference.
            if key in self._without_service:
                await self._remove_endpoints(key)
                self._without_service.discard(key)
            return None
        if service["spec"].get("selector") is None or service["spec"].get("type") == "ExternalName":
            return None
        if "deletionTimestamp" in service["metadata"]:
            return None
        pods = [
            pod
            for pod in self._pods.store.objects(BY_NAMESPACE, key.namespace)
            if selects(service, pod["metadata"].get("labels") or {})
        ]
        try:
            await self._write_slices(key, slices_of(service, pods))
            await self._write_endpoints(key, endpoints_of(service, pods))
        except NotFound:
            return None  # the namespace was deleted
        except Forbidden as error:
            if "being terminated" not in str(error):
                raise
        return None

    async def _write_slices(self, key: Key, wanted: list[JsonObject]) -> None:
        there = sorted(
            self._known_slices.objects(_BY_SERVICE, str(key)), key=lambda found: str(found["metadata"]["name"])
        )
        there = [found for found in there if "deletionTimestamp" not in found["metadata"]]
        for found, want in zip(there, wanted, strict=False):
            if _differs(found, want, ("endpoints", "ports")):
                body = {**want, "metadata": {**found["metadata"], "labels": want["metadata"]["labels"]}}
                name = found["metadata"]["name"]
                stored = await self._client.replace(ENDPOINT_SLICES, name, body, namespace=key.namespace)
                self._known_slices.put(orjson.loads(stored))
        for want in wanted[len(there) :]:
            stored = await self._client.create(ENDPOINT_SLICES, want, namespace=key.namespace)
            self._known_slices.put(orjson.loads(stored))
        for found in there[len(wanted) :]:
            metadata = found["metadata"]
            try:
                await self._client.delete(
                    ENDPOINT_SLICES, metadata["name"], namespace=key.namespace, uid=metadata["uid"]
                )
            except (NotFound, Conflict):
                continue  # deleted, or replaced by another slice of that name
            self._known_slices.mark_deleted(metadata["uid"])

    async def _write_endpoints(self, key: Key, want: JsonObject) -> None:
        found = self._known_endpoints.object(key)
        if found is None:
            try:
                stored = await self._client.create(ENDPOINTS, want, namespace=key.namespace)
            except AlreadyExists:
                return  # the watch event triggers a reconcile
        elif _differs(found, want, ("subsets",)):
            body = {**want, "metadata": {**found["metadata"], "labels": want["metadata"]["labels"]}}
            stored = await self._client.replace(ENDPOINTS, key.name, body, namespace=key.namespace)
        else:
            return
        self._known_endpoints.put(orjson.loads(stored))

    async def _remove_endpoints(self, key: Key) -> None:
        try:
            await self._client.delete(ENDPOINTS, key.name, namespace=key.namespace)
        except NotFound:
            return

    def _service_changed(self, change: Change) -> None:
        if change.new is None:
            self._without_service.add(change.key)
        else:
            self._without_service.discard(change.key)
        self._controller.enqueue(change.key)

    def _endpoints_changed(self, change: Change) -> None:
        if change.key in self._services.store:
            self._controller.enqueue(change.key)

    def _slice_changed(self, change: Change) -> None:
        name = change.row.labels.get(SERVICE_NAME_LABEL)
        if name:
            self._controller.enqueue(Key(change.key.namespace, name))

    def _pod_changed(self, change: Change) -> None:
        rows = self._services.store.list(BY_NAMESPACE, change.key.namespace)
        if not rows:
            return
        labels: list[Mapping[str, str]] = [row.labels for row in (change.old, change.new) if row is not None]
        for row in rows:
            if any(selects(row.object(), each) for each in labels):
                self._controller.queue.add_after(row.key, _GATHER_SECONDS)


def _differs(found: JsonObject, want: JsonObject, fields: Iterable[str]) -> bool:
    if (found["metadata"].get("labels") or {}) != want["metadata"]["labels"]:
        return True
    return any((found.get(name) or []) != (want.get(name) or []) for name in fields)


def _namespaces(obj: JsonObject) -> Iterable[str]:
    yield obj["metadata"]["namespace"]


def _services(obj: JsonObject) -> Iterable[str]:
    name = (obj["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL)
    if name:
        yield str(Key(obj["metadata"]["namespace"], name))
