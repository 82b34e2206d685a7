# SPDX-License-Identifier: Apache-2.0
"""A cluster with virtual nodes, and pods of known programs on them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from devcluster.cluster import KUBELET_CLIENT, Cluster
from devcluster.kubelet.configuration import NodesConfiguration, NodesOfCluster
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import LogServing, VirtualNodes
from devcluster.processes import programs
from devcluster.processes.process import Process, ProcessSpec
from multikueue.api.resource import PODS, SERVICE_ACCOUNTS
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient

AGNHOST: Final = "registry.k8s.io/e2e-test-images/agnhost:2.53"
_SECONDS: Final = 30.0


@dataclass
class VirtualPods:
    """Pods of one cluster; its nodes can be taken away."""

    cluster: Cluster
    client: KubeClient
    nodes: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def make(
        self,
        name: str,
        *args: str,
        namespace: str = "default",
        labels: Mapping[str, str] | None = None,
        phase: str = "Running",
    ) -> str:
        """A pod of the image agnhost, as soon as it is in that phase; gives its address."""
        await self._account(namespace)
        container = {"name": "c", "image": AGNHOST, "args": list(args)}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": dict(labels or {"app": name})},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        await self.client.create(PODS, body, namespace=namespace)
        found = await self.until(name, phase, namespace=namespace)
        return str(found["status"]["podIP"])

    async def until(self, name: str, phase: str, *, namespace: str = "default") -> dict[str, Any]:
        """The pod in that phase."""
        found: dict[str, Any] = {}
        with anyio.move_on_after(_SECONDS):
            while True:
                found = await self.client.get_object(PODS, name, namespace=namespace)
                if found["status"].get("phase") == phase:
                    return found
                await anyio.sleep(0.05)
        raise AssertionError(f"pod {name} is never {phase}: {found.get('status')}")

    async def _account(self, namespace: str) -> None:
        with anyio.fail_after(_SECONDS):
            while True:
                try:
                    await self.client.get(SERVICE_ACCOUNTS, "default", namespace=namespace)
                except NotFound:
                    await anyio.sleep(0.05)
                else:
                    return


@asynccontextmanager
async def virtual_pods(cluster: Cluster) -> AsyncIterator[VirtualPods]:
    """Two virtual nodes of a cluster that runs, in this process."""
    async with cluster.client() as client, anyio.create_task_group() as tasks:
        pods = VirtualPods(cluster, client)

        async def run() -> None:
            with pods.nodes:
                await VirtualNodes(client, nodes=several(2), cluster=cluster.name, logs=log_serving(cluster)).run()

        tasks.start_soon(run)
        yield pods
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def virtual_pods_apart(cluster: Cluster) -> AsyncIterator[VirtualPods]:
    """The same with the nodes in a process of their own, for fixtures that several tests share."""
    folder = cluster.folder
    configuration = NodesConfiguration(
        journal=folder / "journal",
        clusters=[
            NodesOfCluster(
                cluster=cluster.name, kubeconfig=cluster.kubeconfig, nodes=several(2), logs=log_serving(cluster)
            )
        ],
    )
    file = folder / "nodes.json"
    file.write_text(configuration.model_dump_json())
    process = Process(
        ProcessSpec(
            name="nodes",
            arguments=[sys.executable, "-m", programs.NODES, str(file)],
            folder=Path(__file__).parents[2],
            log=folder / "nodes.log",
        )
    )
    await process.start()
    try:
        async with cluster.client() as client:
            yield VirtualPods(cluster, client)
    finally:
        with anyio.CancelScope(shield=True):
            await process.stop()


def log_serving(cluster: Cluster) -> LogServing:
    pki = cluster.folder / "pki"
    return LogServing(
        ca=pki / "ca.crt", certificate=pki / "kubelet.crt", key=pki / "kubelet.key", caller=KUBELET_CLIENT
    )
