# SPDX-License-Identifier: Apache-2.0
"""Ten thousand workloads that run on fifty clusters, and the management cluster goes away for a while.

The hub is an embedded API server that counts requests, the manager a process of its own, and the agents the real ones
with an embedded API server each, all in this process. While the hub is away one Job in ten ends. Reported: what the
manager holds (goal: 200 MiB resident), how long it takes until every agent has connected and reported (goal:
30 s), how long until the hub has finished what has ended, and the most requests that the hub was asked in a second,
by agents and by the manager. Each agent may send 50 a second, after a burst of 100; a manager with the default
Configuration has no limit of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic, time

import anyio
import anyio.abc
import orjson

from devcluster import kubeconfigs
from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.storage.durable import SqliteJournal
from multikueue.api.resource import MULTIKUEUE_CLUSTERS, WORKLOADS
from multikueue.kube.errors import KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.bench.figure import FigureShape
from tests.bench.manager.counted_hub import TICKS
from tests.bench.manager.crowd import SETTINGS, TEAM, make_crowd
from tests.support.embedded import api_server
from tests.support.jobs import finish_job
from tests.support.managers import condition, free_port
from tests.support.push_workers import kubeconfigs_of
from worker_agent.app import Agent
from worker_agent.hub.mailbox import Mailbox
from worker_agent.options import HUB_BURST, HUB_QPS

CLUSTERS = 50
WORKLOADS_HELD = 10_000
ENDED_SHARE = 10
_AWAY_SECONDS = 5.0
_PATIENCE = 150.0
_MEMORY = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)


FIGURES = (
    FigureShape("settled_seconds", "s", 30),
    FigureShape("finished_seconds", "s"),
    FigureShape("manager_peak_mib", "MiB"),
    FigureShape("manager_rss_*mib", "MiB", 200),
    FigureShape("peak_per_second_*", "/s"),
)


def main() -> dict[str, float]:
    """The figures."""
    # That fifty watches end with the hub is what is measured, and not worth a line each.
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


@dataclass(frozen=True, slots=True)
class _Site:
    agent: Agent
    hub: KubeClient
    worker: KubeClient


async def _measure(folder: Path) -> dict[str, float]:
    crowd = await make_crowd(folder, clusters=CLUSTERS, workloads=WORKLOADS_HELD)
    counts, port = folder / "counts", free_port()
    kubeconfig = folder / "kubeconfig"
    own = {**kubeconfigs_of(f"http://127.0.0.1:{port}"), "users": [{"name": "own", "user": {}}]}
    kubeconfig.write_bytes(kubeconfigs.dump(own))
    (folder / "settings.yaml").write_text(SETTINGS)
    hub_command = (sys.executable, "-m", "tests.bench.manager.counted_hub", str(crowd.hub), str(port), str(counts))
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(_process(*hub_command))
        client = await stack.enter_async_context(KubeClient(credentials.from_dict(own)))
        await _until(lambda: _answers(client), "the hub answers")
        health = free_port()
        manager = await stack.enter_async_context(
            _process(
                *(sys.executable, "-m", "manager", f"--kubeconfig={kubeconfig}", "--no-webhooks", "--log-level=error"),
                *(f"--config={folder / 'settings.yaml'}", f"--health-bind=127.0.0.1:{health}"),
                "--metrics-bind=127.0.0.1:0",
            )
        )
        sites = [await stack.enter_async_context(_site(own, name, where)) for name, where in crowd.workers.items()]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        # One after the other: fifty machines start in here, and only the storm is to be one.
        for site in sites:
            tasks.start_soon(site.agent.run)
            await _until(lambda site=site: _all_connected([site]), f"the agent of {site.agent.cluster} is connected")
        await _until(lambda: _all_active(client), "every cluster is Active")
        await anyio.sleep(10)  # until a report of each has come
        held = _memory(manager)

        hub.send_signal(signal.SIGKILL)
        await hub.wait()
        gone = monotonic()
        ended = [f"storm-{number:05}" for number in range(0, WORKLOADS_HELD, ENDED_SHARE)]
        for number, name in zip(range(0, WORKLOADS_HELD, ENDED_SHARE), ended, strict=True):
            await finish_job(sites[number % CLUSTERS].worker, name, namespace=TEAM)
        await anyio.sleep(max(0.0, _AWAY_SECONDS - (monotonic() - gone)))
        back_at, back = time(), monotonic()
        await stack.enter_async_context(_process(*hub_command))
        await _until(
            lambda: _all_connected(sites, since=back), "every agent is connected again, and has reported everything"
        )
        settled = monotonic() - back
        await _until(lambda: _finished(client, len(ended)), "what has ended is finished on the hub")
        finished = monotonic() - back
        await anyio.sleep(1)
        peaks = _peaks(counts, since=back_at)
        stormed = _memory(manager)
        tasks.cancel_scope.cancel()
    return {
        "clusters": CLUSTERS,
        "workloads": WORKLOADS_HELD,
        "manager_rss_mib": held["VmRSS"],
        "manager_peak_mib": held["VmHWM"],
        "manager_rss_after_storm_mib": stormed["VmRSS"],
        "settled_seconds": round(settled, 1),
        "ended_meanwhile": len(ended),
        "finished_seconds": round(finished, 1),
        **peaks,
        "agents_limit_per_second": CLUSTERS * HUB_QPS,
    }


@asynccontextmanager
async def _process(*command: str) -> AsyncIterator[anyio.abc.Process]:
    async with await anyio.open_process(command, stdout=None, stderr=None, env=dict(os.environ)) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


@asynccontextmanager
async def _site(hub_kubeconfig: dict[str, object], name: str, where: Path) -> AsyncIterator[_Site]:
    """A worker, and its agent that does not run yet."""
    async with Listener(api_server(journal=SqliteJournal(where))) as listener:
        own = credentials.from_dict({**kubeconfigs_of(listener.url), "users": [{"name": "own", "user": {}}]})
        to_hub = KubeClient(credentials.from_dict(hub_kubeconfig), user_agent="agent", qps=HUB_QPS, burst=HUB_BURST)
        async with KubeClient(own) as worker, to_hub:
            yield _Site(Agent(to_hub, worker, cluster=name, random=Random(name)), to_hub, worker)


async def _until(probe: Callable[[], object], what: str) -> None:
    with anyio.move_on_after(_PATIENCE):
        while True:
            found = probe()
            if hasattr(found, "__await__"):
                found = await found
            if found:
                return
            await anyio.sleep(0.1)
    raise TimeoutError(f"not within {_PATIENCE:.0f} s: {what}")


async def _answers(client: KubeClient) -> bool:
    try:
        await client.request("GET", "/readyz")
    except KubeError:
        return False
    return True


def _all_connected(sites: list[_Site], *, since: float = 0.0) -> bool:
    """Whether each has a lease, follows its mailbox, and has nothing left to report."""
    return all(
        site.agent.heartbeat.valid(within=monotonic() - since if since else float("inf"))
        and isinstance(site.agent.mailbox, Mailbox)
        and site.agent.mailbox.informer.synced.is_set()
        and site.agent.mailbox.informer.connected
        and not site.agent.status_reporter.unsent
        for site in sites
    )


async def _all_active(client: KubeClient) -> bool:
    page = await client.list_all(MULTIKUEUE_CLUSTERS)
    return all(condition(orjson.loads(raw), "Active").get("status") == "True" for raw in page.items)


async def _finished(client: KubeClient, wanted: int) -> bool:
    await anyio.sleep(2)  # the list itself is work for the hub
    page = await client.list_all(WORKLOADS, namespace=TEAM)
    return sum(b'"type":"Finished"' in raw for raw in page.items) >= wanted


def _memory(process: anyio.abc.Process) -> dict[str, float]:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return {name: round(int(kib) / 1024, 1) for name, kib in _MEMORY.findall(text)}


def _peaks(counts: Path, *, since: float) -> dict[str, float]:
    """The most requests in any second since then, of all agents, of the manager, and in total."""
    by: dict[str, Counter[int]] = {"agent": Counter(), "mk-manager": Counter(), "all": Counter()}
    for line in counts.read_text().splitlines():
        tick, agent, count = line.split()
        if int(tick) >= since * TICKS:
            for name in {agent, "all"} & by.keys():
                by[name][int(tick)] += int(count)
    return {
        f"peak_per_second_{name}": float(
            max((sum(ticks[tick + more] for more in range(TICKS)) for tick in ticks), default=0)
        )
        for name, ticks in by.items()
    }
