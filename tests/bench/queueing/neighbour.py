# SPDX-License-Identifier: Apache-2.0
"""Another client of the same API server, which creates and reads a ConfigMap at a fixed rate and takes the time."""

from __future__ import annotations

import statistics
from time import monotonic

import anyio

from multikueue.api.resource import CONFIG_MAPS
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from tests.bench.queueing.workloads import NAMESPACE

_EVERY_SECONDS = 0.2


class Neighbour:
    """One request after another, five pairs a second where the server allows it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.seconds: list[float] = []
        self.failed = 0

    async def run(self) -> None:
        """Measure until cancelled."""
        number = 0
        while True:
            number += 1
            name = f"neighbour-{number}"
            began = monotonic()
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            try:
                await self._client.create(CONFIG_MAPS, body, namespace=NAMESPACE)
                await self._client.get(CONFIG_MAPS, name, namespace=NAMESPACE)
            except KubeError:
                self.failed += 1
            self.seconds.append(monotonic() - began)
            await anyio.sleep(max(0.0, _EVERY_SECONDS - (monotonic() - began)))

    def figures(self) -> dict[str, float]:
        """Milliseconds of a pair."""
        ordered = sorted(self.seconds) or [0.0]
        return {
            "pairs": len(self.seconds),
            "failed": self.failed,
            "mean_ms": round(statistics.mean(ordered) * 1000, 1),
            "p50_ms": round(statistics.median(ordered) * 1000, 1),
            "p99_ms": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] * 1000, 1),
        }
