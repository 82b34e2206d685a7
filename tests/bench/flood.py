# SPDX-License-Identifier: Apache-2.0
"""What a flood of one tenant costs another: the time of a Job from its creation to its remote job on a worker.

Measured three times in one run on one federation of processes (manager and agents as they are installed): quiet, while
another tenant creates all of its Jobs (`tests.bench.flooding`, a process of its own), and after they are there, while
their statuses and the large ones among them change. The goal is a ratio of at most 3 to the quiet latency.

The floor is printed too: a ConfigMap that the same tenant creates and sees on a watch, which only the API server
takes part in. What the manager and the agents take is the rest of a Job's way, `ours`: from the created Job to its
remote job. `python -m tests.bench.flood --jobs 20000` is the whole flood, `--binaries` on real API servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from devcluster import kubeconfigs
from devcluster.cluster import Cluster
from devcluster.federation.federation import Federation
from devcluster.federation.spec import FederationSpec
from devcluster.manifests import create_all, read
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ProviderFactory
from multikueue.api.resource import CONFIG_MAPS, JOBS, WORKLOADS, Resource
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.bench import flooding
from tests.bench.cpu import cpu_seconds_by_process
from tests.bench.figure import Better, FigureShape
from tests.bench.following import follow
from tests.bench.queueing.processes import cpu_seconds
from tests.support.managers import is_true, make_namespace, make_queue
from tests.support.workers import make_check

FAIRNESS: Final = Path(__file__).parents[2] / "deploy" / "fairness" / "fairness.yaml"
_JOBS: Final = 2000
_SAMPLES: Final = 25
_MOST_SAMPLES: Final = 150
_PAUSE_SECONDS: Final = 0.3
_FIRST: Final = 200
_PATIENCE: Final = 120.0
_STAGES: Final = ("floor", "created", "queued", "admitted", "dispatched", "ours")
_FLOOD, _OTHER = flooding.TENANT, "other"


FIGURES: Final = (
    FigureShape("*.ratio.dispatched_p*", "×", 3),
    FigureShape("*.ratio.*", "×"),
    FigureShape("created_per_second", "/s", better=Better.HIGHER),
    FigureShape("*_p50", "s"),
    FigureShape("*_p95", "s"),
)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of one Job, and of one ConfigMap just before it."""

    floor: float
    """From the request for a ConfigMap until a watch shows it."""
    created: float
    """Of the creation alone: what the API server and the webhooks take."""
    queued: float
    """Until a watch shows its Workload."""
    admitted: float
    dispatched: float

    @property
    def ours(self) -> float:
        """What came after the Job was there: manager, mailbox and agent, and the API servers' part in that."""
        return self.dispatched - self.created


class Sightings:
    """When watches showed something for the first time, by name."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._awaited: dict[str, anyio.Event] = {}

    def add(self, name: str) -> None:
        """It is to be seen."""
        if name not in self._seen:
            self._seen[name] = monotonic()
            self._awaited.setdefault(name, anyio.Event()).set()

    async def when(self, name: str) -> float:
        """The time at which it was seen."""
        with anyio.fail_after(_PATIENCE):
            await self._awaited.setdefault(name, anyio.Event()).wait()
        return self._seen[name]


class Flood:
    """The flooding process and what it says of itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.counted: dict[str, int] = {"created": 0}

    async def read(self) -> None:
        """Follow what it says, to its end."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.counted = json.loads(line)


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """The figures."""
    parser = argparse.ArgumentParser(description="one tenant's flood, and another tenant's latency")
    parser.add_argument("--jobs", type=int, default=_JOBS, help="Jobs of the flood (%(default)s)")
    parser.add_argument("--samples", type=int, default=_SAMPLES, help="Jobs that are timed, each way (%(default)s)")
    parser.add_argument("--binaries", action="store_true", help="real API servers (embedded ones)")
    parser.add_argument("--fairness", action="store_true", help="deploy/fairness on the real API server")
    options = parser.parse_args(arguments or [])
    provider = BinariesProvider if options.binaries else EmbeddedProvider
    return asyncio.run(_measure(options.jobs, options.samples, provider, fair=options.fairness))


async def _measure(jobs: int, samples: int, provider: ProviderFactory, *, fair: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="mk-flood-") as folder:
        async with (
            Federation(FederationSpec(fairness=fair), folder=Path(folder), provider=provider) as made,
            AsyncExitStack() as clients,
        ):
            admin = await clients.enter_async_context(made.hub.client())
            workers = [await clients.enter_async_context(cluster.client()) for cluster in made.workers.values()]
            await _prepare(admin, workers)
            if fair:
                await create_all(admin, read(FAIRNESS))
            config = credentials.from_dict(made.hub.issue_client_certificate(_OTHER))
            tenant = await clients.enter_async_context(KubeClient(config))
            return await _Bench(made, admin, tenant, workers).run(jobs=jobs, samples=samples)


async def _prepare(hub: KubeClient, workers: Sequence[KubeClient]) -> None:
    for tenant in (_FLOOD, _OTHER):
        await make_check(hub, tenant, ("worker-1", "worker-2"))
        await make_queue(hub, tenant, namespace=tenant, cpu="8", checks=(tenant,))
        await create_all(hub, _rights(tenant))
        for worker in workers:
            await make_namespace(worker, tenant)


def _rights(name: str) -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        {"apiGroups": [WORKLOADS.group], "resources": ["workloads"], "verbs": ["get", "list", "watch"]},
    ]
    metadata = {"name": name, "namespace": name}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        },
    ]


class _Bench:
    def __init__(self, made: Federation, admin: KubeClient, tenant: KubeClient, workers: Sequence[KubeClient]) -> None:
        self._made = made
        self._admin = admin
        self._tenant = tenant
        self._workers = workers
        self._sightings = Sightings()
        self._phases: dict[str, list[Latency]] = {}
        self._cpu: dict[str, dict[str, float]] = {}
        self._number = 0

    async def run(self, *, jobs: int, samples: int) -> dict[str, object]:
        async with anyio.create_task_group() as tasks:
            await self._follow(tasks, self._tenant, CONFIG_MAPS, lambda obj: [f"ConfigMap {_name_of(obj)}"])
            await self._follow(tasks, self._tenant, WORKLOADS, _of_workload)
            for worker in self._workers:
                await self._follow(tasks, worker, JOBS, lambda obj: [f"remote job of {_name_of(obj)}"])
            for _ in range(3):
                await self._sample()
            await self._phase("quiet", None, until=lambda taken: taken >= samples)
            async with _flooding(self._made.hub, jobs) as flood:
                tasks.start_soon(flood.read)
                while flood.counted["created"] < min(jobs // 4, _FIRST):
                    await anyio.sleep(0.05)
                began = monotonic()
                await self._phase("arriving", flood, until=lambda taken: flood.counted["created"] >= jobs)
                rate = (jobs - _FIRST) / (monotonic() - began)
                waiting = jobs - await self._with_workload()
                before = dict(flood.counted), monotonic()
                await self._phase("arrived", flood, until=lambda taken: taken >= samples)
                seconds = monotonic() - before[1]
                changes = {
                    name: round((flood.counted[name] - before[0][name]) / seconds, 1)
                    for name in ("changed", "large_changed")
                }
                after = dict(flood.counted)
            tasks.cancel_scope.cancel()
        return {
            "jobs_of_the_flood": after,
            "created_per_second": round(rate, 1),
            "without_workload_when_all_were_there": waiting,
            "changes_per_second_when_all_were_there": changes,
            "load": list(os.getloadavg()),
            **{
                phase: {
                    "samples": len(found),
                    **_figures(found),
                    **({} if phase == "quiet" else {"ratio": self._ratios(found)}),
                    "cores_used": self._cpu[phase],
                }
                for phase, found in self._phases.items()
            },
        }

    async def _phase(self, name: str, flood: Flood | None, *, until: Callable[[int], bool]) -> None:
        found = self._phases[name] = []
        before, began = self._cpu_seconds(flood), monotonic()
        while not until(len(found)):
            if len(found) < _MOST_SAMPLES:
                found.append(await self._sample())
            await anyio.sleep(_PAUSE_SECONDS)
        seconds = monotonic() - began
        used = self._cpu_seconds(flood)
        self._cpu[name] = {
            each: round((used[each] - before[each]) / seconds, 2)
            for each in sorted(used, key=lambda each: before[each] - used[each])
            if used[each] - before[each] > 0.01 * seconds
        }

    def _cpu_seconds(self, flood: Flood | None) -> dict[str, float]:
        flooding = {} if flood is None else {"flood": cpu_seconds(flood.process.pid)}
        return {**cpu_seconds_by_process(self._made), **flooding}

    async def _sample(self) -> Latency:
        self._number += 1
        name = f"sample-{self._number:04}"
        began = monotonic()
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await self._tenant.create(CONFIG_MAPS, config_map, namespace=_OTHER)
        floor = await self._sightings.when(f"ConfigMap {name}") - began
        began = monotonic()
        await self._tenant.create(JOBS, flooding.manifest_of(name, _OTHER), namespace=_OTHER)
        created = monotonic() - began
        queued = await self._sightings.when(f"Workload of {name}") - began
        admitted = await self._sightings.when(f"reservation of {name}") - began
        dispatched = await self._sightings.when(f"remote job of {name}") - began
        await self._tenant.delete(JOBS, name, namespace=_OTHER, propagation="Background")
        return Latency(floor, created, queued, admitted, max(dispatched, created))

    async def _follow(
        self, tasks: TaskGroup, client: KubeClient, resource: Resource, names: Callable[[Any], list[str]]
    ) -> None:
        def see(obj: dict[str, Any]) -> None:
            for name in names(obj):
                self._sightings.add(name)

        await follow(tasks, client, resource, namespace=_OTHER, see=see)

    async def _with_workload(self) -> int:
        return len((await self._admin.list_all(WORKLOADS, namespace=_FLOOD, metadata_only=True)).items)

    def _ratios(self, found: Sequence[Latency]) -> dict[str, float]:
        quiet = self._phases["quiet"]
        return {
            f"{stage}_{name}": round(share(found, stage) / share(quiet, stage), 2)
            for stage in _STAGES
            for name, share in (("p50", _p50), ("p95", _p95))
        }


@asynccontextmanager
async def _flooding(hub: Cluster, jobs: int) -> AsyncIterator[Flood]:
    with tempfile.TemporaryDirectory(prefix="mk-flooder-") as folder:
        # An ordinary user: an administrator's requests have precedence.
        identity = hub.issue_client_certificate(_FLOOD)
        kubeconfig = kubeconfigs.write(identity, Path(folder) / "kubeconfig")
        command = [sys.executable, "-m", "tests.bench.flooding", "--kubeconfig", str(kubeconfig), "--jobs", str(jobs)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            yield Flood(process)
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()


def _name_of(obj: Any) -> str:
    return str(obj["metadata"].get("name", ""))


def _of_workload(obj: Any) -> list[str]:
    owners = [owner["name"] for owner in obj["metadata"].get("ownerReferences") or ()]
    seen = ["Workload", *(["reservation"] if is_true(obj, "QuotaReserved") else [])]
    return [f"{what} of {owner}" for what in seen for owner in owners]


def _figures(found: Sequence[Latency]) -> dict[str, float]:
    return {
        f"{stage}_{name}": round(share(found, stage), 4)
        for stage in _STAGES
        for name, share in (("p50", _p50), ("p95", _p95))
    }


def _p50(found: Sequence[Latency], stage: str) -> float:
    return float(statistics.median(getattr(each, stage) for each in found))


def _p95(found: Sequence[Latency], stage: str) -> float:
    ordered = sorted(getattr(each, stage) for each in found)
    return float(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))])


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
