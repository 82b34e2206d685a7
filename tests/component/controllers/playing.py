# SPDX-License-Identifier: Apache-2.0
"""Plays all scenarios and cases on one cluster at once, and what a real cluster showed when they were recorded.

`python -m tests.component.controllers.playing KUBECONFIG` records anew, on a real cluster with virtual nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import anyio
import orjson

from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from multikueue.api.resource import NODES
from multikueue.kube.errors import KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.component.controllers import cluster_cases, scenarios
from tests.component.controllers.app_cases import APP_CASES
from tests.component.controllers.budget_cases import BUDGET_CASES
from tests.component.controllers.cluster_cases import CASES
from tests.component.controllers.cron_cases import CRON_CASES
from tests.component.controllers.daemon_cases import DAEMON_CASES
from tests.component.controllers.daemon_node_cases import DAEMON_NODE_CASES
from tests.component.controllers.endpoint_cases import ENDPOINT_CASES
from tests.component.controllers.job_scenarios import SCENARIOS
from tests.component.controllers.stateful_cases import STATEFUL_CASES

ALL_CASES: Final = (
    *(*CASES, *CRON_CASES, *ENDPOINT_CASES, *APP_CASES, *STATEFUL_CASES),
    *(*DAEMON_CASES, *DAEMON_NODE_CASES, *BUDGET_CASES),
)
_NODES: Final = 2
_AT_ONCE: Final = 60
"""With more at a time, controllers on two cores are late beyond what a case waits."""
_NODE_SECONDS: Final = 60.0
_FILE: Final = Path(__file__).parent / "recorded" / "outcomes.json"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What was to be seen, by title; the text of the failure where one did not come to its end."""

    jobs: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)


def recorded() -> Outcomes:
    """What a real cluster showed."""
    if not _FILE.exists():
        return Outcomes()
    found = orjson.loads(_FILE.read_bytes())
    return Outcomes(found["jobs"], found["cluster"])


async def play_all(client: KubeClient, *, nodes: bool = True) -> Outcomes:
    """Play everything, many at a time, on a cluster with two virtual nodes."""
    outcomes, known = Outcomes(), recorded()
    run = f"c{token_hex(3)}"

    turns = anyio.CapacityLimiter(_AT_ONCE)

    async def play(into: dict[str, Any], title: str, act: Callable[[], Awaitable[Any]]) -> None:
        async with turns:
            try:
                into[title] = await act()
            except (AssertionError, KubeError, TimeoutError) as error:
                into[title] = repr(error)

    async with anyio.create_task_group() as service:
        if nodes:
            service.start_soon(VirtualNodes(client, nodes=several(_NODES)).run)
        await _nodes_ready(client)
        async with anyio.create_task_group() as tasks:
            for number, scenario in enumerate(SCENARIOS):

                async def job(number: int = number, scenario: scenarios.Scenario = scenario) -> Any:
                    expected = known.jobs.get(scenario.title, {})
                    return await scenarios.played(client, scenario, f"{run}-{number}", expected=expected)

                tasks.start_soon(play, outcomes.jobs, scenario.title, job)
            for number, one in enumerate(ALL_CASES):

                async def case(number: int = number, one: cluster_cases.Case = one) -> Any:
                    return await cluster_cases.played(client, one, f"{run}-case-{number}")

                tasks.start_soon(play, outcomes.cluster, one.title, case)
        service.cancel_scope.cancel()
    return outcomes


async def _nodes_ready(client: KubeClient) -> None:
    """Wait until pods can be bound to both nodes: a scheduler that sees a pod before a node reports a failure."""
    with anyio.fail_after(_NODE_SECONDS):
        while True:
            nodes = (await client.request("GET", NODES.path())).json()["items"]
            if sum(not node["spec"].get("taints") for node in nodes) >= _NODES:
                return
            await anyio.sleep(0.05)


async def _record(kubeconfig: str) -> None:
    async with KubeClient(credentials.load(kubeconfig)) as client:
        found = await play_all(client, nodes=False)
    _FILE.parent.mkdir(exist_ok=True)
    content = {
        "jobs": {scenario.title: found.jobs[scenario.title] for scenario in SCENARIOS},
        "cluster": {one.title: found.cluster[one.title] for one in ALL_CASES},
    }
    _FILE.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    anyio.run(_record, sys.argv[1])
