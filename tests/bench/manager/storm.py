# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.manager.storm`: workloads that run on many clusters, and the hub goes away for a while.

The hub is an embedded API server that counts requests, the manager a process of its own, and the agents the real ones
with an embedded API server each, all in this process. While the hub is away one Job in ten ends. Reported: what the
manager holds (goal: 200 MiB resident), what the hub is asked while nothing happens, how long it takes until every agent
has connected and reported (goal: 30 s), how long until the hub has finished what has ended, and the most requests that
the hub was asked in a second, by agents and by the manager. Each agent may send 50 a second, after a burst of 100; a
manager with the default Configuration has no limit of its own. `--agents 200` is more than `make bench` has time for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic, time

import anyio

from multikueue.api.resource import WORKLOADS
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.bench.figure import FigureShape
from tests.bench.manager.crowd import TEAM, Size, make_crowd, running_name
from tests.bench.manager.sites import (
    HubPlace,
    Requests,
    all_active,
    all_connected,
    answers,
    memory_mib,
    requests_between,
    running_process,
    running_site,
    start_agents,
    until,
)
from tests.bench.queueing.processes import cpu_seconds
from tests.support.jobs import finish_job
from tests.support.managers import free_port
from worker_agent.options import HUB_QPS

ENDED_SHARE = 10
_AWAY_SECONDS = 5.0
_QUIET_SECONDS = 60.0
"""Six renewals and two reports of each agent."""


FIGURES = (
    FigureShape("settled_seconds", "s", 30),
    FigureShape("finished_seconds", "s"),
    FigureShape("manager_peak_mib", "MiB"),
    FigureShape("manager_rss_*mib", "MiB", 200),
    FigureShape("*cpu_seconds.*", "CPU s"),
    FigureShape("*per_second.*", "/s"),
)


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """The figures."""
    options = _options(arguments or [])
    # That all watches end with the hub is what is measured, and not worth a line each.
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), Size(clusters=options.agents, running=options.workloads)))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.manager.storm", description="all agents reconnect")
    parser.add_argument("--agents", type=int, default=50, help="default %(default)s")
    parser.add_argument("--workloads", type=int, default=10_000, help="default %(default)s")
    return parser.parse_args(arguments)


async def _measure(folder: Path, size: Size) -> dict[str, object]:
    crowd = await make_crowd(folder, size)
    place = HubPlace(folder, free_port())
    hub_command = place.hub_command(crowd.hub)
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running_process(*hub_command))
        client = await stack.enter_async_context(KubeClient(credentials.from_dict(place.kubeconfig)))
        await until(lambda: answers(client), "the hub answers")
        manager = await stack.enter_async_context(running_process(*place.manager_command(health=free_port())))
        sites = [
            await stack.enter_async_context(running_site(place.kubeconfig, name, where))
            for name, where in crowd.workers.items()
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        # Only the storm is to be one.
        await start_agents(sites, tasks)
        await until(lambda: all_active(client), "every cluster is Active")
        await anyio.sleep(10)  # until a report of each has come
        held = memory_mib(manager)
        pids = {"agents": os.getpid(), "hub": hub.pid, "manager": manager.pid}
        quiet_at, before = time(), {name: cpu_seconds(pid) for name, pid in pids.items()}
        await anyio.sleep(_QUIET_SECONDS)
        quiet_cpu = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
        quiet_until = time()

        hub.send_signal(signal.SIGKILL)
        await hub.wait()
        gone = monotonic()
        ended = range(0, size.running, ENDED_SHARE)
        for number in ended:
            await finish_job(sites[number % size.clusters].worker, running_name(number), namespace=TEAM)
        await anyio.sleep(max(0.0, _AWAY_SECONDS - (monotonic() - gone)))
        back_at, back = time(), monotonic()
        hub = await stack.enter_async_context(running_process(*hub_command))
        pids["hub"] = hub.pid
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        await until(
            lambda: all_connected(sites, since=back), "every agent is connected again, and has reported everything"
        )
        settled = monotonic() - back
        storm_cpu = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
        await until(lambda: _finished(client, len(ended)), "what has ended is finished on the hub")
        finished = monotonic() - back
        await anyio.sleep(1)
        lines = place.counts.read_text().splitlines()
        stormed = memory_mib(manager)
        tasks.cancel_scope.cancel()
    return {
        "clusters": size.clusters,
        "workloads": size.running,
        "manager_rss_mib": held["VmRSS"],
        "manager_peak_mib": held["VmHWM"],
        "manager_rss_after_storm_mib": stormed["VmRSS"],
        "quiet_per_second": _means(requests_between(lines, since=quiet_at, until=quiet_until)),
        "quiet_minute_cpu_seconds": {name: round(seconds, 2) for name, seconds in quiet_cpu.items()},
        "settled_seconds": round(settled, 1),
        "settling_cpu_seconds": {name: round(seconds, 1) for name, seconds in storm_cpu.items()},
        "ended_meanwhile": len(ended),
        "finished_seconds": round(finished, 1),
        "peak_per_second": _peaks(requests_between(lines, since=back_at, until=back_at + finished + 1)),
        "agents_limit_per_second": size.clusters * HUB_QPS,
        "load": round(os.getloadavg()[0], 1),
    }


def _means(requests: dict[str, Requests]) -> dict[str, float]:
    return {name: each.mean for name, each in requests.items()}


def _peaks(requests: dict[str, Requests]) -> dict[str, float]:
    return {name: each.peak for name, each in requests.items()}


async def _finished(client: KubeClient, wanted: int) -> bool:
    await anyio.sleep(2)  # the list itself is work for the hub
    page = await client.list_all(WORKLOADS, namespace=TEAM)
    return sum(b'"type":"Finished"' in raw for raw in page.items) >= wanted


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
