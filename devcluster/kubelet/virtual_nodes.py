# SPDX-License-Identifier: Apache-2.0
"""Wires the virtual nodes of one cluster: registration, kubelet and kubelet server over one client.

Works with the clusters of all providers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio

from devcluster.kubelet.kubelet import Record, VirtualKubelet
from devcluster.kubelet.kubelet_server import KubeletApi, kubelet_server
from devcluster.kubelet.node import NodeKeeper, NodeSpec
from devcluster.kubelet.pod_network import PodNetwork
from multikueue.core.clock import Clock, SystemClock
from multikueue.kube.rest.client import KubeClient


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServing:
    """The settings of the kubelet server: PEM files, and the common name of the API server's client certificate."""

    ca: Path
    certificate: Path
    key: Path
    caller: str

    def pem(self) -> bytes:
        """Certificate and key in one text."""
        return self.certificate.read_bytes() + self.key.read_bytes()


class VirtualNodes:
    """Nodes that run pods as their annotations say."""

    def __init__(
        self,
        client: KubeClient,
        *,
        nodes: Sequence[NodeSpec],
        cluster: str = "",
        logs: LogServing | None = None,
        record: Record | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._clock = clock or SystemClock()
        self._logs = logs
        self._kubelet = VirtualKubelet(
            client,
            cluster=cluster or client.config.name,
            nodes=(node.name for node in nodes),
            clock=self._clock,
            record=record,
        )

    async def run(self) -> None:
        """Register the nodes and run their pods until cancelled."""
        async with AsyncExitStack() as stack:
            port = 0
            if self._logs is not None:
                logs = self._logs
                network = PodNetwork(self._client, self._kubelet.running_pods, clock=self._clock)
                api = KubeletApi(self._kubelet.find_pod, network, clock=self._clock, caller=logs.caller)
                server = kubelet_server(api, pem=logs.pem(), ca=logs.ca.read_bytes())
                port = await stack.enter_async_context(server)
            version = await self._client.server_version()
            keeper = NodeKeeper(
                self._client, self._nodes, clock=self._clock, kubelet_port=port, version=f"{version}-virtual"
            )
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(keeper.run)
            tasks.start_soon(self._kubelet.run)
