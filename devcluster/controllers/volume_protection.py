# SPDX-License-Identifier: Apache-2.0
"""Lets claims, volumes and volume attributes classes go that are being deleted and that are not used.

The API server gives each a finalizer. A claim is used while a pod that has not ended names it, a volume while it is
bound, and a class while a claim or a volume has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from devcluster.controllers import pod_facts
from devcluster.controllers.caches import BACKOFF, BY_NAMESPACE, ControllerCaches
from devcluster.resources import ATTRIBUTES_CLASSES, PERSISTENT_VOLUMES, VOLUME_CLAIMS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

FINALIZERS: Final = {
    VOLUME_CLAIMS: "kubernetes.io/pvc-protection",
    PERSISTENT_VOLUMES: "kubernetes.io/pv-protection",
    ATTRIBUTES_CLASSES: "kubernetes.io/vac-protection",
}
_Item = tuple[Resource, Key]


def claims_of(pod: JsonObject) -> Iterator[str]:
    """The names of the claims that a pod uses, those of its ephemeral volumes included."""
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            yield f"{pod['metadata']['name']}-{volume['name']}"


def is_claimed(claim: str, pods: Iterator[JsonObject]) -> bool:
    """Whether a pod that has a node and has not ended uses the claim."""
    return any(pod["spec"].get("nodeName") and not pod_facts.ended(pod) and claim in claims_of(pod) for pod in pods)


class VolumeProtection:
    """The protection controllers of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._pods = caches.pods.store
        self._informers = {
            resource: Informer(client, resource, clock=clock, backoff=BACKOFF) for resource in FINALIZERS
        }
        self._controller: Controller[_Item] = Controller(
            "volume-protection", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        for resource, informer in self._informers.items():
            informer.add_handler(partial(self._changed, resource))
        caches.pods.add_handler(self._pod_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses."""
        return tuple(self._informers.values())

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controller.run()

    async def reconcile(self, item: _Item) -> Result | None:
        """Remove the finalizer of one object, if it is being deleted and not used."""
        resource, key = item
        found = self._informers[resource].store.object(key)
        finalizers = (found["metadata"].get("finalizers") or []) if found is not None else []
        if found is None or "deletionTimestamp" not in found["metadata"] or FINALIZERS[resource] not in finalizers:
            return None
        if self._used(resource, key, found):
            return None
        kept = [name for name in finalizers if name != FINALIZERS[resource]]
        body = {"metadata": {"uid": found["metadata"]["uid"], "finalizers": kept or None}}
        try:
            await self._client.patch(
                resource,
                key.name,
                body,
                namespace=key.namespace or None,
                resource_version=found["metadata"]["resourceVersion"],
            )
        except NotFound:
            return None
        return None

    def _used(self, resource: Resource, key: Key, found: JsonObject) -> bool:
        if resource == VOLUME_CLAIMS:
            return is_claimed(key.name, self._pods.objects(BY_NAMESPACE, key.namespace))
        if resource == PERSISTENT_VOLUMES:
            return bool((found.get("status") or {}).get("phase") == "Bound")
        return any(
            key.name in (entry["spec"].get("volumeAttributesClassName"), _current_class(entry))
            for kind in (VOLUME_CLAIMS, PERSISTENT_VOLUMES)
            for entry in self._informers[kind].store.objects()
        )

    def _changed(self, resource: Resource, change: Change) -> None:
        if change.new is not None and change.new.deleting:
            self._controller.enqueue((resource, change.key))
        if resource != ATTRIBUTES_CLASSES:
            self._reconsider(ATTRIBUTES_CLASSES, lambda key: True)

    def _pod_changed(self, change: Change) -> None:
        if not len(self._informers[VOLUME_CLAIMS].store):
            return  # most clusters have none, and then no pod has to be read
        names = set(claims_of(change.row.object()))
        if names:
            self._reconsider(VOLUME_CLAIMS, lambda key: key.namespace == change.key.namespace and key.name in names)

    def _reconsider(self, resource: Resource, concerns: Callable[[Key], bool]) -> None:
        for row in self._informers[resource].store.list():
            if row.deleting and concerns(row.key):
                self._controller.enqueue((resource, row.key))


def _current_class(entry: JsonObject) -> str | None:
    found: str | None = (entry.get("status") or {}).get("currentVolumeAttributesClassName")
    return found
