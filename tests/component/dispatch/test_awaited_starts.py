# SPDX-License-Identifier: Apache-2.0
"""Starts of short jobs that an agent would hold back, on a hub that waits for pods to be ready.

A worker starts many jobs, and each ends long before a start that is held back would be written.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import anyio
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.resource import CLUSTER_QUEUES
from multikueue.kube.rest.client import KubeClient
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
from tests.support.pull_workers import INTERVALS, pull_worker
from tests.support.workers import PATIENT, make_check

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

JOBS_AT_ONCE = 16  # the last five of so many starts wait for more than three windows, instead of 1.5
WINDOW = 0.4
RUN_FOR = 3 * WINDOW


@pytest.mark.parametrize(
    ("waiting", "reported"),
    [
        pytest.param("{}", False, id="nothing waits for them"),
        pytest.param("{blockAdmission: true}", True, id="the next admission waits for them"),
        pytest.param("{timeout: 30s}", True, id="they have half a minute"),
    ],
)
async def test_a_start_is_written_before_the_end_where_something_waits_for_it(
    hub: Cluster, client: KubeClient, waiting: str, reported: bool
) -> None:
    name = unique_name("starts")
    await make_check(client, name, (name,))
    await make_queue(client, name, namespace=name, cpu="100", checks=(name,))
    settings = f"{PATIENT}waitForPodsReady: {waiting}\n"
    async with (
        pull_worker(hub, client, name, namespace=name) as worker,
        running_manager(hub, settings=settings, dispatch=DispatchController),
        anyio.create_task_group() as tasks,
    ):
        worker.intervals, worker.run_for = replace(INTERVALS, status_window_seconds=WINDOW), RUN_FOR
        tasks.start_soon(worker.agent().run)
        tasks.start_soon(worker.let_run)
        await eventually(
            partial(get, client, CLUSTER_QUEUES, name),
            what="the queue is active",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        jobs = [f"j{number}" for number in range(JOBS_AT_ONCE)]
        for each in jobs:
            await make_job(client, each, namespace=name, queue=name)
        ready = []
        for each in jobs:
            ended = await wait_condition(client, each, "Finished", namespace=name, reason="Succeeded")
            ready.append(condition(ended, "PodsReady").get("status") == "True")
        tasks.cancel_scope.cancel()
    assert all(ready) is reported
