# SPDX-License-Identifier: Apache-2.0
"""A worker cluster that the manager reaches by a kubeconfig: an embedded API server behind a proxy.

Owns the server, a node with free capacity, the kubeconfig in its Secret, and a player that lets the jobs on it end.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson

from devcluster import kubeconfigs
from devcluster.apiserver.auth.authentication import Authentication
from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.http.requests import MASTERS, User
from devcluster.apiserver.server import ApiServer
from devcluster.federation import enrolment
from devcluster.pki import new_key
from multikueue.api.resource import JOBS, MULTIKUEUE_CLUSTERS, NAMESPACES, NODES, SECRETS
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import make_node
from tests.support.faulty_proxy import TcpProxy
from tests.support.jobs import finish_job, run_job
from tests.support.managers import Object, ensure, eventually, get, make_namespace

SYSTEM = "kueue-system"
ADMIN = User("admin", (MASTERS, "system:authenticated"))


class PushWorker:
    """One worker cluster and its place on the hub."""

    def __init__(self, hub: KubeClient, name: str, client: KubeClient, proxy: TcpProxy, api: ApiServer) -> None:
        self.hub = hub
        self.name = name
        self.client = client
        self.proxy = proxy
        self._api = api
        self.accept("first")

    @property
    def api(self) -> ApiServer:
        """Its API server."""
        return self._api

    def accept(self, *tokens: str) -> None:
        """Take these tokens for the administrator's, and no others any more."""
        static = dict.fromkeys((*tokens, "own"), ADMIN)
        self._api.authentication = Authentication(
            tokens=self._api.tokens, authorizer=self._api.authorizer, static=static
        )

    def kubeconfig(self, token: str, **cluster: Any) -> Object:
        """How the manager reaches it with that token."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": self.name, "cluster": {"server": f"http://127.0.0.1:{self.proxy.port}", **cluster}},
            ],
            "users": [{"name": "manager", "user": {"token": token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": "manager"}}],
            "current-context": self.name,
        }

    async def enrol(self) -> None:
        """The Secret and the MultiKueueCluster."""
        await ensure(self.hub, NAMESPACES, enrolment.system_namespace())
        await self.hub.create(
            SECRETS,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self.name, "namespace": SYSTEM},
                "data": _data(self.kubeconfig("first")),
            },
            namespace=SYSTEM,
        )
        await self.hub.create(
            MULTIKUEUE_CLUSTERS,
            {
                "apiVersion": MULTIKUEUE_CLUSTERS.api_version,
                "kind": MULTIKUEUE_CLUSTERS.kind,
                "metadata": {"name": self.name},
                "spec": {"clusterSource": {"kubeConfig": {"location": self.name}}},
            },
        )

    async def withdraw(self) -> None:
        """Neither of them any more."""
        for resource, namespace in ((MULTIKUEUE_CLUSTERS, None), (SECRETS, SYSTEM)):
            try:
                await self.hub.delete(resource, self.name, namespace=namespace)
            except NotFound:
                continue

    async def set_kubeconfig(self, kubeconfig: Object) -> None:
        """Put another one into the Secret."""
        await self.hub.patch(SECRETS, self.name, {"data": _data(kubeconfig)}, namespace=SYSTEM)

    async def job(self, name: str, *, namespace: str) -> Object | None:
        """The remote job there."""
        return await get(self.client, JOBS, name, namespace=namespace)

    async def runs(self, name: str, *, namespace: str) -> Object:
        """Wait for the remote job, and give it a running pod."""
        found = await eventually(lambda: self.job(name, namespace=namespace), what=f"{name} is made on {self.name}")
        assert found is not None
        await run_job(self.client, name, namespace=namespace)
        return found

    async def gone(self, name: str, *, namespace: str) -> None:
        """Wait until there is no remote job, and delete its dependents: there is no garbage collector."""

        async def probe() -> Object | None:
            found = await self.job(name, namespace=namespace)
            if found is not None and found["metadata"].get("deletionTimestamp"):
                await self.client.patch(JOBS, name, {"metadata": {"finalizers": None}}, namespace=namespace)
            return found

        await eventually(probe, what=f"{name} is gone from {self.name}", until=lambda seen: seen is None)

    async def finish(self, name: str, *, namespace: str) -> None:
        """The remote job succeeds."""
        await finish_job(self.client, name, namespace=namespace)

    async def play(self, *, namespace: str) -> None:
        """Let every remote job in the namespace succeed at once, until cancelled."""
        done: set[str] = set()
        while True:
            try:
                page = await self.client.list_all(JOBS, namespace=namespace)
                for raw in page.items:
                    name = orjson.loads(raw)["metadata"]["name"]
                    if name not in done:
                        await self.finish(name, namespace=namespace)
                        done.add(name)
            except KubeError:
                await anyio.sleep(0.1)  # a remote job that is deleted meanwhile
            await anyio.sleep(0.02)


@asynccontextmanager
async def push_worker(hub: KubeClient, name: str, *, namespace: str, cpu: str = "64") -> AsyncIterator[PushWorker]:
    """A worker with that namespace, enrolled on the hub."""
    api = ApiServer(signing_key=new_key(), static_tokens={"own": ADMIN})
    async with Listener(api) as listener:
        proxy = TcpProxy(listener.url)
        await proxy.start()
        try:
            own = {
                **kubeconfigs_of(listener.url),
                "users": [{"name": "own", "user": {"token": "own"}}],
            }
            async with KubeClient(credentials.from_dict(own)) as client:
                await make_namespace(client, namespace)
                await make_node(client, f"{name}-node", cpu=cpu)
                # No node controller takes away what a new node is tainted with.
                await client.patch(NODES, f"{name}-node", {"spec": {"taints": None}})
                worker = PushWorker(hub, name, client, proxy, api)
                await worker.enrol()
                yield worker
                # Otherwise the next test's manager would try to reach it.
                await worker.withdraw()
        finally:
            with anyio.CancelScope(shield=True):
                await proxy.close()


def kubeconfigs_of(server: str) -> Object:
    """A kubeconfig of that server, for the user `own`."""
    return {
        "clusters": [{"name": "worker", "cluster": {"server": server}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": "own"}}],
        "current-context": "worker",
    }


def _data(kubeconfig: Object) -> Object:
    return {"kubeconfig": base64.b64encode(kubeconfigs.dump(kubeconfig)).decode()}
