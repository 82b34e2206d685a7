# SPDX-License-Identifier: Apache-2.0
"""How many pods the controllers of given pods should have in all.

ReplicaSets, Deployments and StatefulSets are read from caches, other kinds through their subresource `scale`. Pods
without a controller do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from devcluster.controllers.caches import AppCaches
from devcluster.controllers.discovery import served
from devcluster.controllers.metadata_watch import MetadataWatch
from devcluster.resources import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import Resource
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Informer
from multikueue.kube.errors import ApiError, NotFound
from multikueue.kube.rest.client import KubeClient

_APPS: Final = ("apps", "extensions")


class UnknownScale(MultikueueError):
    """The number of pods of a controller is not known."""


class ControllerScales:
    """Reads the scales of one cluster's controllers."""

    def __init__(self, client: KubeClient, caches: AppCaches, watch: MetadataWatch) -> None:
        self._client = client
        self._caches = caches
        self._watch = watch

    async def total(self, pods: Iterable[JsonObject]) -> int:
        """The sum over the controllers of the pods. Raises `UnknownScale` with the words of a real cluster."""
        scales: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is None or owner["uid"] in scales:
                continue
            namespace = pod["metadata"]["namespace"]
            found = self._known(owner, namespace) or await self._served(owner, namespace)
            if found is None:
                raise UnknownScale(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            uid, count = found
            scales[uid] = count
        return sum(scales.values())

    def _known(self, owner: JsonObject, namespace: str) -> tuple[str, int] | None:
        """The uid and scale of a controller that is cached; those of the Deployment for a ReplicaSet of one."""
        if owner["apiVersion"].rpartition("/")[0] not in _APPS:
            return None
        if owner["kind"] == STATEFUL_SETS.kind:
            return _scale(_found(self._caches.stateful_sets, owner, namespace))
        if owner["kind"] != REPLICA_SETS.kind:
            return None
        replica_set = _found(self._caches.replica_sets, owner, namespace)
        above = controller_of(replica_set) if replica_set is not None else None
        if above is None or above["kind"] != DEPLOYMENTS.kind:
            return _scale(replica_set)
        return _scale(_found(self._caches.deployments, above, namespace))

    async def _served(self, owner: JsonObject, namespace: str) -> tuple[str, int] | None:
        """The same from the subresource `scale`. Raises `UnknownScale` if the kind has none."""
        resource = self._watch.resource_of(owner["apiVersion"], owner["kind"]) or await self._defined(owner)
        if resource is None:
            raise UnknownScale(f'no matches for kind "{owner["kind"]}" in version "{owner["apiVersion"]}"')
        path = resource.path(namespace, owner["name"], "scale")
        try:
            scale = (await self._client.request("GET", path)).json()
        except NotFound:
            if not await self._has_scale(resource):
                raise UnknownScale(f"{resource.qualified} does not implement the scale subresource") from None
            return None
        except ApiError as error:
            raise UnknownScale(error.message) from error
        if scale["metadata"].get("uid") != owner["uid"]:
            return None
        return owner["uid"], scale["spec"].get("replicas", 0)

    async def _defined(self, owner: JsonObject) -> Resource | None:
        """The resource of a kind that was defined so lately that the watch does not know it."""
        group = owner["apiVersion"].rpartition("/")[0]
        known = await served(self._client)
        return next((kind for kind in known if (kind.group, kind.kind) == (group, owner["kind"])), None)

    async def _has_scale(self, resource: Resource) -> bool:
        listed = (await self._client.request("GET", resource.base_path)).json().get("resources") or ()
        return any(entry["name"] == f"{resource.plural}/scale" for entry in listed)


def _found(informer: Informer, owner: JsonObject, namespace: str) -> JsonObject | None:
    """The object that an owner reference means, not another of its name."""
    found = informer.store.object(Key(namespace, owner["name"]))
    return found if found is not None and found["metadata"]["uid"] == owner["uid"] else None


def _scale(value: JsonObject | None) -> tuple[str, int] | None:
    return (value["metadata"]["uid"], value["spec"].get("replicas", 1)) if value is not None else None
