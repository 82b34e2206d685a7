# SPDX-License-Identifier: Apache-2.0
"""How long an agent takes to be ready between two real API servers, and how much memory it holds then.

The median of five starts as `tests/bench/starting.py` takes them. The agent has the identity that a worker's has, and
its mailbox is there. Goals: ready within 1 s, at most 120 MiB.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import yaml

from devcluster.federation.enrolment import agent_user
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import AGENT_GROUP
from multikueue.api.crds import manifests
from tests.bench import starting
from tests.support.agents import make_mailbox
from tests.support.managers import free_port

FIGURES = starting.FIGURES


def main() -> dict[str, float]:
    """The figures."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with BinariesProvider(folder=Path(folder)) as provider:
            spec = ClusterSpec(controllers=False, scheduler=False, manifests=manifests())
            hub = await provider.create("hub", folder=Path(folder) / "hub", spec=spec)
            worker = await provider.create("worker", folder=Path(folder) / "worker", spec=spec)
            async with hub, worker, hub.client() as client:
                await make_mailbox(client, "worker")
                identity = Path(folder) / "agent.kubeconfig"
                identity.write_text(yaml.safe_dump(hub.issue_client_certificate(agent_user("worker"), [AGENT_GROUP])))
                health = free_port()
                command = (
                    *(sys.executable, "-m", "worker_agent", "--cluster=worker", f"--hub-kubeconfig={identity}"),
                    *(f"--kubeconfig={worker.kubeconfig}", f"--health-bind=127.0.0.1:{health}"),
                )
                return await starting.figures(command, health=health)
