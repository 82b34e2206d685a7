# SPDX-License-Identifier: Apache-2.0
"""The hub of a run: an API server, embedded or real, and the manager, each a process; and what was asked of the server.

There are no controllers on it, so that nothing but the manager and the clients of the bench use the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from devcluster.cluster import Cluster
from devcluster.federation import enrolment, roles
from devcluster.manifests import create_all
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.processes.process import Process
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api import crds
from multikueue.api.meta import JsonObject
from multikueue.kube.rest.client import KubeClient
from tests.bench.dispatch import requests_of
from tests.bench.queueing.kueue import StartedManager, running_kueue
from tests.support.embedded_process import embedded_cluster


@dataclass(frozen=True, slots=True)
class BenchHub:
    """Where it is, and its processes."""

    cluster: Cluster
    processes: Mapping[str, int]
    """The process id by name."""
    audit: Path | None
    """The audit log of an embedded server."""
    metrics: str
    """The URL of the manager's metrics."""
    visibility: str = ""
    """The URL of its visibility API, if it is served."""

    async def requests(self, client: KubeClient) -> Counter[str]:
        """Requests so far, by verb and kind; of an embedded server by client, too."""
        if self.audit is None:
            return Counter({f"{verb} {kind}": count for (verb, kind), count in (await requests_of(client)).items()})
        counted: Counter[str] = Counter()
        with self.audit.open("rb") as lines:
            for line in lines:
                counted[_described(orjson.loads(line))] += 1
        return counted


@asynccontextmanager
async def running_bench_hub(
    folder: Path,
    *,
    binaries: bool,
    configuration: Mapping[str, object],
    kueue: Path | None = None,
    job_integrations: bool = False,
    definitions: Sequence[JsonObject] = (),
    visibility: bool = False,
) -> AsyncIterator[BenchHub]:
    """A hub whose manager is ready: ours, or with `kueue` that binary of Kueue's.

    Ours has job integrations if asked for; Kueue has those that the configuration names. `definitions` are of further
    kinds. With `visibility` it serves pending workloads, too.
    """
    async with AsyncExitStack() as stack:
        audit = None if binaries else folder / "audit.jsonl"
        cluster, shared = await (_real(stack, folder) if binaries else _embedded(stack, folder, folder / "audit.jsonl"))
        async with cluster.client() as client:
            await create_all(client, [*crds.manifests(), *definitions, enrolment.system_namespace()])
        ports = stack.enter_context(PortRegistry())
        if kueue is None:
            extra = () if job_integrations else ("--no-job-integrations",)
            manager = await running_manager(
                cluster, folder, configuration, ports=ports, extra=extra, visibility=visibility
            )
            stack.push_async_callback(manager.process.stop)
        else:
            started = running_kueue(
                cluster, kueue, folder=folder, ports=ports, configuration=configuration, visibility=visibility
            )
            manager = await stack.enter_async_context(started)
        parts = [*cluster.components.values(), *shared, manager.process]
        pids = {part.name: part.pid for part in parts if part.pid is not None}
        yield BenchHub(cluster, pids, audit, manager.metrics, manager.visibility)


async def _real(stack: AsyncExitStack, folder: Path) -> tuple[Cluster, list[Process]]:
    provider = await stack.enter_async_context(BinariesProvider(folder=folder))
    spec = ClusterSpec(controllers=False, scheduler=False)
    cluster = await provider.create("hub", folder=folder / "hub", spec=spec)
    return await stack.enter_async_context(cluster), list(provider.shared)


async def _embedded(stack: AsyncExitStack, folder: Path, audit: Path) -> tuple[Cluster, list[Process]]:
    cluster = stack.enter_context(embedded_cluster(folder / "hub", arguments=("--audit", str(audit))))
    return await stack.enter_async_context(cluster), []


async def running_manager(
    cluster: Cluster,
    folder: Path,
    configuration: Mapping[str, object],
    *,
    ports: PortRegistry,
    extra: tuple[str, ...],
    visibility: bool = False,
) -> StartedManager:
    """This project's manager on the cluster, with these sections of its configuration and further arguments."""
    file = folder / "manager.yaml"
    file.write_bytes(orjson.dumps(roles.manager_configuration(configuration)))
    webhooks, metrics, health = (ports.take() for _ in range(3))
    shows = ports.take() if visibility else 0
    spec = roles.manager(
        folder,
        kubeconfig=cluster.kubeconfig,
        configuration=file,
        ports=roles.ManagerPorts(webhooks=webhooks, metrics=metrics, health=health, visibility=shows),
        extra=extra,
    )
    manager = Process(replace(spec, folder=Path(__file__).parents[3]))
    await manager.start()
    return StartedManager(
        manager, roles.metrics_url(configuration, port=metrics), f"https://{LOOPBACK}:{shows}" if shows else ""
    )


def _described(event: dict[str, Any]) -> str:
    about = event.get("objectRef") or {}
    kind = "/".join(filter(None, (about.get("resource", ""), about.get("subresource", ""))))
    client = event["userAgent"].partition("/")[0]
    return f"{client}: {event['verb'].upper()} {kind or event['requestURI'].partition('?')[0]}"
