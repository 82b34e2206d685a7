# SPDX-License-Identifier: Apache-2.0
"""The informers that several controllers share, and the keys under which they find what belongs together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import anyio

from multikueue.api.objects import JsonObject
from multikueue.api.resource import CONFIG_MAPS, JOBS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.kube.client import KubeClient
from multikueue.kube.informer import Informer

BY_CONTROLLER: Final = "controller"
"""Pods by the uid of their controller."""
BY_NAMESPACE: Final = "namespace"
ROOT_CA_NAME: Final = "kube-root-ca.crt"
# A cluster of one's own comes back within moments when it is restarted; its controllers should be back as soon.
BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=2.0, jitter=0.5)


class Caches:
    """One informer for each kind that is looked at whole."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self.namespaces = Informer(client, NAMESPACES, clock=clock, backoff=BACKOFF)
        self.nodes = Informer(client, NODES, clock=clock, backoff=BACKOFF)
        self.jobs = Informer(client, JOBS, clock=clock, backoff=BACKOFF)
        indexers = {BY_CONTROLLER: controllers, BY_NAMESPACE: _namespaces}
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
        """Run what one controller alone follows with the others."""
        self._informers += informers

    @property
    def all(self) -> Sequence[Informer]:
        """Each of them."""
        return tuple(self._informers)

    @property
    def synced(self) -> bool:
        """Whether each has been listed."""
        return all(informer.synced.is_set() for informer in self.all)

    async def wait(self) -> None:
        """Until each has been listed: what is absent before may only not have been read yet."""
        for informer in self.all:
            await informer.synced.wait()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with anyio.create_task_group() as tasks:
            for informer in self.all:
                tasks.start_soon(informer.run)


def controller_of(obj: JsonObject) -> JsonObject | None:
    """The owner reference of the object's controller."""
    owners: list[JsonObject] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def controllers(obj: JsonObject) -> Iterator[str]:
    """The index of what belongs to a controller, by its uid."""
    owner = controller_of(obj)
    if owner is not None:
        yield owner["uid"]


def _namespaces(obj: JsonObject) -> Iterator[str]:
    yield obj["metadata"]["namespace"]
