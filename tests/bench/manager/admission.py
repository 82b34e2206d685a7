# SPDX-License-Identifier: Apache-2.0
"""How many Workloads a second the manager admits on a real API server, without jobs, webhooks or checks.

Creates Workloads in eight queues whose quota holds them all, then starts the manager, and prints the rate from its
first admission to its last, the wall time from its start, and the requests it sent for each Workload. The API server
and the manager share the machine.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import monotonic

import anyio

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.api.resource import WORKLOADS
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.rest.client import KubeClient
from tests.bench.figure import Better, FigureShape
from tests.support.managers import eventually, is_true, make_queue, running_manager

_WORKLOADS = 2000
_QUEUES = 8
_CREATORS = 16


FIGURES = (
    FigureShape("admitted_per_second", "/s", better=Better.HIGHER),
    FigureShape("seconds_from_start", "s"),
    FigureShape("status_applies_per_workload", ""),
)


def main() -> dict[str, float]:
    """The figures."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with BinariesProvider(folder=Path(folder)) as provider:
            spec = ClusterSpec(controllers=False, scheduler=False, manifests=manifests())
            cluster = await provider.create("bench", folder=Path(folder) / "bench", spec=spec)
            async with cluster, cluster.client() as client:
                for number in range(_QUEUES):
                    await make_queue(client, f"q{number}", namespace=f"ns{number}", cpu=str(_WORKLOADS))
                await _create(client)
                seen: dict[str, float] = {}
                began = monotonic()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_follow, client, seen)
                    async with running_manager(cluster, webhooks=False, job_integrations=False) as manager:
                        await eventually(
                            lambda: _count(seen), what="all are admitted", deadline=300, until=lambda n: n >= _WORKLOADS
                        )
                        sent = sum(
                            count for (verb, _), count in manager.statuses.requests_sent.items() if verb == "APPLY"
                        )
                    tasks.cancel_scope.cancel()
    times = sorted(seen.values())
    return {
        "workloads": _WORKLOADS,
        "admitted_per_second": round(_WORKLOADS / (times[-1] - times[0]), 1),
        "seconds_from_start": round(times[-1] - began, 2),
        "status_applies_per_workload": round(sent / _WORKLOADS, 2),
    }


async def _create(client: KubeClient) -> None:
    async def some(first: int) -> None:
        for number in range(first, _WORKLOADS, _CREATORS):
            namespace = f"ns{number % _QUEUES}"
            body = {
                "apiVersion": WORKLOADS.api_version,
                "kind": WORKLOADS.kind,
                "metadata": {"name": f"w{number}", "namespace": namespace},
                "spec": {
                    "queueName": f"q{number % _QUEUES}",
                    "priority": 0,
                    "podSets": [
                        {
                            "name": "main",
                            "count": 1,
                            "template": {
                                "spec": {
                                    "restartPolicy": "Never",
                                    "containers": [
                                        {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
                                    ],
                                }
                            },
                        }
                    ],
                },
            }
            await client.create(WORKLOADS, body, namespace=namespace)

    async with anyio.create_task_group() as tasks:
        for first in range(_CREATORS):
            tasks.start_soon(some, first)


async def _count(seen: dict[str, float]) -> int:
    return len(seen)


async def _follow(client: KubeClient, seen: dict[str, float]) -> None:
    informer = Informer(client, WORKLOADS)

    def changed(change: Change) -> None:
        if change.new is not None and is_true(change.new.object(), "Admitted"):
            seen.setdefault(str(change.key), monotonic())

    informer.add_handler(changed)
    await informer.run()
