# SPDX-License-Identifier: Apache-2.0
"""A management cluster inside the test that can be lost: killed, replaced at the same address, restored from a backup.

Owns an embedded API server behind a port that stays the same. Everybody who comes is its administrator; what an agent
may do is tested elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import cast

from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.storage.durable import SqliteJournal
from devcluster.cluster import Cluster
from multikueue.api.crds import manifests
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, NODES
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import make_node
from tests.support.embedded import api_server
from tests.support.managers import free_port, make_namespace
from tests.support.pull_workers import PullWorker
from tests.support.push_workers import kubeconfigs_of
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals

QUICK = AgentIntervals(
    renew_seconds=0.2, lease_seconds=5, report_seconds=1.0, status_window_seconds=0.1, gc_seconds=1.0
)


class Hub:
    """One address, and whatever serves there."""

    def __init__(self) -> None:
        self._port = free_port()
        self._listener: Listener | None = None

    @property
    def api(self) -> ApiServer:
        """What serves now."""
        assert self._listener is not None, "it was started"
        return self._listener.api

    @property
    def as_cluster(self) -> Cluster:
        """For what wants a `Cluster` and only asks it for clients."""
        return cast(Cluster, self)

    def client(self) -> KubeClient:
        """An administrator."""
        own = {**kubeconfigs_of(f"http://127.0.0.1:{self._port}"), "users": [{"name": "own", "user": {}}]}
        return KubeClient(credentials.from_dict(own))

    async def start(self, *, database: Path | None = None, restored: bool = False) -> None:
        """An empty one with our kinds, which keeps its objects in that file; or the one whose objects are there."""
        journal = None if database is None else SqliteJournal(database)
        self._listener = Listener(api_server(journal=journal), port=self._port)
        await self._listener.start()
        if restored:
            return
        async with self.client() as client:
            for definition in manifests():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)

    async def stop(self) -> None:
        """It is gone, with everything in it."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
            await listener.api.close()


@asynccontextmanager
async def running_hub(*, database: Path | None = None) -> AsyncIterator[Hub]:
    """A hub, stopped in the end, whichever serves then."""
    hub = Hub()
    await hub.start(database=database)
    try:
        yield hub
    finally:
        await hub.stop()


@asynccontextmanager
async def worker_of(hub: Hub, name: str, *, namespace: str, database: Path | None = None) -> AsyncIterator[PullWorker]:
    """A worker with a node and that namespace, whose agent will connect to that hub; it is not enrolled yet."""
    journal = None if database is None else SqliteJournal(database)
    async with Listener(api_server(journal=journal)) as listener, hub.client() as to_hub:
        where = credentials.from_dict({**kubeconfigs_of(listener.url), "users": [{"name": "own", "user": {}}]})
        async with KubeClient(where) as client, KubeClient(where) as to_worker:
            await make_namespace(client, namespace)
            await make_node(client, f"{name}-node", cpu="64")
            # No node controller takes away what a new node is tainted with.
            await client.patch(NODES, f"{name}-node", {"spec": {"taints": None}})
            yield PullWorker(name, namespace, client, to_hub, to_worker, listener)


def agent_of(worker: PullWorker) -> Agent:
    """Its agent, quick enough for a test."""
    return Agent(worker.to_hub, worker.to_worker, cluster=worker.name, intervals=QUICK, random=Random(1))
