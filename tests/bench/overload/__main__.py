# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.overload`: Jobs come three times as fast as a federation can run them (issue 19, item 3).

First a burst of Jobs, whose rate from the first creation to the last end is the capacity. Then `--times` as many Jobs a
second for `--minutes`, in one queue and of one priority; what has not ended by then is left. Printed for each interval
are Jobs created and ended, the time from creation to the remote job, and the hub's writes for each Job that ended: the
first grows with the queue, and the last stays what it is in the burst. Leases and clusters are read once a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, Final

import anyio

from devcluster.federation.federation import Federation
from devcluster.federation.spec import FederationSpec
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ProviderFactory
from multikueue.api import constants
from multikueue.api.resource import JOBS, NAMESPACES, WORKLOADS
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from tests.bench.figure import Better, FigureShape
from tests.bench.following import follow
from tests.bench.overload.health import Health
from tests.bench.overload.order import overtaken_seconds
from tests.support.managers import is_true, job_manifest, make_namespace, make_queue
from tests.support.workers import make_check

FIGURES: Final = (
    FigureShape("leases_lost", "", 0),
    FigureShape("clusters_lost", "", 0),
    FigureShape("overtaken_seconds", "s", 2),
    FigureShape("writes_ratio", "×", 1.5),
    FigureShape("longest_renewal", "of the duration", 1),
    FigureShape("*per_second", "/s", better=Better.HIGHER),
)
_TENANT: Final = "crowded"
_RUN_FOR: Final = "1s"
_INTERVALS: Final = 5
_PATIENCE: Final = 300.0
_CREATORS: Final = 32


@dataclass(slots=True)
class Passage:
    """When one Job passed each station, in seconds of this process's monotonic clock."""

    created: float
    queued: float = 0.0
    """When its Workload was seen: the queue's order is that of Workloads."""
    reserved: float | None = None
    dispatched: float | None = None
    ended: float | None = None


class Passages:
    """The Jobs that were created, as watches show them."""

    def __init__(self) -> None:
        self.all: dict[str, Passage] = {}
        self.reserved: list[str] = []
        """In the order in which quota was reserved."""

    def see_workload(self, workload: dict[str, Any]) -> None:
        """Note its creation and the reservation."""
        for owner in workload["metadata"].get("ownerReferences") or ():
            passage = self.all.get(owner["name"])
            if passage is None:
                continue
            passage.queued = passage.queued or monotonic()
            if passage.reserved is None and is_true(workload, "QuotaReserved"):
                passage.reserved = monotonic()
                self.reserved.append(owner["name"])

    def see_remote(self, job: dict[str, Any]) -> None:
        """Note that it is on a worker."""
        passage = self.all.get(job["metadata"]["name"])
        if passage is not None and passage.dispatched is None:
            passage.dispatched = monotonic()

    def see_job(self, job: dict[str, Any]) -> None:
        """Note the end."""
        passage = self.all.get(job["metadata"]["name"])
        if passage is not None and passage.ended is None and "completionTime" in (job.get("status") or {}):
            passage.ended = monotonic()

    def ended(self, names: Sequence[str] | None = None) -> int:
        """How many have ended, of these or of all."""
        return sum(self.all[name].ended is not None for name in (self.all if names is None else names))


@dataclass(frozen=True, slots=True)
class Mark:
    """The state at the end of an interval."""

    at: float
    ended: int
    revision: int


class Overload:
    """One run on a federation."""

    def __init__(self, hub: KubeClient, workers: Sequence[KubeClient]) -> None:
        self._hub = hub
        self._workers = workers
        self._passages = Passages()
        self._refused = 0

    async def run(self, *, burst: int, times: float, seconds: float) -> dict[str, object]:
        """The figures."""
        health = Health(self._hub)
        async with anyio.create_task_group() as tasks:
            await follow(tasks, self._hub, WORKLOADS, namespace=_TENANT, see=self._passages.see_workload)
            await follow(tasks, self._hub, JOBS, namespace=_TENANT, see=self._passages.see_job)
            for worker in self._workers:
                await follow(tasks, worker, JOBS, namespace=_TENANT, see=self._passages.see_remote)
            await self._burst("warm", 10)
            capacity, writes = await self._burst("burst", burst)
            tasks.start_soon(health.run)
            found = await self._crowd(capacity * times, seconds=seconds)
            tasks.cancel_scope.cancel()
        last = found[-1]
        served = [name for name in self._passages.reserved if name.startswith("crowd")]
        return {
            "capacity_per_second": round(capacity, 1),
            "offered_per_second": round(capacity * times, 1),
            "writes_per_job_of_the_burst": round(writes, 1),
            "intervals": {str(number): interval for number, interval in enumerate(found, 1)},
            "writes_ratio": round(float(last["writes_per_job"]) / writes, 2),
            "leases_lost": health.leases_lost,
            "longest_renewal": round(health.longest_renewal, 2),
            "clusters_lost": health.clusters_lost,
            "reads_refused": health.reads_refused,
            "overtaken_seconds": round(overtaken_seconds(self._passages.all[name].queued for name in served), 1),
            "creations_refused": self._refused,
            "load": [round(each, 1) for each in os.getloadavg()],
        }

    async def _burst(self, prefix: str, jobs: int) -> tuple[float, float]:
        """Jobs a second, and the hub's writes for each."""
        names = [f"{prefix}-{number:05}" for number in range(jobs)]
        before = await self._mark()
        async with anyio.create_task_group() as tasks:
            limit = anyio.CapacityLimiter(_CREATORS)
            for name in names:
                tasks.start_soon(self._create, name, limit)
        with anyio.fail_after(_PATIENCE):
            while self._passages.ended(names) < jobs:
                await anyio.sleep(0.05)
        after = await self._mark()
        return jobs / (after.at - before.at), (after.revision - before.revision) / jobs

    async def _crowd(self, rate: float, *, seconds: float) -> list[dict[str, float]]:
        """Create Jobs at that rate; the figures of each interval."""
        limit, began, number = anyio.CapacityLimiter(_CREATORS), monotonic(), 0
        marks = [await self._mark()]
        async with anyio.create_task_group() as tasks:
            while (elapsed := monotonic() - began) < seconds:
                if elapsed >= len(marks) * seconds / _INTERVALS:
                    marks.append(await self._mark())
                due = int(elapsed * rate)
                for each in range(number, due):
                    tasks.start_soon(self._create, f"crowd-{each:06}", limit)
                number = max(number, due)
                await anyio.sleep(0.02)
            marks.append(await self._mark())
            tasks.cancel_scope.cancel()
        return [self._interval(one, two) for one, two in pairwise(marks)]

    def _interval(self, before: Mark, after: Mark) -> dict[str, float]:
        passages = self._passages.all.values()
        ways = [
            each.dispatched - each.created
            for each in passages
            if each.dispatched is not None and before.at <= each.dispatched < after.at
        ]
        ended, seconds = after.ended - before.ended, after.at - before.at
        return {
            "created_per_second": round(sum(before.at <= each.created < after.at for each in passages) / seconds, 1),
            "ended_per_second": round(ended / seconds, 1),
            "waiting_at_its_end": sum(
                each.created < after.at and (each.dispatched is None or each.dispatched >= after.at)
                for each in passages
            ),
            "dispatched_after_p50": round(statistics.median(ways), 2) if ways else 0.0,
            "writes_per_second": round((after.revision - before.revision) / seconds, 1),
            "writes_per_job": round((after.revision - before.revision) / max(1, ended), 1),
        }

    async def _mark(self) -> Mark:
        # Every write of an API server takes the next version.
        page = await self._hub.list_all(NAMESPACES, metadata_only=True)
        return Mark(monotonic(), self._passages.ended(), int(page.resource_version))

    async def _create(self, name: str, limit: anyio.CapacityLimiter) -> None:
        manifest = job_manifest(name, namespace=_TENANT, queue=_TENANT, cpu="10m", suspend=True)
        manifest["spec"]["managedBy"] = constants.MULTIKUEUE_MANAGED_BY
        manifest["spec"]["template"]["metadata"] = {"annotations": {constants.RUN_FOR_ANNOTATION: _RUN_FOR}}
        async with limit:
            passage = self._passages.all[name] = Passage(monotonic())
            while True:
                try:
                    await self._hub.create(JOBS, manifest, namespace=_TENANT)
                except KubeError:
                    self._refused += 1
                    await anyio.sleep(0.2)
                    passage.created = monotonic()
                else:
                    return


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """The figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overload", description="more Jobs than can run")
    parser.add_argument("--minutes", type=float, default=1.0, help="of overload (%(default)s)")
    parser.add_argument("--times", type=float, default=3.0, help="offered Jobs for each that can run (%(default)s)")
    parser.add_argument("--burst", type=int, default=300, help="Jobs whose rate is the capacity (%(default)s)")
    parser.add_argument("--binaries", action="store_true", help="real API servers (embedded ones)")
    options = parser.parse_args(arguments or [])
    return asyncio.run(_measure(options, BinariesProvider if options.binaries else EmbeddedProvider))


async def _measure(options: argparse.Namespace, provider: ProviderFactory) -> dict[str, object]:
    async with _federation(provider) as overload:
        return await overload.run(burst=options.burst, times=options.times, seconds=60 * options.minutes)


@asynccontextmanager
async def _federation(provider: ProviderFactory) -> AsyncIterator[Overload]:
    with tempfile.TemporaryDirectory(prefix="mk-overload-") as folder:
        async with (
            Federation(FederationSpec(), folder=Path(folder), provider=provider) as made,
            AsyncExitStack() as clients,
        ):
            hub = await clients.enter_async_context(made.hub.client())
            workers = [await clients.enter_async_context(cluster.client()) for cluster in made.workers.values()]
            await make_check(hub, _TENANT, tuple(made.workers))
            await make_queue(hub, _TENANT, namespace=_TENANT, cpu="8", checks=(_TENANT,))
            for worker in workers:
                await make_namespace(worker, _TENANT)
            yield Overload(hub, workers)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
