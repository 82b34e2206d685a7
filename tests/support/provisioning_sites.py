# SPDX-License-Identifier: Apache-2.0
"""Worker clusters with ProvisioningRequests, on embedded API servers or on real ones that several tests share.

Owns the servers, the agents, which can be disconnected and restarted, and what a test leaves on shared servers.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, Protocol

import anyio
import orjson

from devcluster import kubeconfigs
from devcluster.apiserver.http.listener import Listener
from devcluster.cluster import ADMIN_GROUP, Cluster
from devcluster.federation import enrolment
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    NODES,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import QUICK, make_node
from tests.support.embedded import api_server
from tests.support.faulty_proxy import TcpProxy
from tests.support.hubs import Hub, running_hub
from tests.support.managers import Object, ensure, eventually, get, make_namespace
from tests.support.provisioning import ProvisioningScene, install_definition
from tests.support.push_workers import SYSTEM, kubeconfigs_of, push_worker
from tests.support.workers import FakeWorker
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals

NAMESPACE: Final = "growing"
_ON_HUB: Final = (
    CLUSTER_QUEUES,
    ADMISSION_CHECKS,
    PROVISIONING_REQUEST_CONFIGS,
    MULTIKUEUE_CONFIGS,
    MULTIKUEUE_CLUSTERS,
)


@dataclass
class ProvisioningSite:
    """One worker cluster, whose agent can be disconnected."""

    name: str
    client: KubeClient
    hub: KubeClient
    proxy: TcpProxy | None = None
    """What the manager reaches it through, with push."""
    intervals: AgentIntervals = QUICK
    _scopes: list[anyio.CancelScope] = field(default_factory=list)
    _again: anyio.Event = field(default_factory=anyio.Event)

    @property
    def autoscaler(self) -> ProvisioningScene:
        """What the test answers there."""
        return ProvisioningScene(self.client, NAMESPACE)

    async def serve(self, worker: KubeClient) -> None:
        """Run its agent whenever it is connected."""
        while True:
            with anyio.CancelScope() as scope:
                self._scopes.append(scope)
                await Agent(self.hub, worker, cluster=self.name, intervals=self.intervals, random=Random(1)).run()
            await self._again.wait()

    async def reconnect(self) -> None:
        """Connect it again: a new agent, or the manager reaches it."""
        if self.proxy is not None:
            await self.proxy.start()
        self._again.set()

    async def disconnect(self) -> None:
        """Cut it off: the agent ends, or the manager cannot reach it."""
        if self.proxy is not None:
            await self.proxy.refuse()
        self._again = anyio.Event()
        for scope in self._scopes:
            scope.cancel()

    async def restart(self) -> None:
        """Its agent ends and another one starts, or each connection of the manager is reset."""
        await self.disconnect()
        await self.reconnect()

    async def job(self) -> Object | None:
        """The remote job."""
        return await get(self.client, JOBS, "j", namespace=NAMESPACE)


class Servers(Protocol):
    """Where a hub and its workers come from."""

    def hub(self) -> AbstractAsyncContextManager[Cluster]:
        """The hub, with our kinds."""

    def site(
        self, hub: Cluster, client: KubeClient, name: str, transport: str, *, able: bool
    ) -> AbstractAsyncContextManager[ProvisioningSite]:
        """A worker with a node of 1 cpu, enrolled, and its agent; `able`: ProvisioningRequests are installed."""

    def names(self) -> tuple[str, str]:
        """What the workers are called."""

    @property
    def intervals(self) -> AgentIntervals:
        """Of the agents."""


class EmbeddedServers:
    """New ones for each test."""

    def __init__(self, *, database: Path | None = None) -> None:
        self._database = database
        self.running: Hub | None = None
        """The hub while it runs, which a test may restore."""

    def names(self) -> tuple[str, str]:
        """What the workers are called."""
        return "w1", "w2"

    @property
    def intervals(self) -> AgentIntervals:
        """Of the agents."""
        return QUICK

    @asynccontextmanager
    async def hub(self) -> AsyncIterator[Cluster]:
        """The hub, with our kinds."""
        async with running_hub(database=self._database) as hub:
            self.running = hub
            yield hub.as_cluster

    @asynccontextmanager
    async def site(
        self, hub: Cluster, client: KubeClient, name: str, transport: str, *, able: bool
    ) -> AsyncIterator[ProvisioningSite]:
        """A worker with a node of 1 cpu, enrolled, and its agent; `able`: ProvisioningRequests are installed."""
        if transport == "push":
            async with push_worker(client, name, namespace=NAMESPACE, cpu="1") as worker:
                if able:
                    await install_definition(worker.client)
                yield ProvisioningSite(name, worker.client, client, proxy=worker.proxy)
            return
        async with Listener(api_server()) as listener, AsyncExitStack() as stack:
            where = credentials.from_dict({**kubeconfigs_of(listener.url), "users": [{"name": "own", "user": {}}]})
            own, of_agent = [await stack.enter_async_context(KubeClient(where)) for _ in range(2)]
            await make_namespace(own, NAMESPACE)
            if able:
                await install_definition(own)
            yield await stack.enter_async_context(_pulled(hub, client, name, own, of_agent, self.intervals))


class RealServers:
    """Real API servers that the tests of a session share: each test removes what it made."""

    def __init__(self, hub: Cluster, workers: Sequence[Cluster]) -> None:
        self._hub = hub
        self._workers = list(workers)
        self._numbers = count(1)
        self._free: dict[str, Cluster] = {}

    @property
    def intervals(self) -> AgentIntervals:
        """With a longer lease: on a busy machine a real server may need seconds to answer."""
        return replace(QUICK, lease_seconds=20, renew_seconds=1.0)

    def names(self) -> tuple[str, str]:
        """Others for each test, since a cluster that was removed leaves its mailbox for a while."""
        number = next(self._numbers)
        first, second = f"w1-{number}", f"w2-{number}"
        self._free = dict(zip((first, second), self._workers, strict=True))
        return first, second

    @asynccontextmanager
    async def hub(self) -> AsyncIterator[Cluster]:
        """The hub, with our kinds; what a test made there is removed before its manager ends."""
        yield self._hub

    @asynccontextmanager
    async def site(
        self, hub: Cluster, client: KubeClient, name: str, transport: str, *, able: bool
    ) -> AsyncIterator[ProvisioningSite]:
        """A worker with a node of 1 cpu, enrolled, and its agent."""
        assert able, "ProvisioningRequests are installed on all of them"
        cluster = self._free[name]
        async with AsyncExitStack() as stack:
            own, of_agent = [await stack.enter_async_context(cluster.client()) for _ in range(2)]
            await make_namespace(own, NAMESPACE)
            try:
                if transport == "push":
                    yield await stack.enter_async_context(_pushed(client, cluster, name, own))
                else:
                    site = await stack.enter_async_context(_pulled(hub, client, name, own, of_agent, self.intervals))
                    yield site
            finally:
                with anyio.CancelScope(shield=True):
                    for resource in (JOBS, PROVISIONING_REQUESTS, POD_TEMPLATES):
                        await _remove_all(own, resource, namespace=NAMESPACE)
                    await _remove_all(own, NODES)


async def leave_nothing(client: KubeClient) -> None:
    """Remove what a test made on the hub; its manager still runs, and lets go of it."""
    for resource in (JOBS, WORKLOADS, LOCAL_QUEUES):
        await _remove_all(client, resource, namespace=NAMESPACE)
    for resource in _ON_HUB:
        await _remove_all(client, resource)


async def _remove_all(client: KubeClient, resource: Resource, *, namespace: str | None = None) -> None:
    async def probe() -> list[str]:
        names = []
        for raw in (await client.list_all(resource, namespace=namespace)).items:
            metadata = orjson.loads(raw)["metadata"]
            names.append(metadata["name"])
            try:
                if "deletionTimestamp" not in metadata:
                    await client.delete(resource, metadata["name"], namespace=namespace, propagation="Background")
                elif resource is JOBS:  # no garbage collector runs
                    patch = {"metadata": {"finalizers": None}}
                    await client.patch(resource, metadata["name"], patch, namespace=namespace)
            except NotFound:
                continue
        return names

    await eventually(probe, what=f"all {resource.plural} are removed", until=lambda names: not names)


@asynccontextmanager
async def _pulled(
    hub: Cluster, client: KubeClient, name: str, own: KubeClient, of_agent: KubeClient, intervals: AgentIntervals
) -> AsyncIterator[ProvisioningSite]:
    await FakeWorker(client, name).enrol()
    await _make_small_node(own, name)
    async with hub.client() as to_hub, anyio.create_task_group() as tasks:
        site = ProvisioningSite(name, own, to_hub, intervals=intervals)
        tasks.start_soon(site.serve, of_agent)
        yield site
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _pushed(client: KubeClient, cluster: Cluster, name: str, own: KubeClient) -> AsyncIterator[ProvisioningSite]:
    proxy = TcpProxy(cluster.server)
    await proxy.start()
    try:
        await _make_small_node(own, name)
        await ensure(client, NAMESPACES, enrolment.system_namespace())
        config = cluster.issue_client_certificate("manager-of-hub", [ADMIN_GROUP])
        config["clusters"][0]["cluster"]["server"] = proxy.url
        data = {"kubeconfig": base64.b64encode(kubeconfigs.dump(config)).decode()}
        metadata = {"name": name, "namespace": SYSTEM}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        await client.create(SECRETS, secret, namespace=SYSTEM)
        body = {
            "apiVersion": MULTIKUEUE_CLUSTERS.api_version,
            "kind": MULTIKUEUE_CLUSTERS.kind,
            "metadata": {"name": name},
            "spec": {"clusterSource": {"kubeConfig": {"location": name}}},
        }
        await client.create(MULTIKUEUE_CLUSTERS, body)
        yield ProvisioningSite(name, own, client, proxy=proxy)
    finally:
        with anyio.CancelScope(shield=True):
            await proxy.close()


async def _make_small_node(client: KubeClient, name: str) -> None:
    await make_node(client, f"{name}-node", cpu="1")
    # No node controller takes away what a new node is tainted with.
    await client.patch(NODES, f"{name}-node", {"spec": {"taints": None}})
