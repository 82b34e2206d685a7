# SPDX-License-Identifier: Apache-2.0
"""Worker clusters with agents of their own: embedded API servers, enrolled on a real hub.

Owns the server, its node, the two clients of an agent, and a player that lets remote jobs run for a moment and end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import anyio
import orjson

from devcluster.apiserver.http.listener import Listener
from devcluster.cluster import Cluster
from multikueue.api.resource import JOBS, NODES
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import agent_client, make_node
from tests.support.embedded import api_server
from tests.support.jobs import running_status, succeeded_status
from tests.support.managers import make_namespace
from tests.support.push_workers import kubeconfigs_of
from tests.support.workers import FakeWorker
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals

INTERVALS = AgentIntervals(renew_seconds=2.0, lease_seconds=10, report_seconds=1.0, status_window_seconds=0.2)


@dataclass
class PullWorker:
    """A worker cluster with its agent's two clients; `run_for` is how long a remote job runs."""

    name: str
    namespace: str
    client: KubeClient
    to_hub: KubeClient
    to_worker: KubeClient
    listener: Listener
    intervals: AgentIntervals = INTERVALS
    run_for: float = 3 * INTERVALS.status_window_seconds
    ran: list[str] = field(default_factory=list)

    def agent(self) -> Agent:
        """Its agent, to be run."""
        return Agent(self.to_hub, self.to_worker, cluster=self.name, intervals=self.intervals, random=Random(1))

    async def empty(self) -> bool:
        """Whether no remote job is left."""
        return not (await self.client.list_all(JOBS, namespace=self.namespace)).items

    async def let_run(self) -> None:
        """Let each remote job run, and end a moment later, until cancelled."""
        async with anyio.create_task_group() as tasks:
            met: set[str] = set()
            while True:
                for raw in (await self.client.list_all(JOBS, namespace=self.namespace)).items:
                    metadata = orjson.loads(raw)["metadata"]
                    if metadata["uid"] not in met:
                        met.add(metadata["uid"])
                        self.ran.append(metadata["name"])
                        tasks.start_soon(self._run, metadata["name"])
                await anyio.sleep(0.02)

    async def _run(self, name: str) -> None:
        running = running_status()
        await self._say(name, running | {"ready": 0})
        await self._say(name, running)
        await anyio.sleep(self.run_for)
        await self._say(name, succeeded_status())

    async def _say(self, name: str, status: dict[str, object]) -> None:
        try:
            await self.client.patch(JOBS, name, {"status": status}, namespace=self.namespace, subresource="status")
        except NotFound:
            return  # removed while it ran


@asynccontextmanager
async def pull_worker(
    hub: Cluster, admin: KubeClient, name: str, *, namespace: str, cpu: str = "64"
) -> AsyncIterator[PullWorker]:
    """A worker cluster of one node with that namespace, enrolled; its agent does not run yet."""
    await FakeWorker(admin, name).enrol()
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(Listener(api_server()))
        where = credentials.from_dict({**kubeconfigs_of(listener.url), "users": [{"name": "own", "user": {}}]})
        clients = [await stack.enter_async_context(KubeClient(where)) for _ in range(2)]
        to_hub = await stack.enter_async_context(agent_client(hub, name))
        await make_namespace(clients[0], namespace)
        await make_node(clients[0], f"{name}-node", cpu=cpu)
        # No node controller takes away what a new node is tainted with.
        await clients[0].patch(NODES, f"{name}-node", {"spec": {"taints": None}})
        yield PullWorker(name, namespace, clients[0], to_hub, clients[1], listener)
