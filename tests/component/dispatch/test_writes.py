# SPDX-License-Identifier: Apache-2.0
"""How many writes a Job costs over its life: the table "Writes" of docs/concepts/federation.md, counted.

The management cluster is a real one, the workers are embedded API servers. Manager and agents have clients of their
own, which count what they send; the test makes the Jobs and lets their copies run and end.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import anyio
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import MAILBOX_OBJECT_NAME
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_QUEUES, CLUSTER_REPORTS
from multikueue.kube.rest.client import KubeClient
from tests.support import pull_workers
from tests.support.managers import (
    condition,
    eventually,
    get,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
)
from tests.support.names import unique_name
from tests.support.pull_workers import pull_worker
from tests.support.workers import SCALED_DOWN, make_check

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

JOB_COUNT = 8
# A slow machine takes longer than the usual windows of tests from "it runs" to "it is ready", which are one report.
INTERVALS = replace(pull_workers.INTERVALS, status_window_seconds=1.0)
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
# What is written for all Jobs together, once a while.
SHARED = frozenset({"leases", "clusterreports/status", "clusterqueues/status", "localqueues/status", "events"})


class Meter:
    """The writes of some clients from now on, for each Job."""

    def __init__(self, *sent: Counter[tuple[str, str]]) -> None:
        self._sent = sent
        self._before = self._all()

    def writes(self) -> dict[str, int]:
        """As `VERB resource`, without what a slow machine adds or saves here or there, nor what is for all together."""
        found = self._all() - self._before
        each = {
            f"{verb} {resource}": (count + JOB_COUNT // 4) // JOB_COUNT
            for (verb, resource), count in found.items()
            if verb in WRITES and resource not in SHARED
        }
        return {write: count for write, count in each.items() if count}

    def _all(self) -> Counter[tuple[str, str]]:
        return sum(self._sent, Counter())


async def reported(client: KubeClient, cluster: str) -> bool:
    """Whether the cluster's agent has reported its capacity."""
    report = await get(client, CLUSTER_REPORTS, MAILBOX_OBJECT_NAME, namespace=mailbox_namespace(cluster))
    return bool((report or {}).get("status"))


async def live(client: KubeClient, namespace: str, *names: str) -> None:
    """Jobs from their creation to their success."""
    for name in names:
        await make_job(client, name, namespace=namespace, queue=namespace)
    for name in names:
        await wait_condition(client, name, "Finished", namespace=namespace, reason="Succeeded")


async def test_a_job_costs_no_more_writes_than_the_table_says(hub: Cluster, client: KubeClient) -> None:
    namespace = unique_name("writes")
    clusters = tuple(f"{namespace}-{number}" for number in (1, 2, 3))
    await make_check(client, namespace, clusters)
    await make_queue(client, namespace, namespace=namespace, cpu="100", checks=(namespace,))
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(pull_worker(hub, client, name, namespace=namespace)) for name in clusters
        ]
        manager = await stack.enter_async_context(
            running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController)
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for each in workers:
            each.intervals, each.run_for = INTERVALS, 3 * INTERVALS.status_window_seconds
            tasks.start_soon(each.agent().run)
            tasks.start_soon(each.let_run)
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, namespace),
            what="the queue is active",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        for name in clusters:
            await eventually(partial(reported, client, name), what=f"{name} reports its capacity")
        # By the end of its life the hub has read all that came before it.
        await live(client, namespace, "first")
        for each in workers:
            await eventually(each.empty, what=f"nothing is left on {each.name}")
        by_manager = Meter(manager.statuses.requests_sent)
        by_agents = Meter(*(each.to_hub.requests_sent for each in workers))
        on_workers = Meter(*(each.to_worker.requests_sent for each in workers))

        await live(client, namespace, *(f"j{number}" for number in range(JOB_COUNT)))
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
