# SPDX-License-Identifier: Apache-2.0
"""Creates the default objects of each namespace: service account `default` and ConfigMap `kube-root-ca.crt`."""

from __future__ import annotations

from typing import Final

from devcluster.controllers.caches import BACKOFF, ROOT_CA_NAME, ControllerCaches
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CONFIG_MAPS, SERVICE_ACCOUNTS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import AlreadyExists, Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

DEFAULT_NAME: Final = "default"
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class ServiceAccounts:
    """Maintains the service account `default` in each namespace."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._controller: Controller[str] = Controller(
            "service-accounts", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.namespaces.add_handler(lambda change: self._controller.enqueue(change.key.name))
        caches.service_accounts.add_handler(self._changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.service_accounts.synced.wait()
        await self._controller.run()

    async def reconcile(self, namespace: str) -> Result | None:
        """Create the service account if it is missing."""
        if not is_active_namespace(self._caches.namespaces.store.get(Key("", namespace))):
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
    """Maintains the cluster's CA certificate in each namespace."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, certificate: str, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._certificate = certificate
        self._controller: Controller[str] = Controller(
            "root-certificates", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.namespaces.add_handler(lambda change: self._controller.enqueue(change.key.name))
        caches.root_certificates.add_handler(lambda change: self._controller.enqueue(change.key.namespace))

    async def run(self) -> None:
        """Run until cancelled."""
        await self._caches.root_certificates.synced.wait()
        await self._controller.run()

    async def reconcile(self, namespace: str) -> Result | None:
        """Create or update the ConfigMap of one namespace."""
        if not is_active_namespace(self._caches.namespaces.store.get(Key("", namespace))):
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


def is_active_namespace(namespace: Row | None) -> bool:
    """Whether the namespace exists and is not terminating."""
    return namespace is not None and not namespace.deleting


async def create_once(client: KubeClient, wanted: JsonObject, *, namespace: str) -> None:
    """Create an object that may already exist, in a namespace that may be terminating."""
    resource = CONFIG_MAPS if wanted["kind"] == CONFIG_MAPS.kind else SERVICE_ACCOUNTS
    try:
        await client.create(resource, wanted, namespace=namespace)
    except (AlreadyExists, NotFound):
        return  # exists, or the namespace was deleted
    except Forbidden as error:
        if "being terminated" not in str(error):
            raise
