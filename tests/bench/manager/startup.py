# SPDX-License-Identifier: Apache-2.0
"""How long the manager takes to be ready on a real API server, and how much memory it holds then.

The median of five starts: seconds from fork to /readyz 200, resident MiB two seconds later, and seconds from SIGTERM to
the end. Goals: ready within 1 s, at most 120 MiB.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from tests.bench import starting
from tests.support.managers import free_port

FIGURES = starting.FIGURES


def main() -> dict[str, float]:
    """The figures."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with BinariesProvider(folder=Path(folder)) as provider:
            spec = ClusterSpec(controllers=False, scheduler=False, manifests=manifests())
            cluster = await provider.create("bench", folder=Path(folder) / "bench", spec=spec)
            async with cluster:
                health = free_port()
                command = (
                    *(sys.executable, "-m", "manager", f"--kubeconfig={cluster.kubeconfig}"),
                    *(f"--health-bind=127.0.0.1:{health}", "--metrics-bind=127.0.0.1:0"),
                    f"--webhook-url=https://127.0.0.1:{free_port()}",
                )
                return await starting.figures(command, health=health)
