# SPDX-License-Identifier: Apache-2.0
"""Computes the usage of ResourceQuotas and maintains their status. Admission enforces them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from devcluster.controllers import pod_facts
from devcluster.controllers.caches import BACKOFF, BY_NAMESPACE, ControllerCaches
from devcluster.controllers.metadata_watch import MetadataWatch
from devcluster.controllers.pod_info import limits_of, requests_of
from devcluster.resources import RESOURCE_QUOTAS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_GATHER_SECONDS: Final = 0.2  # batches the pods of a Job
Count = Callable[[str], int]
"""The number of objects of a resource (`jobs.batch`, `pods`) in the namespace."""
_COUNTED: Final = frozenset(
    {"configmaps", "secrets", "services", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"}
)
_UNPREFIXED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Names that mean requests if they have no prefix."""


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


def used_of(hard: JsonObject, pods: Iterable[JsonObject], *, count: Count) -> JsonObject:
    """The usage of each resource in `hard`; `pods` are those that the quota's scopes select."""
    active = [pod for pod in pods if not pod_facts.ended(pod)]
    requests = [requests_of(pod["spec"]) for pod in active]
    limits = [limits_of(pod["spec"]) for pod in active]
    used: JsonObject = {}
    for name, limit in hard.items():
        if name == "pods":
            used[name] = str(len(active))
        elif name.startswith("count/"):
            used[name] = str(count(name.removeprefix("count/")))
        elif name in _COUNTED:
            used[name] = str(count(name))
        elif name.startswith("limits."):
            used[name] = _total(limits, name.removeprefix("limits."), limit)
        elif name in _UNPREFIXED or name.startswith("requests."):
            used[name] = _total(requests, name.removeprefix("requests."), limit)
    return used


def selected(pod: JsonObject, spec: JsonObject) -> bool:
    """Whether the scopes of the quota select the pod."""
    terms = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_in_scope(pod, term) for term in terms)


def _in_scope(pod: JsonObject, term: JsonObject) -> bool:
    limited = pod["spec"].get("activeDeadlineSeconds") is not None
    plain = not limits_of(pod["spec"]) and requests_of(pod["spec"]).keys() <= {"pods"}
    match term["scopeName"]:
        case "Terminating":
            return limited
        case "NotTerminating":
            return not limited
        case "BestEffort":
            return plain
        case "NotBestEffort":
            return not plain
        case "PriorityClass":
            name = pod["spec"].get("priorityClassName") or ""
            match term.get("operator"):
                case "In":
                    return name in (term.get("values") or ())
                case "NotIn":
                    return name not in (term.get("values") or ())
                case "DoesNotExist":
                    return not name
                case _:
                    return bool(name)
        case _:
            return False


def _total(amounts: Iterable[dict[str, int]], name: str, like: str) -> str:
    milli = sum(found.get(name, 0) for found in amounts)
    whole, rest = divmod(milli, 1000)
    if rest:
        return str(Quantity.of_milli(milli))
    return str(Quantity.of(whole, Quantity.parse(like).format))
