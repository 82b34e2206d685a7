# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.scale`: a hub with a hundred thousand Workloads and fifty agents.

The hub is an embedded API server and the manager a process, each of its own; the agents are the real ones, with an
embedded API server each, all in this process. Six Workloads in ten have finished, one runs on a worker, and the others
wait in queues that are full. Reported: memory of the manager and the hub (goal: the manager 600 MiB resident), how long
after its start the manager is ready (goal: 20 s), its engine has taken in all Workloads, and it has nothing more to do,
and how long it takes then until a new Job has a Workload, and until more quota admits one (goal: 1 s).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

import aiohttp
import anyio
import anyio.abc

from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, WORKLOADS
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.bench.figure import FigureShape
from tests.bench.following import follow
from tests.bench.manager.crowd import TEAM, Size, make_crowd, queued_job
from tests.bench.manager.sites import (
    PATIENCE,
    HubPlace,
    answers,
    memory_mib,
    running_process,
    running_site,
    start_agents,
    until,
)
from tests.bench.queueing.processes import cpu_seconds
from tests.bench.scale.metrics import total
from tests.support.managers import free_port, is_true

_QUEUES: Final = 33
"""Of each check, of which there is one for twenty clusters."""
_CHANGES: Final = 5
_IDLE_SHARE: Final = 0.1
_IDLE_SECONDS: Final = 3.0


FIGURES = (
    FigureShape("manager.rss_mib", "MiB", 600),
    FigureShape("manager.peak_mib", "MiB"),
    FigureShape("hub.*_mib", "MiB"),
    FigureShape("ready.seconds", "s", 20),
    FigureShape("*.seconds", "s"),
    FigureShape("*.cpu_seconds", "CPU s"),
    FigureShape("*_most_seconds", "s", 1),
    FigureShape("*_median_seconds", "s", 1),
)


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """The figures."""
    options = _options(arguments or [])
    logging.disable(logging.WARNING)
    size = size_of(options.workloads, agents=options.agents)
    with tempfile.TemporaryDirectory(prefix="mk-scale-") as folder:
        return asyncio.run(_measure(Path(folder), size, pids=options.pids))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description="a hub with many Workloads")
    parser.add_argument("--workloads", type=int, default=100_000, help="default %(default)s")
    parser.add_argument("--agents", type=int, default=50, help="default %(default)s")
    parser.add_argument("--pids", type=Path, metavar="FILE", help="write the process ids there, for a profiler")
    return parser.parse_args(arguments)


def size_of(workloads: int, *, agents: int) -> Size:
    """A tenth runs, six tenths have finished, and the others wait."""
    running, ended = workloads // 10, workloads * 6 // 10
    return Size(clusters=agents, running=running, ended=ended, waiting=workloads - running - ended, queues=_QUEUES)


async def _measure(folder: Path, size: Size, *, pids: Path | None) -> dict[str, object]:
    began = monotonic()
    crowd = await make_crowd(folder, size)
    made = monotonic() - began
    place = HubPlace(folder, free_port())
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running_process(*place.hub_command(crowd.hub)))
        client = await stack.enter_async_context(KubeClient(credentials.from_dict(place.kubeconfig)))
        await until(lambda: answers(client), "the hub answers")
        sites = [
            await stack.enter_async_context(running_site(place.kubeconfig, name, where))
            for name, where in crowd.workers.items()
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        await start_agents(sites, tasks)
        loaded = memory_mib(hub)
        health, metrics = free_port(), free_port()
        load = os.getloadavg()[0]
        start = monotonic()
        command = place.manager_command(health=health, metrics=metrics)
        manager = await stack.enter_async_context(running_process(*command))
        if pids is not None:
            await anyio.Path(pids).write_text(
                json.dumps({"hub": hub.pid, "manager": manager.pid, "agents": os.getpid()})
            )
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def reached(probe: Callable[[], Awaitable[bool]], what: str) -> dict[str, float]:
            await until(probe, what)
            return {"seconds": round(monotonic() - start, 1), "cpu_seconds": round(cpu_seconds(manager.pid), 1)}

        ready = await reached(lambda: _ready(http, health), "the manager is ready")
        fed = await reached(lambda: _counts(http, metrics, size), "its engine has taken in everything")
        idle = await reached(lambda: _idle(manager), "it has nothing more to do")
        figures: dict[str, object] = {
            "workloads": size.workloads,
            "running": size.running,
            "waiting": size.waiting,
            "queues": len(size.quotas()),
            "clusters": size.clusters,
            "made_seconds": round(made, 1),
            "ready": ready,
            "engine_fed": fed,
            "idle": idle,
            **await _changes(client, tasks, size),
            "manager": _memory(manager),
            "hub": {**_memory(hub), "loaded_mib": loaded["VmRSS"]},
            "load_before_and_after": [round(load, 1), round(os.getloadavg()[0], 1)],
        }
        tasks.cancel_scope.cancel()
    return figures


def _memory(process: anyio.abc.Process) -> dict[str, float]:
    found = memory_mib(process)
    return {"rss_mib": found["VmRSS"], "peak_mib": found["VmHWM"]}


async def _ready(http: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _counts(http: aiohttp.ClientSession, port: int, size: Size) -> bool:
    """Whether the manager counts all Workloads that wait, and all that hold quota."""
    async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
        page = await answer.text()
    waiting, holding = total(page, "kueue_pending_workloads"), total(page, "kueue_reserving_active_workloads")
    return waiting >= size.waiting and holding >= size.running


async def _idle(process: anyio.abc.Process) -> bool:
    before = cpu_seconds(process.pid)
    await anyio.sleep(_IDLE_SECONDS)
    return cpu_seconds(process.pid) - before < _IDLE_SHARE * _IDLE_SECONDS


async def _changes(client: KubeClient, tasks: anyio.abc.TaskGroup, size: Size) -> dict[str, float]:
    """Seconds until what follows from a change is on the hub."""
    awaited = _Awaited()
    await follow(tasks, client, WORKLOADS, namespace=TEAM, see=awaited.see)
    jobs, quotas = [], []
    for number in range(_CHANGES):
        job = queued_job(f"new-{number}", queue=size.queue(number))
        created = partial(client.create, JOBS, job, namespace=TEAM)
        jobs.append(await awaited.seconds(partial(_is_of_job, job), created))
        queue = await client.get_object(CLUSTER_QUEUES, size.queue(number))
        groups = queue["spec"]["resourceGroups"]
        quota = groups[0]["flavors"][0]["resources"][0]
        quota["nominalQuota"] = str(int(quota["nominalQuota"]) + 1)
        raised = partial(client.patch, CLUSTER_QUEUES, size.queue(number), {"spec": {"resourceGroups": groups}})
        quotas.append(await awaited.seconds(partial(_is_admitted_in, size.queue(number)), raised))
    return {
        "new_job_median_seconds": round(median(jobs), 3),
        "new_job_most_seconds": round(max(jobs), 3),
        "more_quota_median_seconds": round(median(quotas), 3),
        "more_quota_most_seconds": round(max(quotas), 3),
    }


class _Awaited:
    """A Workload that is to appear or to change."""

    def __init__(self) -> None:
        self._matches: Callable[[JsonObject], bool] = lambda workload: False
        self._seen = anyio.Event()

    def see(self, workload: JsonObject) -> None:
        """A change of a Workload."""
        if self._matches(workload):
            self._seen.set()

    async def seconds(self, matches: Callable[[JsonObject], bool], change: Callable[[], Awaitable[object]]) -> float:
        """Make the change, and wait for a Workload that matches. Raises `TimeoutError`."""
        self._matches, self._seen = matches, anyio.Event()
        began = monotonic()
        with anyio.fail_after(PATIENCE):
            await change()
            await self._seen.wait()
        return monotonic() - began


def _is_of_job(job: JsonObject, workload: JsonObject) -> bool:
    owners = workload["metadata"].get("ownerReferences") or ()
    return any(owner["name"] == job["metadata"]["name"] for owner in owners)


def _is_admitted_in(queue: str, workload: JsonObject) -> bool:
    return bool(workload["spec"].get("queueName") == queue) and is_true(workload, "QuotaReserved")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
