# SPDX-License-Identifier: Apache-2.0
"""The tested parts of a fuzzed federation: managers and agent, as tasks, or as processes to measure their memory."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from devcluster import kubeconfigs, probes
from devcluster.federation import enrolment
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.processes.process import Process, ProcessSpec
from manager.app import Dispatch, Manager
from manager.dispatch.controller import DispatchController
from manager.options import ManagerOptions
from multikueue.api import configuration_file
from multikueue.core.clock import SystemClock
from multikueue.testing.in_process import InProcessCluster
from tests.security.fuzz.catalogue import HUB, PULL, PUSH
from tests.security.fuzz.parts import Part, ProcessPart, TaskPart
from tests.support.manager_process import PUSH as PUSH_SETTINGS
from worker_agent.app import Agent
from worker_agent.hub.heartbeat import AgentIntervals

if TYPE_CHECKING:
    from tests.security.fuzz.federation import Fuzzed

SETTINGS: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
integrations: {frameworks: [batch/job]}
multiKueue: {workerLostTimeout: 5s, gcInterval: 2s}
featureGates: {ElasticJobsViaWorkloadSlices: true}
"""
MANAGER_USER: Final = "manager"
AGENT_USER: Final = "agent"
AGENT_PART: Final = "agent"
_CHECKOUT: Final = Path(__file__).parents[3]
_INTERVALS: Final = AgentIntervals(
    renew_seconds=0.4, lease_seconds=5, report_seconds=1.0, status_window_seconds=0.1, gc_seconds=2.0
)


def tasks(made: Fuzzed) -> list[Part]:
    """The parts as tasks of this event loop."""
    agents: list[Agent] = []
    managers: dict[str, Manager] = {}

    async def manage(cluster: InProcessCluster, dispatch: Dispatch | None) -> None:
        url = f"https://{LOOPBACK}:{made.webhooks}" if made.webhooks and dispatch else None
        options = ManagerOptions(
            webhooks=url is not None,
            webhook_url=url,
            visibility_bind="0",
            leader_election=False,
            metrics_bind=f"{LOOPBACK}:0",
            health_bind=f"{LOOPBACK}:0",
        )
        async with cluster.client(MANAGER_USER if dispatch else AGENT_USER) as client:
            settings = configuration_file.load(SETTINGS)
            manager = managers[cluster.name] = Manager(
                settings, client, options=options, clock=SystemClock(), random=Random(1), dispatch=dispatch
            )
            if dispatch:
                made.manager = manager
            await manager.run()

    async def serve() -> None:
        async with made.hub.client(enrolment.agent_user(PULL)) as hub, made.clusters[PULL].client(AGENT_USER) as worker:
            agent = Agent(hub, worker, cluster=PULL, intervals=_INTERVALS, random=Random(1))
            agents[:] = [agent]
            await agent.run()

    async def agent_problem() -> str | None:
        return agents[0].problem if agents else "not made yet"

    async def manager_problem(name: str) -> str | None:
        manager = managers.get(name)
        if manager is None or not manager.leading:
            return "it does not lead"
        waiting = manager.caches.waiting_for
        return f"it waits for the first list of {', '.join(waiting)}" if waiting else None

    dispatch = partial(DispatchController, push=PUSH_SETTINGS)
    return [
        TaskPart(
            "manager",
            made.tasks,
            lambda: manage(made.hub, dispatch),
            problem=lambda: manager_problem(HUB),
            partition=lambda: made.partitioned(MANAGER_USER),
        ),
        TaskPart(
            AGENT_PART,
            made.tasks,
            serve,
            problem=agent_problem,
            partition=lambda: made.partitioned(enrolment.agent_user(PULL), AGENT_USER),
        ),
        TaskPart(
            "manager of far",
            made.tasks,
            lambda: manage(made.clusters[PUSH], None),
            problem=lambda: manager_problem(PUSH),
        ),
    ]


def processes(made: Fuzzed, ports: PortRegistry, folder: Path) -> list[Part]:
    """The parts as processes, with their files in the folder."""
    settings = folder / "manager.yaml"
    settings.write_text(SETTINGS)

    def kubeconfig(cluster: str, user: str) -> Path:
        config = made.clusters[cluster].kubeconfig(user)
        return kubeconfigs.write(config, folder / f"{cluster}-{user.replace(':', '-')}.kubeconfig")

    def part(name: str, module: str, health: int, path: str, *flags: str) -> Part:
        async def answers() -> bool:
            return await probes.answers_ok(f"http://{LOOPBACK}:{health}{path}")

        async def problem() -> str | None:
            return None if await answers() else f"{path} is not answered"

        arguments = (sys.executable, "-m", module, f"--health-bind={LOOPBACK}:{health}", *flags)
        log = folder / f"{name.replace(' ', '-')}.log"
        spec = ProcessSpec(name=name, arguments=arguments, folder=_CHECKOUT, log=log, ready=answers)
        return ProcessPart(name, Process(spec), problem=problem)

    common = (f"--config={settings}", "--no-leader-elect", f"--metrics-bind={LOOPBACK}:0")
    asked = ("--no-webhooks",)
    if made.webhooks:
        asked = (f"--webhook-url=https://{LOOPBACK}:{made.webhooks}",)
    intervals = (
        f"--renew-seconds={_INTERVALS.renew_seconds}",
        f"--lease-seconds={_INTERVALS.lease_seconds}",
        f"--report-seconds={_INTERVALS.report_seconds}",
        f"--status-window-seconds={_INTERVALS.status_window_seconds}",
        f"--gc-seconds={_INTERVALS.gc_seconds}",
    )
    hub, to_hub = kubeconfig(HUB, MANAGER_USER), kubeconfig(HUB, enrolment.agent_user(PULL))
    near, far = kubeconfig(PULL, AGENT_USER), kubeconfig(PUSH, AGENT_USER)
    ready = "/readyz"
    return [
        part("manager", "tests.support.manager_process", ports.take(), ready, f"--kubeconfig={hub}", *common, *asked),
        part(
            AGENT_PART,
            "worker_agent",
            ports.take(),
            ready,
            f"--cluster={PULL}",
            f"--hub-kubeconfig={to_hub}",
            f"--kubeconfig={near}",
            *intervals,
        ),
        part("manager of far", "manager", ports.take(), ready, f"--kubeconfig={far}", *common, "--no-webhooks"),
    ]
