# SPDX-License-Identifier: Apache-2.0
"""Maintains the status of ResourceQuotas. Admission enforces them."""

from __future__ import annotations

from functools import partial
from typing import Final

from devcluster.controllers.caches import BACKOFF, BY_NAMESPACE, ControllerCaches
from devcluster.controllers.metadata_watch import MetadataWatch
from devcluster.controllers.quota_usage import selected, used_of
from devcluster.resources import RESOURCE_QUOTAS
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_GATHER_SECONDS: Final = 0.2  # batches the pods of a Job


class ResourceQuotas:
    """The ResourceQuota controller of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, watch: MetadataWatch, *, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._watch = watch
        self._quotas = Informer(
            client,
            RESOURCE_QUOTAS,
            indexers={BY_NAMESPACE: lambda quota: (quota["metadata"]["namespace"],)},
            clock=clock,
            backoff=BACKOFF,
        )
        self._controller: Controller[Key] = Controller(
            "resource-quotas", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        self._quotas.add_handler(lambda change: self._controller.enqueue(change.key))
        caches.pods.add_handler(self._object_changed)
        watch.add_listener(self._metadata_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses."""
        return (self._quotas,)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.pods.synced.wait()
        await self._watch.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Update the usage of one quota."""
        quota = self._quotas.store.object(key)
        if quota is None:
            return None
        hard = quota["spec"].get("hard") or {}
        pods = self._caches.pods.store.objects(BY_NAMESPACE, key.namespace)
        used = used_of(
            hard,
            (pod for pod in pods if selected(pod, quota["spec"])),
            count=partial(self._watch.count, namespace=key.namespace),
        )
        status = {"hard": hard, "used": used}
        if status != (quota.get("status") or {}):
            body = {**quota, "apiVersion": "v1", "kind": RESOURCE_QUOTAS.kind, "status": status}
            try:
                await self._client.replace(
                    RESOURCE_QUOTAS, key.name, body, namespace=key.namespace, subresource="status"
                )
            except NotFound:
                return None
        return None

    def _object_changed(self, change: Change) -> None:
        for row in self._quotas.store.list(BY_NAMESPACE, change.key.namespace):
            self._controller.queue.add_after(row.key, _GATHER_SECONDS)

    def _metadata_changed(self, resource: Resource, change: Change) -> None:
        # An update changes no count; pods have a cache of their own.
        if change.type != "MODIFIED" and change.key.namespace and resource.plural != "pods":
            self._object_changed(change)
