# SPDX-License-Identifier: Apache-2.0
"""The manager installed on every cluster of a federation, as clients of Kueue expect it.

Owns the control-plane nodes, the manager's pods and their addresses; the cluster's controllers roll the Deployment out.
Everything runs in one task, so that it can be stopped from another cancel scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urlsplit

import anyio

from devcluster.cluster import Cluster
from devcluster.errors import TimedOut
from devcluster.federation.installed import objects
from devcluster.federation.installed.forwarding import NamedServers, PodsService
from devcluster.federation.installed.kind_names import CONTROL_PLANE_PORT, control_plane_node
from devcluster.federation.installed.manager_pods import ManagerPods
from devcluster.kubelet.node import NodeKeeper, NodeSpec
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.processes.forkserver import ForkServer
from devcluster.processes.process import Process
from devcluster.resources import DEPLOYMENTS
from devcluster.together import first_cause
from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.core.clock import SystemClock

_AVAILABLE_WITHIN: Final = 60.0
_POLL_SECONDS: Final = 0.05


class InstalledManagers:
    """The managers of a federation's clusters, from `start` to `stop`."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        *,
        kind_clusters: Mapping[str, str],
        ports: PortRegistry,
        forks: ForkServer | None,
        changed: Callable[[], None],
    ) -> None:
        """`kind_clusters` maps clusters to kind's names; `changed` is called when a manager starts or ends."""
        self._clusters = clusters
        self._kind_clusters = kind_clusters
        self._ports = ports
        self._forks = forks
        self._changed = changed
        self._pods: dict[str, ManagerPods] = {}
        self._task: asyncio.Task[None] | None = None

    def processes(self) -> Iterator[tuple[str, Process]]:
        """The manager processes with the name of their cluster."""
        for cluster, pods in self._pods.items():
            for process in pods.processes():
                yield cluster, process

    async def start(self) -> None:
        """Start, and wait until the Deployment of each cluster is available. Raises `TimedOut`."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="installed managers")
        for cluster in self._clusters:
            await self._wait_until_available(cluster)

    async def stop(self) -> None:
        """Stop every manager; no effect if nothing was started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def wait(self) -> None:
        """Wait until cancelled. Raises the error of the task if it fails."""
        if self._task is not None:
            await asyncio.wait([self._task])
            self._raise_failure(self._task)

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            servers = {
                f"{control_plane_node(self._kind_clusters[cluster.name])}:{CONTROL_PLANE_PORT}": (
                    LOOPBACK,
                    urlsplit(cluster.server).port or 443,
                )
                for cluster in self._clusters
            }
            named = await stack.enter_async_context(NamedServers(self._ports.take(), servers))
            clients = {each.name: await stack.enter_async_context(each.client()) for each in self._clusters}
            tasks = await stack.enter_async_context(anyio.create_task_group())
            for cluster in self._clusters:
                client = clients[cluster.name]
                node = control_plane_node(self._kind_clusters[cluster.name])
                webhooks, visibility = (self._ports.take() for _ in range(2))
                pods = ManagerPods(
                    cluster,
                    client,
                    node=node,
                    webhook_url=f"https://{LOOPBACK}:{webhooks}",
                    visibility_url=f"https://{LOOPBACK}:{visibility}",
                    ports=self._ports,
                    forks=self._forks,
                    environment=named.environment,
                    changed=self._changed,
                )
                self._pods[cluster.name] = pods
                await stack.enter_async_context(PodsService(webhooks, pods.webhook_ports))
                await stack.enter_async_context(PodsService(visibility, pods.visibility_ports))
                version = await client.server_version()
                keeper = NodeKeeper(
                    client, [_control_plane(node)], clock=SystemClock(), kubelet_port=0, version=f"{version}-virtual"
                )
                tasks.start_soon(keeper.run)
                tasks.start_soon(pods.run)
            await anyio.sleep_forever()

    async def _wait_until_available(self, cluster: Cluster) -> None:
        found = "it has no status"
        async with cluster.client() as client:
            with anyio.move_on_after(_AVAILABLE_WITHIN):
                while True:
                    assert self._task is not None
                    self._raise_failure(self._task)
                    deployment = await client.get_object(DEPLOYMENTS, objects.DEPLOYMENT, namespace=DEFAULT_NAMESPACE)
                    status = deployment.get("status") or {}
                    conditions = {each["type"]: each for each in status.get("conditions") or []}
                    available = conditions.get("Available", {"status": "False", "message": found})
                    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
                    if seen and (available["status"] == "True" or deployment["spec"]["replicas"] == 0):
                        return
                    found = available["message"]
                    await anyio.sleep(_POLL_SECONDS)
        logs = ", ".join(str(process.log) for process in self._pods[cluster.name].processes()) or "none yet"
        raise TimedOut(
            f"cluster {cluster.name}: Deployment {objects.DEPLOYMENT} is not available after"
            f" {_AVAILABLE_WITHIN:.0f} s: {found}; logs: {logs}"
        )

    def _raise_failure(self, task: asyncio.Task[None]) -> None:
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                raise first_cause(error)


def _control_plane(node: str) -> NodeSpec:
    taint = {"key": objects.CONTROL_PLANE_LABEL, "value": "", "effect": "NoSchedule"}
    return NodeSpec(name=node, labels={objects.CONTROL_PLANE_LABEL: ""}, taints=[taint])
