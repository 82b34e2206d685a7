# SPDX-License-Identifier: Apache-2.0
"""The virtual nodes of one cluster as one thing to run.

Owns the composition: keeper, kubelet and log server over one client. Works on any cluster that a client reaches,
whichever provider made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio

from multikueue.core.clock import Clock, SystemClock
from multikueue.devcluster.nodes.kubelet import Record, VirtualKubelet
from multikueue.devcluster.nodes.log_server import log_server
from multikueue.devcluster.nodes.node import NodeKeeper, NodeSpec
from multikueue.kube.client import KubeClient


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServing:
    """What the log server needs: PEM files, and the common name of the API server's client certificate."""

    ca: Path
    certificate: Path
    key: Path
    caller: str

    def pem(self) -> bytes:
        """Certificate and key in one text."""
        return self.certificate.read_bytes() + self.key.read_bytes()


class VirtualNodes:
    """Nodes that run pods as their annotations tell."""

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
                server = log_server(self._kubelet.story, pem=logs.pem(), ca=logs.ca.read_bytes(), caller=logs.caller)
                port = await stack.enter_async_context(server)
            version = await self._client.server_version()
            keeper = NodeKeeper(
                self._client, self._nodes, clock=self._clock, kubelet_port=port, version=f"{version}-virtual"
            )
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(keeper.run)
            tasks.start_soon(self._kubelet.run)
