# SPDX-License-Identifier: Apache-2.0
"""The default dispatcher with agents that report: more work than capacity, preferences, and why something waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import orjson
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, MULTIKUEUE_CLUSTERS, NODES, REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import make_node
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    job_manifest,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.names import unique_name
from tests.support.pull_workers import INTERVALS, PullWorker, pull_worker
from tests.support.workers import SCALED_DOWN, check_of, make_check

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


@asynccontextmanager
async def served(hub: Cluster, client: KubeClient, name: str, *cpus: str) -> AsyncIterator[list[PullWorker]]:
    """A queue over workers with that much cpu each, a manager, and their agents."""
    clusters = tuple(f"{name}-{number}" for number in range(1, len(cpus) + 1))
    await make_check(client, name, clusters)
    await make_queue(client, name, namespace=name, cpu="100", checks=(name,))
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(pull_worker(hub, client, each, namespace=name, cpu=cpu))
            for each, cpu in zip(clusters, cpus, strict=True)
        ]
        await stack.enter_async_context(running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for each in workers:
            tasks.start_soon(each.agent().run)
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, name),
            what="the queue is active",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        await anyio.sleep(INTERVALS.report_seconds * 1.5)  # all have reported, and the hub has read it
        stack.callback(tasks.cancel_scope.cancel)
        for each in workers:
            tasks.start_soon(each.let_run)
        yield workers


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return unique_name(request.node.name)


async def assignments(client: KubeClient, workers: list[PullWorker]) -> list[Object]:
    """Those of these workers; what other tests of the hub left behind is none of this one's business."""
    pages = [await client.list_all(REMOTE_ASSIGNMENTS, namespace=mailbox_namespace(each.name)) for each in workers]
    return [orjson.loads(raw) for page in pages for raw in page.items]


async def test_more_work_than_capacity_waits_here_and_goes_where_capacity_is_released(
    hub: Cluster, client: KubeClient, name: str
) -> None:
    async with served(hub, client, name, "2", "1") as workers:
        for number in range(9):
            await make_job(client, f"j{number}", namespace=name, queue=name)
        for number in range(9):
            workload = await wait_condition(client, f"j{number}", "Finished", namespace=name, reason="Succeeded")
            assert "evictions" not in (workload["status"].get("schedulingStats") or {}), "nobody had to refuse"
    ran = [job for each in workers for job in each.ran]
    assert sorted(ran) == [f"j{number}" for number in range(9)], "one copy of each"
    assert len(workers[0].ran) > len(workers[1].ran) > 0


async def test_why_it_waits_is_shown_and_a_pin_is_kept(hub: Cluster, client: KubeClient, name: str) -> None:
    async with served(hub, client, name, "2", "4") as workers:
        body = job_manifest("pinned", namespace=name, queue=name, cpu="3")
        body["metadata"]["annotations"] = {"multikueue.io/clusters": workers[0].name}
        await client.create(JOBS, body, namespace=name)
        found = await eventually(
            lambda: workload_of(client, "pinned", namespace=name),
            what="the check says why it waits",
            until=lambda seen: "even when it is empty" in check_of(seen, name).get("message", ""),
        )
        assert check_of(found, name)["message"] == (
            f"Waiting for a worker cluster: {workers[0].name}: insufficient capacity even when it is empty: "
            f"short 1 cpu on one node; "
            f"{workers[1].name}: pinned to {workers[0].name}"
        )
        assert found is not None
        unpinned = {"metadata": {"annotations": {"multikueue.io/clusters": ""}}}
        await client.patch(WORKLOADS, found["metadata"]["name"], unpinned, namespace=name)
        await wait_condition(client, "pinned", "Finished", namespace=name, reason="Succeeded")
    assert workers[1].ran == ["pinned"]


async def test_the_score_of_each_cluster_is_in_the_assignment(hub: Cluster, client: KubeClient, name: str) -> None:
    async with served(hub, client, name, "2", "4") as workers:
        for each in workers:
            each.run_for = 2.0
        await make_job(client, "j", namespace=name, queue=name)
        (found,) = await eventually(lambda: assignments(client, workers), what="it is sent")
        assert found["spec"]["intent"] == "Run"
        verdicts = found["metadata"]["annotations"]["multikueue.io/verdicts"]
        assert verdicts.startswith(f"{workers[0].name}: score ")
        assert f"; {workers[1].name}: score " in verdicts
        await wait_condition(client, "j", "Finished", namespace=name, reason="Succeeded")


async def test_a_changed_preference_and_a_cluster_that_now_matches_one_are_noticed(
    hub: Cluster, client: KubeClient, name: str
) -> None:
    desired = {
        "pinned": {"multikueue.io/clusters": "nowhere"},
        "choosy": {"multikueue.io/cluster-selector": "tier=gold"},
    }
    async with served(hub, client, name, "2", "2") as workers:
        for job, annotations in desired.items():
            body = job_manifest(job, namespace=name, queue=name)
            body["metadata"]["annotations"] = annotations
            await client.create(JOBS, body, namespace=name)
        for job in desired:
            await eventually(
                partial(workload_of, client, job, namespace=name),
                what=f"the check says why {job} waits",
                until=lambda seen: "Waiting for a worker cluster" in check_of(seen, name).get("message", ""),
            )
        pin = {"metadata": {"annotations": {"multikueue.io/clusters": workers[0].name}}}
        await client.patch(JOBS, "pinned", pin, namespace=name)
        await client.patch(MULTIKUEUE_CLUSTERS, workers[1].name, {"metadata": {"labels": {"tier": "gold"}}})
        for job in desired:
            await wait_condition(client, job, "Finished", namespace=name, reason="Succeeded")
    assert (workers[0].ran, workers[1].ran) == (["pinned"], ["choosy"])


async def test_workers_without_nodes_are_asked_at_once(hub: Cluster, client: KubeClient, name: str) -> None:
    async with served(hub, client, name, "2", "2") as workers:
        for each in workers:
            await each.client.delete(NODES, f"{each.name}-node")
        await anyio.sleep(INTERVALS.report_seconds * 1.5)  # the hub has heard of that
        await make_job(client, "j", namespace=name, queue=name)
        found = await eventually(
            lambda: assignments(client, workers),
            what="both are asked",
            deadline=10,  # well before a workload that no cluster has capacity for is sent anywhere
            until=lambda seen: len(seen) == 2,
        )
        assert {each["spec"]["intent"] for each in found} == {"Reserve"}
        await make_node(workers[0].client, f"{workers[0].name}-node")
        await workers[0].client.patch(NODES, f"{workers[0].name}-node", {"spec": {"taints": None}})
        await wait_condition(client, "j", "Finished", namespace=name, reason="Succeeded")
    assert workers[0].ran == ["j"]
