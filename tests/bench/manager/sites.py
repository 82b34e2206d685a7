# SPDX-License-Identifier: Apache-2.0
"""The processes of a federation that a bench measures: the hub, the manager, and the agents of all workers in its own.

An agent is the real one, and its worker is an embedded API server in the process of the bench.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic

import anyio
import anyio.abc
import orjson

from devcluster import kubeconfigs
from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.storage.durable import SqliteJournal
from multikueue.api.resource import MULTIKUEUE_CLUSTERS
from multikueue.kube.errors import KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.bench.manager.counted_hub import TICKS
from tests.bench.manager.crowd import SETTINGS
from tests.support.embedded import api_server
from tests.support.managers import condition
from tests.support.push_workers import kubeconfigs_of
from worker_agent.app import Agent
from worker_agent.hub.mailbox import Mailbox
from worker_agent.options import HUB_BURST, HUB_QPS

PATIENCE = 300.0
_MEMORY = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Site:
    """One worker: its agent, and clients of the hub (the agent's) and of the worker."""

    agent: Agent
    hub: KubeClient
    worker: KubeClient


@dataclass(frozen=True, slots=True)
class HubPlace:
    """Where the hub serves, and the files of a run."""

    folder: Path
    port: int

    @property
    def kubeconfig(self) -> dict[str, object]:
        """That of an administrator."""
        return {**kubeconfigs_of(f"http://127.0.0.1:{self.port}"), "users": [{"name": "own", "user": {}}]}

    @property
    def counts(self) -> Path:
        """What the hub was asked."""
        return self.folder / "counts"

    def hub_command(self, database: Path) -> tuple[str, ...]:
        """What serves that database there, and counts."""
        module = "tests.bench.manager.counted_hub"
        return sys.executable, "-m", module, str(database), str(self.port), str(self.counts)

    def manager_command(self, *, health: int, metrics: int = 0) -> tuple[str, ...]:
        """The manager, with files that this writes."""
        kubeconfig, settings = self.folder / "kubeconfig", self.folder / "settings.yaml"
        kubeconfig.write_bytes(kubeconfigs.dump(self.kubeconfig))
        settings.write_text(SETTINGS)
        return (
            *(sys.executable, "-m", "manager", f"--kubeconfig={kubeconfig}", "--no-webhooks", "--log-level=error"),
            *(f"--config={settings}", f"--health-bind=127.0.0.1:{health}", f"--metrics-bind=127.0.0.1:{metrics}"),
        )


@asynccontextmanager
async def running_process(*command: str) -> AsyncIterator[anyio.abc.Process]:
    """A process, killed in the end."""
    async with await anyio.open_process(command, stdout=None, stderr=None, env=dict(os.environ)) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


@asynccontextmanager
async def running_site(hub_kubeconfig: dict[str, object], name: str, where: Path) -> AsyncIterator[Site]:
    """A worker, and its agent that does not run yet."""
    async with Listener(api_server(journal=SqliteJournal(where))) as listener:
        own = credentials.from_dict({**kubeconfigs_of(listener.url), "users": [{"name": "own", "user": {}}]})
        to_hub = KubeClient(credentials.from_dict(hub_kubeconfig), user_agent="agent", qps=HUB_QPS, burst=HUB_BURST)
        async with KubeClient(own) as worker, to_hub:
            yield Site(Agent(to_hub, worker, cluster=name, random=Random(name)), to_hub, worker)


async def start_agents(sites: Iterable[Site], tasks: anyio.abc.TaskGroup) -> None:
    """Start them one after the other: a bench has many machines in one process, and their start is not its subject."""
    for site in sites:
        tasks.start_soon(site.agent.run)
        await until(partial(all_connected, [site]), f"the agent of {site.agent.cluster} is connected")


async def until(probe: Callable[[], object], what: str, *, every: float = 0.1) -> None:
    """Wait until the probe returns something true, or an awaitable of it. Raises `TimeoutError`."""
    with anyio.move_on_after(PATIENCE):
        while True:
            found = probe()
            if hasattr(found, "__await__"):
                found = await found
            if found:
                return
            await anyio.sleep(every)
    raise TimeoutError(f"not within {PATIENCE:.0f} s: {what}")


async def answers(client: KubeClient) -> bool:
    """Whether the server is ready."""
    try:
        await client.request("GET", "/readyz")
    except KubeError:
        return False
    return True


def all_connected(sites: Iterable[Site], *, since: float = 0.0) -> bool:
    """Whether each has renewed its lease since then, follows its mailbox, and has nothing left to report."""
    return all(
        site.agent.heartbeat.valid(within=monotonic() - since)
        and isinstance(site.agent.mailbox, Mailbox)
        and site.agent.mailbox.informer.synced.is_set()
        and site.agent.mailbox.informer.connected
        and not site.agent.status_reporter.unsent
        for site in sites
    )


async def all_active(client: KubeClient) -> bool:
    """Whether every cluster is."""
    page = await client.list_all(MULTIKUEUE_CLUSTERS)
    return all(condition(orjson.loads(raw), "Active").get("status") == "True" for raw in page.items)


def memory_mib(process: anyio.abc.Process) -> dict[str, float]:
    """What is resident, and the most that was, as `VmRSS` and `VmHWM`."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return {name: round(int(kib) / 1024, 1) for name, kib in _MEMORY.findall(text)}


@dataclass(frozen=True, slots=True)
class Requests:
    """How many requests a client sent to the hub: the most in any second, and on the average of a second."""

    peak: float
    mean: float


def requests_between(lines: Iterable[str], *, since: float, until: float) -> dict[str, Requests]:
    """The requests in that time of all agents, of the manager, and in total, from the counts of the hub."""
    by: dict[str, Counter[int]] = {"agent": Counter(), "mk-manager": Counter(), "all": Counter()}
    for line in lines:
        tick, client, count = line.split()
        if since * TICKS <= int(tick) <= until * TICKS:
            for name in {client, "all"} & by.keys():
                by[name][int(tick)] += int(count)
    return {
        name: Requests(
            peak=float(max((sum(ticks[tick + more] for more in range(TICKS)) for tick in ticks), default=0)),
            mean=round(ticks.total() / (until - since), 1),
        )
        for name, ticks in by.items()
    }
