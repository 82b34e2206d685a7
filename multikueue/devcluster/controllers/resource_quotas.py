# SPDX-License-Identifier: Apache-2.0
"""Keeps the status of ResourceQuotas: what is used of what is allowed. Enforcing them is admission's part."""

from __future__ import annotations

from functools import partial
from typing import Final

from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.devcluster.controllers.caches import BACKOFF, BY_NAMESPACE, Caches
from multikueue.devcluster.controllers.metadata_watch import MetadataWatch
from multikueue.devcluster.controllers.quota_usage import selected, used_of
from multikueue.devcluster.controllers.resources import RESOURCE_QUOTAS
from multikueue.kube.client import KubeClient
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import NotFound
from multikueue.kube.informer import Change, Informer
from multikueue.kube.workqueue import WorkQueue

_GATHER_SECONDS: Final = 0.2  # one count for a Job's hundred pods


class ResourceQuotas:
    """Counts what quotas limit."""

    def __init__(self, client: KubeClient, caches: Caches, watch: MetadataWatch, *, clock: Clock) -> None:
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
        watch.add_listener(self._listed_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """What it follows by itself."""
        return (self._quotas,)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._caches.pods.synced.wait()
        await self._watch.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Count for one quota."""
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

    def _listed_changed(self, resource: Resource, change: Change) -> None:
        # An update changes no count; what pods use is told by their own cache.
        if change.type != "MODIFIED" and change.key.namespace and resource.plural != "pods":
            self._object_changed(change)
