# SPDX-License-Identifier: Apache-2.0
"""The informers that the controllers of Deployments, ReplicaSets and StatefulSets share."""

from __future__ import annotations

from devcluster.controllers.caches import (
    BACKOFF,
    BY_CONTROLLER,
    BY_NAMESPACE,
    ORPHANS,
    ControllerCaches,
    controllers,
    namespaces,
    orphans,
)
from devcluster.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from multikueue.core.clock import Clock
from multikueue.kube.cache.informer import Informer
from multikueue.kube.rest.client import KubeClient


class AppCaches:
    """One informer for each kind of apps/v1 that has a controller; the pods are those of `caches`."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        by_namespace = {BY_NAMESPACE: namespaces}
        owned = {BY_CONTROLLER: controllers, ORPHANS: orphans}
        self.pods = caches.pods
        self.deployments = Informer(client, DEPLOYMENTS, indexers=by_namespace, clock=clock, backoff=BACKOFF)
        self.replica_sets = Informer(
            client, REPLICA_SETS, indexers={**by_namespace, **owned}, clock=clock, backoff=BACKOFF
        )
        self.stateful_sets = Informer(client, STATEFUL_SETS, indexers=by_namespace, clock=clock, backoff=BACKOFF)
        self.revisions = Informer(client, CONTROLLER_REVISIONS, indexers=owned, clock=clock, backoff=BACKOFF)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers of apps/v1."""
        return (self.deployments, self.replica_sets, self.stateful_sets, self.revisions)
