# SPDX-License-Identifier: Apache-2.0
"""Evictions, preemptions and priorities of work on workers, by Kueue's dispatcher and by the one of this manager.

The test plays the workers' own Kueue. By capacity, evicted work is granted anew so soon that its check is
hardly ever Pending; its second epoch shows that it was evicted.
"""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES
from tests.component.scenarios.test_roles import copy_has_priority
from tests.support.managers import eventually, finish_pods, make_job, make_queue, wait_condition
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.sites import Site
from tests.support.workers import KUEUE

pytestmark = [pytest.mark.anyio, pytest.mark.also_on_binaries]

PRIORITY = "kueue.x-k8s.io/priority-class"
both_dispatchers = pytest.mark.parametrize(
    "dispatcher",
    [
        pytest.param(DISPATCHER_CAPACITY, id="by-capacity"),
        pytest.param(DISPATCHER_ALL_AT_ONCE, id="all-at-once", marks=pytest.mark.conformance),
    ],
)


async def place(made: Scene, dispatcher: str, job: str) -> Site:
    """Where the dispatcher has sent it; the first worker where all are asked."""
    if dispatcher == DISPATCHER_ALL_AT_ONCE:
        return made.w1

    async def name() -> str:
        return str((await made.status(job)).get("clusterName") or "")

    found = await eventually(name, what=f"{job} is granted")
    return made.w1 if found == made.w1.name else made.w2


async def runs(made: Scene, dispatcher: str, job: str = "j", **more: Any) -> tuple[Site, str]:
    """A Job that runs: where, and its Workload."""
    return await starts(made, dispatcher, await made.submit(job, **more), job)


async def starts(made: Scene, dispatcher: str, workload: str, job: str) -> tuple[Site, str]:
    """The same for one that holds quota."""
    site = await place(made, dispatcher, job)
    await site.admits(workload)
    await site.starts(job)
    await made.job_says("ready", 1, job=job)
    return site, workload


async def runs_again(made: Scene, dispatcher: str, workload: str, job: str) -> None:
    """It is dispatched a second time, and ends."""
    site = await place(made, dispatcher, job)
    await site.admits(workload, epoch=2)
    await site.starts(job, epoch=2)
    await site.ends(job)
    await made.finished(job)


async def make_classes(made: Scene) -> dict[str, dict[str, str]]:
    """The labels of Jobs of a low and of a high priority."""
    for name, value in (("low", 10), ("high", 20)):
        metadata = {"name": f"{made.name}-{name}"}
        body = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": metadata, "value": value}
        await made.client.create(WORKLOAD_PRIORITY_CLASSES, body)
    return {name: {PRIORITY: f"{made.name}-{name}"} for name in ("low", "high")}


@both_dispatchers
async def test_a_queue_of_workers_and_an_ordinary_one_serve_a_namespace(stage: Stage, dispatcher: str) -> None:
    async with scene(stage, f"beside-{dispatcher}", configuration=settings(dispatcherName=dispatcher)) as made:
        plain = f"{made.name}-plain"
        await make_queue(made.client, plain, namespace=made.namespace)
        await make_job(made.client, "local", namespace=made.namespace, queue=plain)
        site, _ = await runs(made, dispatcher)
        await eventually(
            lambda: finish_pods(made.client, "local", namespace=made.namespace),
            what="it runs here",
            until=lambda count: count > 0,
        )
        await wait_condition(made.client, "local", "Finished", namespace=made.namespace, reason="Succeeded")
        await site.ends("j")
        await made.finished()
        await made.client.delete(LOCAL_QUEUES, plain, namespace=made.namespace)
        await made.client.delete(CLUSTER_QUEUES, plain)


@both_dispatchers
async def test_work_that_its_worker_evicts_is_dispatched_anew(stage: Stage, dispatcher: str) -> None:
    async with scene(stage, f"evicted-{dispatcher}", configuration=settings(dispatcherName=dispatcher)) as made:
        site, workload = await runs(made, dispatcher)
        await site.evicts(workload, "j")
        await site.cleaned("j")
        await runs_again(made, dispatcher, workload, "j")
        assert await made.evictions() == 1


@both_dispatchers
async def test_work_that_another_one_preempts_on_its_worker_comes_again(stage: Stage, dispatcher: str) -> None:
    configuration = settings(dispatcherName=dispatcher)
    async with scene(stage, f"there-{dispatcher}", clusters=(1,), configuration=configuration) as made:
        _, low = await runs(made, dispatcher, "low")
        high = await made.submit("high")
        await made.w1.asked(high)
        await made.w1.evicts(low, "low")
        await made.w1.admits(high)
        await made.w1.starts("high")
        await made.w1.cleaned("low")
        await made.w1.asked(low, epoch=2)
        await made.w1.ends("high")
        await made.finished("high")
        await runs_again(made, dispatcher, low, "low")


@both_dispatchers
async def test_work_that_the_hub_preempts_leaves_its_worker_and_comes_again(stage: Stage, dispatcher: str) -> None:
    async with scene(stage, f"here-{dispatcher}", configuration=settings(dispatcherName=dispatcher)) as made:
        labels = await make_classes(made)
        flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
        small = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
        spec = {**small, "preemption": {"withinClusterQueue": "LowerPriority"}}
        await made.client.patch(CLUSTER_QUEUES, made.name, {"spec": spec})
        former, low = await runs(made, dispatcher, "low", labels=labels["low"])
        await make_job(made.client, "high", namespace=made.namespace, queue=made.name, labels=labels["high"])
        await former.told_to_evict(low)
        await former.stops("low")
        high = await wait_condition(made.client, "high", "QuotaReserved", namespace=made.namespace)
        await former.cleaned("low")
        site, _ = await starts(made, dispatcher, str(high["metadata"]["name"]), "high")
        await site.ends("high")
        await made.finished("high")
        await runs_again(made, dispatcher, low, "low")


@both_dispatchers
async def test_another_priority_class_of_the_job_reaches_its_workload_on_the_worker(
    stage: Stage, dispatcher: str
) -> None:
    configuration = settings(dispatcherName=dispatcher)
    async with scene(stage, f"class-{dispatcher}", clusters=(1,), configuration=configuration) as made:
        labels = await make_classes(made)
        _, workload = await runs(made, dispatcher, labels=labels["low"])
        await copy_has_priority(made, workload, 10)
        await made.client.patch(JOBS, "j", {"metadata": {"labels": labels["high"]}}, namespace=made.namespace)
        await copy_has_priority(made, workload, 20)
        await made.w1.ends("j")
        await made.finished()
