# SPDX-License-Identifier: Apache-2.0
"""How many writes a Job costs over its life: the table "Writes" of docs/concepts/federation.md, counted.

The management cluster is a real one, the workers are embedded API servers. Manager and agents have clients of their
own, which count what they send; the test makes the Jobs and lets their copies run and end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

import anyio
import pytest

from manager.dispatch.controller import DispatchController
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, NODES
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.devcluster.apiserver.listener import Listener
from multikueue.devcluster.cluster import Cluster
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from tests.support.agents import agent_client, make_node
from tests.support.embedded import api_server
from tests.support.managers import (
    condition,
    eventually,
    get,
    make_job,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
)
from tests.support.push_workers import kubeconfigs_of
from tests.support.workers import SCALED_DOWN, FakeWorker, make_check
from worker_agent.app import Agent
from worker_agent.heartbeat import Rhythm

pytestmark = [pytest.mark.anyio, pytest.mark.binaries, pytest.mark.xdist_group("binaries")]

JOB_COUNT = 8
NAMESPACE = "writes"
CLUSTERS = ("writes-1", "writes-2", "writes-3")
RHYTHM = Rhythm(renew_seconds=2.0, lease_seconds=10, report_seconds=1.0, status_window_seconds=0.2)
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
# What is written for all Jobs together, once a while.
SHARED = frozenset({"leases", "clusterreports/status", "clusterqueues/status", "localqueues/status", "events"})


@dataclass
class Worker:
    """A worker cluster with its agent's two clients."""

    name: str
    client: KubeClient
    to_hub: KubeClient
    to_worker: KubeClient

    async def empty(self) -> bool:
        """Whether no copy is left."""
        return not (await self.client.list_all(JOBS, namespace=NAMESPACE)).items

    async def let_run(self) -> None:
        """Let each copy run, and end a moment later, until cancelled."""
        async with anyio.create_task_group() as tasks:
            met: set[str] = set()
            while True:
                page = await self.client.list_all(JOBS, namespace=NAMESPACE)
                for raw in page.items:
                    name = raw.partition(b'"name":"')[2].partition(b'"')[0].decode()
                    if name not in met:
                        met.add(name)
                        tasks.start_soon(self._run, name)
                await anyio.sleep(0.02)

    async def _run(self, name: str) -> None:
        now = format_time(SystemClock().now())
        running = {"active": 1, "ready": 0, "startTime": now}
        for status in (running, running | {"ready": 1}):
            await self.client.patch(JOBS, name, {"status": status}, namespace=NAMESPACE, subresource="status")
        await anyio.sleep(3 * RHYTHM.status_window_seconds)
        stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": "CompletionsReached"}
        ended = {
            "active": 0,
            "ready": 0,
            "succeeded": 1,
            "completionTime": now,
            "conditions": [{"type": "SuccessCriteriaMet", **stamp}, {"type": "Complete", "message": "done", **stamp}],
        }
        await self.client.patch(JOBS, name, {"status": ended}, namespace=NAMESPACE, subresource="status")


@asynccontextmanager
async def worker(hub: Cluster, admin: KubeClient, name: str) -> AsyncIterator[Worker]:
    """A worker cluster of one node, enrolled."""
    await FakeWorker(admin, name).enrol()
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(Listener(api_server()))
        where = credentials.from_dict({**kubeconfigs_of(listener.url), "users": [{"name": "own", "user": {}}]})
        clients = [await stack.enter_async_context(KubeClient(where)) for _ in range(2)]
        to_hub = await stack.enter_async_context(agent_client(hub, name))
        await make_namespace(clients[0], NAMESPACE)
        await make_node(clients[0], f"{name}-node", cpu="64")
        await clients[0].patch(NODES, f"{name}-node", {"spec": {"taints": None}})
        yield Worker(name, clients[0], to_hub, clients[1])


class Meter:
    """The writes of some clients from now on, for each Job."""

    def __init__(self, *sent: Counter[tuple[str, str]]) -> None:
        self._sent = sent
        self._before = self._all()

    def writes(self) -> dict[str, float]:
        """As `VERB resource`, rounded, for a Job here or there is told once more; not what is for all together."""
        found = self._all() - self._before
        return {
            f"{verb} {resource}": round(count / JOB_COUNT)
            for (verb, resource), count in found.items()
            if verb in WRITES and resource not in SHARED and round(count / JOB_COUNT)
        }

    def _all(self) -> Counter[tuple[str, str]]:
        return sum(self._sent, Counter())


async def test_a_job_costs_no_more_writes_than_the_table_says(hub: Cluster, client: KubeClient) -> None:
    await make_check(client, NAMESPACE, CLUSTERS)
    await make_queue(client, NAMESPACE, namespace=NAMESPACE, cpu="100", checks=(NAMESPACE,))
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(hub, client, name)) for name in CLUSTERS]
        manager = await stack.enter_async_context(
            running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController)
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for each in workers:
            agent = Agent(each.to_hub, each.to_worker, cluster=each.name, rhythm=RHYTHM, random=Random(1))
            tasks.start_soon(agent.run)
            tasks.start_soon(each.let_run)
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, NAMESPACE),
            what="the queue is active",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        await anyio.sleep(RHYTHM.report_seconds * 1.5)  # all have reported, and the hub has read it
        by_manager = Meter(manager.statuses.requests_sent)
        by_agents = Meter(*(each.to_hub.requests_sent for each in workers))
        on_workers = Meter(*(each.to_worker.requests_sent for each in workers))

        for number in range(JOB_COUNT):
            await make_job(client, f"j{number}", namespace=NAMESPACE, queue=NAMESPACE)
        for number in range(JOB_COUNT):
            await wait_condition(client, f"j{number}", "Finished", namespace=NAMESPACE, reason="Succeeded")
        for each in workers:
            await eventually(each.empty, what=f"nothing is left on {each.name}")
        tasks.cancel_scope.cancel()
    assert by_manager.writes() == {
        "POST workloads": 1,
        "APPLY workloads/status": 3,
        "POST remoteassignments": 1,
        "PATCH jobs": 1,
        "PATCH jobs/status": 2,
        "PATCH workloads": 1,
        "DELETE remoteassignments": 1,
    }
    assert by_agents.writes() == {"PATCH remoteassignments/status": 2}
    assert on_workers.writes() == {"POST jobs": 1, "DELETE jobs": 1}
