# SPDX-License-Identifier: Apache-2.0
"""What a Job costs through the federation, beside the same Job made on a worker (issue 19, item 2).

One federation of processes, as it is installed. `direct` makes the Jobs on the workers in turn, without queue and
federation: the floor, in which API servers, controllers and nodes of the workers take part. `dispatched` makes the same
Jobs on the hub. CPU time is that of all processes but this one, without what they use idle, until the end of each Job
is shown where it was made and, for those that were dispatched, the remote Jobs are gone. Hub writes are all that its
API server answers meanwhile: the user's own, events, leases and figures of queues too.

`python -m tests.bench.dispatch_cost --jobs 1000 --binaries` is the whole of it, with `--rate 10` for its latency.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

import anyio

from devcluster.federation.federation import Federation
from devcluster.federation.spec import FederationSpec, several_workers
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ProviderFactory
from multikueue.api import constants
from multikueue.api.resource import JOBS
from multikueue.kube.rest.client import KubeClient
from tests.bench.cpu import BENCH, cpu_seconds_by_process
from tests.bench.dispatch import requests_of, writes
from tests.bench.figure import Better, FigureShape
from tests.bench.following import follow
from tests.support.managers import job_manifest, make_namespace, make_queue
from tests.support.workers import make_check

FIGURES: Final = (
    FigureShape("own_cost_ratio", "×", 1.5),
    FigureShape("dispatched.cpu_ms_per_job", "ms", 110),
    FigureShape("dispatched.jobs_per_second", "/s", 25, better=Better.HIGHER),
    FigureShape("dispatched.hub.writes_per_job", "", 8),
    FigureShape("*.jobs_per_second", "/s", better=Better.HIGHER),
    FigureShape("*.cpu_ms_per_job", "ms"),
    FigureShape("*.running_after_p*", "s"),
)
_TENANT: Final = "team"
_DIRECT: Final = "direct"
_DISPATCHED: Final = "dispatched"
_CREATORS: Final = 16
_IDLE_SECONDS: Final = 10.0
_PATIENCE: Final = 900.0


@dataclass(slots=True)
class TimedJob:
    """When a Job was created, first ran and ended, in seconds of this process's monotonic clock."""

    created: float
    running: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class CourseCost:
    """What one course of Jobs took."""

    jobs: Sequence[TimedJob]
    cpu: Mapping[str, float]
    """Milliseconds of each process for each Job, without what it uses idle."""
    hub_requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What the hub's API server answered meanwhile, by verb and resource."""

    @property
    def cpu_ms(self) -> float:
        """Milliseconds for each Job, of all processes."""
        return sum(self.cpu.values())

    def figures(self) -> dict[str, object]:
        """For the report; processes that use less than a thousandth of a second are left out."""
        ways = sorted(each.running - each.created for each in self.jobs if each.running is not None)
        first, last = min(each.created for each in self.jobs), max(each.running or each.created for each in self.jobs)
        return {
            "jobs": len(self.jobs),
            "jobs_per_second": round(len(self.jobs) / (last - first), 1),
            "running_after_p50": round(statistics.median(ways), 3),
            "running_after_p99": round(ways[min(len(ways) - 1, int(0.99 * len(ways)))], 3),
            "cpu_ms_per_job": round(self.cpu_ms, 1),
            "cpu_ms_of": {
                name: round(used, 1)
                for name, used in sorted(self.cpu.items(), key=lambda item: -item[1])
                if abs(used) >= 1
            },
            "hub": writes(self.hub_requests, jobs=len(self.jobs)),
        }


def used_beyond_idle(
    before: Mapping[str, float], after: Mapping[str, float], *, idle: Mapping[str, float], seconds: float, jobs: int
) -> dict[str, float]:
    """Milliseconds of CPU time for each Job; `idle` are the cores that each process uses without Jobs."""
    return {
        name: 1000 * (after[name] - before[name] - idle.get(name, 0.0) * seconds) / jobs
        for name in after.keys() & before.keys() - {BENCH}
    }


def own_cost_ratio(direct: CourseCost, dispatched: CourseCost) -> float:
    """What the federation adds to a Job, in proportion to what the Job takes without it."""
    return (dispatched.cpu_ms - direct.cpu_ms) / direct.cpu_ms


class DispatchCost:
    """One run on a federation."""

    def __init__(self, made: Federation, hub: KubeClient, workers: Sequence[KubeClient]) -> None:
        self._made = made
        self._hub = hub
        self._workers = workers
        self._jobs: dict[str, TimedJob] = {}
        self._direct: set[str] = set()
        self._remote: set[str] = set()
        self._idle: dict[str, float] = {}

    async def run(self, *, jobs: int, rate: float, run_for: str) -> dict[str, object]:
        """The figures of both courses."""
        async with anyio.create_task_group() as tasks:
            await follow(tasks, self._hub, JOBS, namespace=_TENANT, see=self._see_end)
            for worker in self._workers:
                watched = {"see": self._see_on_worker, "see_deleted": self._see_deleted}
                await follow(tasks, worker, JOBS, namespace=_TENANT, **watched)
            for place in (_DIRECT, _DISPATCHED):
                await self._course(place, f"warm-{place}", jobs=10, rate=0.0, run_for="1s")
            self._idle = await self._measure_idle()
            direct = await self._course(_DIRECT, _DIRECT, jobs=jobs, rate=rate, run_for=run_for)
            dispatched = await self._course(_DISPATCHED, _DISPATCHED, jobs=jobs, rate=rate, run_for=run_for)
            tasks.cancel_scope.cancel()
        return {
            "idle_cores": round(sum(self._idle.values()), 3),
            _DIRECT: direct.figures(),
            _DISPATCHED: dispatched.figures(),
            "own_cost_ratio": round(own_cost_ratio(direct, dispatched), 2),
            "load": [round(each, 1) for each in os.getloadavg()],
        }

    async def _measure_idle(self) -> dict[str, float]:
        before, began = cpu_seconds_by_process(self._made), monotonic()
        await anyio.sleep(_IDLE_SECONDS)
        after, seconds = cpu_seconds_by_process(self._made), monotonic() - began
        return {name: (after[name] - before[name]) / seconds for name in after if name != BENCH}

    async def _course(self, place: str, prefix: str, *, jobs: int, rate: float, run_for: str) -> CourseCost:
        names = [f"{prefix}-{number:05}" for number in range(jobs)]
        if place == _DIRECT:
            self._direct.update(names)
        requested = await requests_of(self._hub)
        before, began = cpu_seconds_by_process(self._made), monotonic()
        limit = anyio.CapacityLimiter(_CREATORS)
        async with anyio.create_task_group() as tasks:
            for number, name in enumerate(names):
                if rate:
                    await anyio.sleep(max(0.0, began + number / rate - monotonic()))
                if place == _DISPATCHED:
                    client, manifest = self._hub, _manifest(name, run_for=run_for, queue=_TENANT)
                else:
                    client, manifest = self._workers[number % len(self._workers)], _manifest(name, run_for=run_for)
                tasks.start_soon(self._create, client, manifest, limit)
        with anyio.fail_after(_PATIENCE):
            while any(self._jobs[name].ended is None for name in names) or (
                place == _DISPATCHED and not self._remote.isdisjoint(names)
            ):
                await anyio.sleep(0.05)
        after, seconds = cpu_seconds_by_process(self._made), monotonic() - began
        cpu = used_beyond_idle(before, after, idle=self._idle, seconds=seconds, jobs=jobs)
        return CourseCost([self._jobs[name] for name in names], cpu, await requests_of(self._hub) - requested)

    async def _create(self, client: KubeClient, manifest: dict[str, Any], limit: anyio.CapacityLimiter) -> None:
        async with limit:
            self._jobs[manifest["metadata"]["name"]] = TimedJob(monotonic())
            await client.create(JOBS, manifest, namespace=_TENANT)

    def _see_on_worker(self, job: dict[str, Any]) -> None:
        name, status = job["metadata"]["name"], job.get("status") or {}
        timed = self._jobs.get(name)
        if timed is None:
            return
        if timed.running is None and (status.get("active") or "completionTime" in status):
            timed.running = monotonic()
        self._remote.add(name)
        if name in self._direct:
            self._see_end(job)

    def _see_deleted(self, job: dict[str, Any]) -> None:
        self._remote.discard(job["metadata"]["name"])

    def _see_end(self, job: dict[str, Any]) -> None:
        timed = self._jobs.get(job["metadata"]["name"])
        if timed is not None and timed.ended is None and "completionTime" in (job.get("status") or {}):
            timed.ended = monotonic()


def _manifest(name: str, *, run_for: str, queue: str | None = None) -> dict[str, Any]:
    manifest = job_manifest(name, namespace=_TENANT, queue=queue, cpu="10m", suspend=queue is not None)
    manifest["spec"]["template"]["metadata"] = {"annotations": {constants.RUN_FOR_ANNOTATION: run_for}}
    if queue is not None:
        manifest["spec"]["managedBy"] = constants.MULTIKUEUE_MANAGED_BY
    return manifest


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """The figures."""
    description = "what a Job costs through the federation, beside the same Job on a worker"
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dispatch_cost", description=description)
    parser.add_argument("--jobs", type=int, default=200, help="Jobs of each course (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.0, help="Jobs a second; 0 is a burst (%(default)s)")
    parser.add_argument("--run-for", default="5s", help="how long each pod runs (%(default)s)")
    parser.add_argument("--workers", type=int, default=3, help="worker clusters (%(default)s)")
    parser.add_argument("--binaries", action="store_true", help="real API servers (embedded ones)")
    options = parser.parse_args(arguments or [])
    return asyncio.run(_measure(options, BinariesProvider if options.binaries else EmbeddedProvider))


async def _measure(options: argparse.Namespace, provider: ProviderFactory) -> dict[str, object]:
    spec = FederationSpec(workers=several_workers(options.workers, nodes=8))
    with tempfile.TemporaryDirectory(prefix="mk-dispatch-cost-") as folder:
        async with Federation(spec, folder=Path(folder), provider=provider) as made, AsyncExitStack() as clients:
            hub = await clients.enter_async_context(made.hub.client())
            workers = [await clients.enter_async_context(cluster.client()) for cluster in made.workers.values()]
            await make_check(hub, _TENANT, tuple(made.workers))
            await make_queue(hub, _TENANT, namespace=_TENANT, cpu="1000", checks=(_TENANT,))
            for worker in workers:
                await make_namespace(worker, _TENANT)
            bench = DispatchCost(made, hub, workers)
            return await bench.run(jobs=options.jobs, rate=options.rate, run_for=options.run_for)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
