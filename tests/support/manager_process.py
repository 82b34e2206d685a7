# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.support.manager_process`: the manager with shorter times of the push transport.

Owns that process as tests use it, too: on free ports beside a hub, with settings that a test may change. It takes the
flags of `python -m manager`; what it runs is that program.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import aiohttp

import manager.__main__ as program
from devcluster.cluster import Cluster
from devcluster.federation import roles
from devcluster.ports import PortRegistry
from devcluster.processes.process import Process
from manager.dispatch.controller import DispatchController
from manager.dispatch.transport.push_hosts import PushSettings
from multikueue.core.backoff import Backoff
from worker_agent.hub.heartbeat import AgentIntervals

INTERVALS = AgentIntervals(
    renew_seconds=0.4, lease_seconds=3, report_seconds=1.0, status_window_seconds=0.1, pod_start_seconds=0.5
)
PUSH = PushSettings(intervals=INTERVALS, backoff=Backoff(base=0.2, cap=1.0), first_read_seconds=10.0)


class ManagerProcess:
    """The manager of a hub. An async context manager: it runs from entry to exit."""

    def __init__(self, hub: Cluster, *, folder: Path, settings: str) -> None:
        self._settings = settings
        self._ports = PortRegistry()
        self._file = folder / "manager.yaml"
        self.webhooks, self.metrics, health = (self._ports.take() for _ in range(3))
        ports = roles.ManagerPorts(webhooks=self.webhooks, metrics=self.metrics, health=health)
        spec = roles.manager(folder, kubeconfig=hub.kubeconfig, configuration=self._file, ports=ports, extra=())
        arguments = ["tests.support.manager_process" if each == "manager" else each for each in spec.arguments]
        self.process = Process(replace(spec, arguments=arguments, folder=Path(__file__).parents[2]))

    async def __aenter__(self) -> ManagerProcess:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.process.stop()
        self._ports.close()

    async def start(self, settings: str | None = None) -> None:
        """Start it, with other settings where given."""
        self._settings = self._settings if settings is None else settings
        self._file.write_text(self._settings)
        await self.process.start()

    async def stop(self) -> None:
        """End it in good order."""
        await self.process.stop()

    async def read_metrics(self) -> str:
        """What it counts, as Prometheus reads it."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.metrics}/metrics") as found:
            return await found.text()

    async def use(self, settings: str) -> None:
        """Have those settings: it is started anew when it has others, or does not run."""
        if self._settings == settings and self.process.running:
            return
        await self.stop()
        await self.start(settings)


if __name__ == "__main__":
    sys.exit(program.main(dispatch=partial(DispatchController, push=PUSH)))
