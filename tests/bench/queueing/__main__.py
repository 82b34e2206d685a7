# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.queueing`: more Workloads than fit, in queues of cohorts, with preemption and no dispatch.

The mix of issue 19 (`docs/spec/engine.md §10.2`): 30 queues of 5 cohorts with 350 small, 100 medium and 50 large
Workloads each, which one worker process ends when they have run. `--mix large-scale` is the one with 1,000 queues. The
hub is an embedded API server or, with `--binaries`, a real one with its etcd. Without options it is a small form that
`make bench` can run: compare what it prints for each Workload, and not the times, on a machine that does other work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from time import monotonic
from typing import Any

import anyio
import orjson

from multikueue.api.resource import WORKLOADS, Resource
from multikueue.kube.errors import AlreadyExists, KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.bench.engine.mix import Class, Mix
from tests.bench.figure import FigureShape
from tests.bench.queueing import workloads
from tests.bench.queueing.hubs import running_bench_hub
from tests.bench.queueing.neighbour import Neighbour
from tests.bench.queueing.observer import Observer
from tests.bench.queueing.processes import cpu_seconds, peak_mib
from tests.support.managers import make_namespace


@dataclass(slots=True)
class _Worker:
    """The process that ends Workloads."""

    pid: int
    figures: dict[str, Any] = field(default_factory=dict)
    """What it reported last."""


FIGURES = (
    FigureShape("wall_seconds", "s"),
    FigureShape("cpu_seconds.*", "CPU s"),
    FigureShape("peak_mib.*", "MiB"),
    FigureShape("mean_wait_seconds.*", "s"),
    FigureShape("evictions_per_workload", ""),
    FigureShape("status_writes_per_workload", ""),
    FigureShape("neighbour.p*_ms", "ms"),
)


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """The figures."""
    options = _options(arguments or [])
    figures = asyncio.run(_measure(options))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return figures


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.queueing", description="queueing under pressure")
    parser.add_argument("--mix", choices=sorted(workloads.MIXES), default="baseline", help="default %(default)s")
    parser.add_argument("--queues", type=int, default=3, help="queues in all, 0 for those of the mix (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the Workloads of each queue (%(default)s)")
    parser.add_argument("--binaries", action="store_true", help="a real API server instead of the embedded one")
    parser.add_argument(
        "--configuration", type=json.loads, default={}, metavar="JSON", help="sections of the manager's Configuration"
    )
    parser.add_argument("--kueue", type=Path, metavar="BINARY", help="Kueue's own manager instead of this project's")
    parser.add_argument("--deadline", type=float, default=900.0, help="seconds until it is given up (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--pids", type=Path, metavar="FILE", help="write the process ids there, for a profiler")
    return parser.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, object]:
    mix = workloads.sized(workloads.MIXES[options.mix], queues=options.queues or None, scale=options.scale)
    with tempfile.TemporaryDirectory(prefix="mk-queueing-") as folder:
        async with (
            running_bench_hub(
                Path(folder), binaries=options.binaries, configuration=options.configuration, kueue=options.kueue
            ) as hub,
            KubeClient(credentials.load(hub.cluster.kubeconfig), user_agent="bench") as client,
            KubeClient(credentials.load(hub.cluster.kubeconfig), user_agent="neighbour") as other,
        ):
            await make_namespace(client, workloads.NAMESPACE)
            for resource, manifest in workloads.queue_manifests(mix):
                await _create_one(client, resource, manifest)
            async with _worker(hub.cluster.kubeconfig) as worker:
                pids = {**hub.processes, "worker": worker.pid, "bench": os.getpid()}
                if options.pids is not None:
                    options.pids.write_text(json.dumps(pids))
                cpu = {name: cpu_seconds(pid) for name, pid in pids.items()}
                asked, load = await hub.requests(client), os.getloadavg()
                began = monotonic()
                seen, neighbour = await _run(client, other, mix, deadline=options.deadline)
                wall = monotonic() - began
                requests = await hub.requests(client) - asked
                total = sum(entry.count for entry in mix.classes) * len(workloads.names(mix))
                return {
                    "hub": "real" if options.binaries else "embedded",
                    "manager": "Kueue" if options.kueue else "multikueue",
                    "workloads": total,
                    "finished": seen.finished,
                    "queues": len(workloads.names(mix)),
                    "wall_seconds": round(wall, 1),
                    "creation_seconds": round(seen.creation_seconds, 1),
                    "cpu_seconds": {name: round(cpu_seconds(pid) - cpu[name], 1) for name, pid in pids.items()},
                    "peak_mib": {name: peak_mib(pid) for name, pid in pids.items()},
                    "mean_wait_seconds": {name: round(mean(found), 2) for name, found in seen.waits.items()},
                    "mean_end_seconds": {name: round(mean(found), 2) for name, found in seen.ends.items()},
                    "evictions": {**seen.evictions, "all": seen.evictions.total()},
                    "evictions_during_creation": seen.evictions_during_creation,
                    "evictions_per_workload": round(seen.evictions.total() / total, 3),
                    "mean_run_until_eviction_seconds": round(mean(seen.ran), 2) if seen.ran else None,
                    "preemptions": seen.preemptions.figures(),
                    "neighbour": neighbour.figures(),
                    "worker": worker.figures,
                    "requests": dict(requests.most_common()),
                    "status_writes": dict(seen.writes.most_common()),
                    "status_writes_of_the_manager": _of_manager(seen.writes),
                    "status_writes_per_workload": round(_of_manager(seen.writes) / total, 2),
                    "load_before_and_after": [round(load[0], 1), round(os.getloadavg()[0], 1)],
                }


async def _run(client: KubeClient, other: KubeClient, mix: Mix, *, deadline: float) -> tuple[Observer, Neighbour]:
    seen, neighbour = Observer(client), Neighbour(other)
    total = sum(entry.count for entry in mix.classes) * len(workloads.names(mix))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(seen.run)
        await seen.began.wait()
        tasks.start_soon(neighbour.run)
        with anyio.move_on_after(deadline):
            async with anyio.create_task_group() as creators:
                for queue in workloads.names(mix):
                    for entry in mix.classes:
                        creators.start_soon(_create, client, seen, queue, entry)
            while seen.finished < total:
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    return seen, neighbour


async def _create(client: KubeClient, seen: Observer, queue: str, entry: Class) -> None:
    began = monotonic()
    for number in range(entry.count):
        await anyio.sleep(max(0.0, began + number * entry.every_ms / 1000 - monotonic()))
        manifest = workloads.workload(queue, entry, number)
        seen.creates(manifest["metadata"]["name"])
        await _create_one(client, WORKLOADS, manifest)


async def _create_one(client: KubeClient, resource: Resource, manifest: dict[str, Any]) -> None:
    """Create it, again after a failure: a webhook may take too long, and the server answers 503 while a CRD changes."""
    while True:
        try:
            await client.create(resource, manifest, namespace=manifest["metadata"].get("namespace"))
        except AlreadyExists:
            return
        except KubeError:
            await anyio.sleep(0.5)
        else:
            return


@asynccontextmanager
async def _worker(kubeconfig: Path) -> AsyncIterator[_Worker]:
    command = [sys.executable, "-m", "tests.bench.queueing.finisher", "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    worker = _Worker(process.pid)

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            worker.figures = orjson.loads(line)
            started.set()

    started = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await started.wait()
            yield worker
            tasks.cancel_scope.cancel()
    finally:
        process.kill()
        await process.wait()


def _of_manager(writes: Counter[str]) -> int:
    return sum(count for cause, count in writes.items() if not cause.startswith("worker: "))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
