# SPDX-License-Identifier: Apache-2.0
"""The informers that several controllers share, and their indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import anyio

from devcluster.resources import CONTROLLER_REVISIONS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import CONFIG_MAPS, JOBS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.kube.cache.informer import Informer
from multikueue.kube.rest.client import KubeClient

BY_CONTROLLER: Final = "controller"
"""Pods and Jobs by the uid of their controller."""
BY_NAMESPACE: Final = "namespace"
ORPHANS: Final = "orphans"
"""Objects without a controller by namespace."""
ROOT_CA_NAME: Final = "kube-root-ca.crt"
# A local API server restarts within a second; its controllers should reconnect as fast.
BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=2.0, jitter=0.5)


class ControllerCaches:
    """One informer for each kind that controllers read in full."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self.namespaces = Informer(client, NAMESPACES, clock=clock, backoff=BACKOFF)
        self.nodes = Informer(client, NODES, clock=clock, backoff=BACKOFF)
        self.jobs = Informer(client, JOBS, indexers={BY_CONTROLLER: controllers}, clock=clock, backoff=BACKOFF)
        indexers = {BY_CONTROLLER: controllers, BY_NAMESPACE: namespaces, ORPHANS: orphans}
        self.pods = Informer(client, PODS, indexers=indexers, clock=clock, backoff=BACKOFF)
        self.service_accounts = Informer(client, SERVICE_ACCOUNTS, clock=clock, backoff=BACKOFF)
        self.root_certificates = Informer(
            client, CONFIG_MAPS, field_selector=f"metadata.name={ROOT_CA_NAME}", clock=clock, backoff=BACKOFF
        )

        self._informers = [
            self.namespaces,
            self.nodes,
            self.jobs,
            self.pods,
            self.service_accounts,
            self.root_certificates,
        ]

    def add(self, informers: Iterable[Informer]) -> None:
        """Add informers that only one controller uses."""
        self._informers += informers

    @property
    def all(self) -> Sequence[Informer]:
        """All informers."""
        return tuple(self._informers)

    @property
    def synced(self) -> bool:
        """Whether all initial lists are complete."""
        return all(informer.synced.is_set() for informer in self.all)

    async def wait(self) -> None:
        """Wait until all initial lists are complete: before that, an absent object may exist."""
        for informer in self.all:
            await informer.synced.wait()

    async def run(self) -> None:
        """Watch the cluster until cancelled."""
        async with anyio.create_task_group() as tasks:
            for informer in self.all:
                tasks.start_soon(informer.run)


def controllers(obj: JsonObject) -> Iterator[str]:
    """Index function: the uid of the object's controller."""
    owner = controller_of(obj)
    if owner is not None:
        yield owner["uid"]


def namespaces(obj: JsonObject) -> Iterator[str]:
    """Index function: the namespace."""
    yield obj["metadata"]["namespace"]


def orphans(obj: JsonObject) -> Iterator[str]:
    """Index function: the namespace of an object without a controller."""
    if controller_of(obj) is None:
        yield obj["metadata"]["namespace"]


class AppCaches:
    """One informer for each kind of apps/v1 that has a controller; pods and nodes are those of `caches`."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        by_namespace = {BY_NAMESPACE: namespaces}
        owned = {BY_CONTROLLER: controllers, ORPHANS: orphans}
        self.pods, self.nodes = caches.pods, caches.nodes
        self.deployments = Informer(client, DEPLOYMENTS, indexers=by_namespace, clock=clock, backoff=BACKOFF)
        self.replica_sets = Informer(
            client, REPLICA_SETS, indexers={**by_namespace, **owned}, clock=clock, backoff=BACKOFF
        )
        self.stateful_sets = Informer(client, STATEFUL_SETS, indexers=by_namespace, clock=clock, backoff=BACKOFF)
        self.daemon_sets = Informer(client, DAEMON_SETS, indexers=by_namespace, clock=clock, backoff=BACKOFF)
        self.revisions = Informer(client, CONTROLLER_REVISIONS, indexers=owned, clock=clock, backoff=BACKOFF)

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers of apps/v1."""
        return (self.deployments, self.replica_sets, self.stateful_sets, self.daemon_sets, self.revisions)
