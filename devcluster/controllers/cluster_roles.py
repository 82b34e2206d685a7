# SPDX-License-Identifier: Apache-2.0
"""Fills aggregated ClusterRoles: `admin`, `edit`, `view` and others with an aggregationRule."""

from __future__ import annotations

from collections.abc import Iterable

from devcluster.controllers.caches import BACKOFF
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CLUSTER_ROLES
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.selectors import LabelSelector, Requirement
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

_AGGREGATED = "aggregated"


def rules_of(role: JsonObject, others: Iterable[JsonObject]) -> list[JsonObject]:
    """The rules of the roles that `role` selects, in the order of role names, without duplicates."""
    selectors = [_selector(entry) for entry in role["aggregationRule"].get("clusterRoleSelectors") or ()]
    rules: list[JsonObject] = []
    for other in sorted(others, key=lambda found: str(found["metadata"]["name"])):
        if other["metadata"]["name"] == role["metadata"]["name"]:
            continue
        labels = other["metadata"].get("labels") or {}
        if any(selector.matches(labels) for selector in selectors):
            rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


class ClusterRoles:
    """The ClusterRole aggregation controller of one cluster."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._roles = Informer(client, CLUSTER_ROLES, indexers={_AGGREGATED: _aggregated}, clock=clock, backoff=BACKOFF)
        self._controller: Controller[Key] = Controller(
            "cluster-roles", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        self._roles.add_handler(self._changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that only this controller uses."""
        return (self._roles,)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._roles.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Update the rules of one aggregated role."""
        role = self._roles.store.object(key)
        if role is None or not role.get("aggregationRule"):
            return None
        wanted = rules_of(role, self._roles.store.objects())
        if wanted != (role.get("rules") or []):
            version = role["metadata"]["resourceVersion"]
            try:
                await self._client.patch(CLUSTER_ROLES, key.name, {"rules": wanted}, resource_version=version)
            except NotFound:
                return None
        return None

    def _changed(self, change: Change) -> None:
        if change.row.labels or change.type == "ADDED":
            for row in self._roles.store.list(_AGGREGATED, _AGGREGATED):
                self._controller.enqueue(row.key)


def _aggregated(role: JsonObject) -> Iterable[str]:
    return (_AGGREGATED,) if role.get("aggregationRule") else ()


def _selector(written: JsonObject) -> LabelSelector:
    labels = LabelSelector.of(written.get("matchLabels") or {}).requirements
    expressions = tuple(
        Requirement(entry["key"], entry["operator"], tuple(entry.get("values") or ()))
        for entry in written.get("matchExpressions") or ()
    )
    return LabelSelector((*labels, *expressions))
