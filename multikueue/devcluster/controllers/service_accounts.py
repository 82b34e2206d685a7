# SPDX-License-Identifier: Apache-2.0
"""What each namespace is born with: the service account `default`, and the cluster's CA in `kube-root-ca.crt`."""

from __future__ import annotations

from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.api.resource import CONFIG_MAPS, SERVICE_ACCOUNTS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.devcluster.controllers.caches import BACKOFF, ROOT_CA_NAME, Caches
from multikueue.kube.client import KubeClient
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import AlreadyExists, Forbidden, NotFound
from multikueue.kube.informer import Change
from multikueue.kube.store import Row
from multikueue.kube.workqueue import WorkQueue

DEFAULT_NAME: Final = "default"
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class ServiceAccounts:
    """Keeps a service account `default` in each namespace."""

    def __init__(self, client: KubeClient, caches: Caches, *, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._controller: Controller[str] = Controller(
            "service-accounts", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.namespaces.add_handler(lambda change: self._controller.enqueue(change.key.name))
        caches.service_accounts.add_handler(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._caches.service_accounts.synced.wait()
        await self._controller.run()

    async def reconcile(self, namespace: str) -> Result | None:
        """Make what is missing in one namespace."""
        if not lives(self._caches.namespaces.store.get(Key("", namespace))):
            return None
        if Key(namespace, DEFAULT_NAME) in self._caches.service_accounts.store:
            return None
        wanted: JsonObject = {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": DEFAULT_NAME, "namespace": namespace},
        }
        await create_once(self._client, wanted, namespace=namespace)
        return None

    def _changed(self, change: Change) -> None:
        if change.new is None and change.key.name == DEFAULT_NAME:
            self._controller.enqueue(change.key.namespace)


class RootCertificates:
    """Keeps the cluster's CA in each namespace."""

    def __init__(self, client: KubeClient, caches: Caches, *, certificate: str, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._certificate = certificate
        self._controller: Controller[str] = Controller(
            "root-certificates", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.namespaces.add_handler(lambda change: self._controller.enqueue(change.key.name))
        caches.root_certificates.add_handler(lambda change: self._controller.enqueue(change.key.namespace))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._caches.root_certificates.synced.wait()
        await self._controller.run()

    async def reconcile(self, namespace: str) -> Result | None:
        """Make or mend the one of a namespace."""
        if not lives(self._caches.namespaces.store.get(Key("", namespace))):
            return None
        found = self._caches.root_certificates.store.object(Key(namespace, ROOT_CA_NAME))
        data = {"ca.crt": self._certificate}
        if found is None:
            wanted: JsonObject = {
                "apiVersion": CONFIG_MAPS.api_version,
                "kind": CONFIG_MAPS.kind,
                "metadata": {
                    "name": ROOT_CA_NAME,
                    "namespace": namespace,
                    "annotations": {"kubernetes.io/description": _DESCRIPTION},
                },
                "data": data,
            }
            await create_once(self._client, wanted, namespace=namespace)
        elif found.get("data") != data:
            metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
            await self._client.patch(
                CONFIG_MAPS, ROOT_CA_NAME, {"metadata": metadata, "data": data}, namespace=namespace
            )
        return None


def lives(namespace: Row | None) -> bool:
    """Whether the namespace is there and stays."""
    return namespace is not None and not namespace.deleting


async def create_once(client: KubeClient, wanted: JsonObject, *, namespace: str) -> None:
    """Create what somebody else may have created, in a namespace that may be about to go."""
    resource = CONFIG_MAPS if wanted["kind"] == CONFIG_MAPS.kind else SERVICE_ACCOUNTS
    try:
        await client.create(resource, wanted, namespace=namespace)
    except (AlreadyExists, NotFound):
        return  # the watch tells the rest
    except Forbidden as error:
        if "being terminated" not in str(error):
            raise
