# SPDX-License-Identifier: Apache-2.0
"""Workers that have queues of their own: quota there decides where work goes, and each change of it is heard of.

The test plays the workers' own Kueue: it says what is used of a ClusterQueue, and whether a queue is Active.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import anyio
import pytest

from manager.dispatch.controller import DispatchController
from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, JOBS, LOCAL_QUEUES, RESOURCE_FLAVORS
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.dispatch.hub import messages
from tests.component.scenarios.test_quotas import KIND, cpu_of, hub_queue, set_active, set_management
from tests.support.manager_process import INTERVALS, PUSH
from tests.support.managers import Object, eventually, job_manifest, make_job, running_manager, wait_condition
from tests.support.scenes import Scene, Stage, scene, settings
from tests.support.sites import Site
from tests.support.workers import check_of
from worker_agent.local.queueing.queued_work import clone_epoch

pytestmark = pytest.mark.anyio

CAPACITY = settings(dispatcherName=DISPATCHER_CAPACITY)
FOLLOWING = f"{CAPACITY}featureGates: {{{KIND}: true}}\n"
GPU = "example.com/gpu"
SOON = 10.0
"""Well before a workload that no cluster has capacity for is sent anywhere."""
NEVER = 600.0
"""How often an agent reports of itself that is to tell of changes only."""
RARE = replace(INTERVALS, report_seconds=NEVER)
PROBE_SECONDS = 3.0
"""After that a probe does not wait, but was granted to a cluster of which the hub knew nothing yet."""


def of(resource: str, amount: str, *, flavor: str = "default") -> Object:
    """The spec of a ClusterQueue with so much of one resource."""
    quotas = {"name": flavor, "resources": [{"name": resource, "nominalQuota": amount}]}
    return {"spec": {"resourceGroups": [{"coveredResources": [resource], "flavors": [quotas]}]}}


async def uses(made: Scene, site: Site, cpu: str) -> None:
    """The worker's Kueue says that others hold so much of the queue."""
    used = [{"name": "default", "resources": [{"name": "cpu", "total": cpu}]}]
    body = {"status": {"flavorsReservation": used, "flavorsUsage": used}}
    await site.client.patch(CLUSTER_QUEUES, made.name, body, subresource="status")


async def local_queue_says(made: Scene, site: Site, *, active: str, message: str = "") -> None:
    """The worker's Kueue says that of the LocalQueue."""
    entry = {"type": "Active", "status": active, "reason": "Test", "message": message}
    body = {"status": {"conditions": [{**entry, "lastTransitionTime": format_time(SystemClock().now())}]}}
    await site.client.patch(LOCAL_QUEUES, made.name, body, namespace=made.namespace, subresource="status")


async def make_local_queue(made: Scene, site: Site) -> None:
    body = {
        "apiVersion": LOCAL_QUEUES.api_version,
        "kind": LOCAL_QUEUES.kind,
        "metadata": {"name": made.name, "namespace": made.namespace},
        "spec": {"clusterQueue": made.name},
    }
    await site.client.create(LOCAL_QUEUES, body, namespace=made.namespace)


async def waits_for(made: Scene, text: str, *, job: str = "j") -> None:
    """The check of the Workload says so."""
    await eventually(
        partial(made.workload, job),
        what=f"the check says {text}",
        until=lambda seen: text in check_of(seen, made.name).get("message", ""),
    )


async def chosen(made: Scene, *, job: str = "j") -> str:
    """The cluster that was granted the workload, soon."""

    async def name() -> str:
        return str((await made.status(job)).get("clusterName") or "")

    return await eventually(name, what=f"{job} is granted", deadline=SOON)


@pytest.mark.also_on_binaries
async def test_quota_of_a_resource_that_no_node_has_yet_is_enough_to_be_dispatched_at_once(stage: Stage) -> None:
    async with scene(stage, "gpu", configuration=CAPACITY) as made:
        for client in (made.client, made.w1.client):
            await client.patch(CLUSTER_QUEUES, made.name, of(GPU, "4"))
        body = job_manifest("j", namespace=made.namespace, queue=made.name)
        body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: "2"}, "requests": {GPU: "2"}}
        await made.client.create(JOBS, body, namespace=made.namespace)
        assert await chosen(made) == made.w1.name
        workload = await wait_condition(made.client, "j", "QuotaReserved", namespace=made.namespace)
        await made.w1.admits(workload["metadata"]["name"])
        await made.w1.starts("j")
        await made.job_says("ready", 1)


def queue_text(made: Scene) -> str:
    """How messages name the queue of the scene on a worker."""
    return f"LocalQueue {made.namespace}/{made.name} of ClusterQueue {made.name}"


async def hub_knows_quotas(made: Scene, *, w1: str, w2: str) -> None:
    """Wait until the hub says so of the queues of both clusters."""
    said = ((made.w1, w1), (made.w2, w2))
    queue = queue_text(made)
    await hub_knows(made, *(f"{site.name}: insufficient quota even when it is empty: {queue}{of}" for site, of in said))


async def hub_knows(made: Scene, *texts: str) -> None:
    """Wait until the hub says so of its clusters to a job that is too large for all of them."""
    numbers = count()

    async def said() -> str:
        job = f"probe-{next(numbers)}"
        await make_job(made.client, job, namespace=made.namespace, queue=made.name, cpu="50")
        with anyio.move_on_after(PROBE_SECONDS):
            await waits_for(made, messages.WAITING, job=job)
        message = check_of(await made.workload(job), made.name).get("message", "")
        await made.client.delete(JOBS, job, namespace=made.namespace, propagation="Background")
        return str(message)

    await made.client.patch(CLUSTER_QUEUES, made.name, of("cpu", "100"))
    await eventually(said, what=f"the hub knows {texts}", until=lambda seen: all(text in seen for text in texts))


@pytest.mark.also_on_binaries
async def test_quota_counts_in_flavors_that_the_pods_match(stage: Stage) -> None:
    async with scene(stage, "flavors", configuration=CAPACITY) as made:
        spot = f"spot-{made.name}"
        taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
        kind = {"apiVersion": RESOURCE_FLAVORS.api_version, "kind": RESOURCE_FLAVORS.kind}
        made_flavor = {**kind, "metadata": {"name": spot}, "spec": {"nodeTaints": [taint]}}
        await made.w1.client.create(RESOURCE_FLAVORS, made_flavor)
        await made.w1.client.patch(CLUSTER_QUEUES, made.name, of("cpu", "10", flavor=spot))
        await uses(made, made.w2, "6")
        await hub_knows_quotas(made, w1=", no flavor of it matches", w2=": free 4 of 10 cpu, short 40 cpu")
        await made.submit("plain", cpu="2")
        assert await chosen(made, job="plain") == made.w2.name
        body = job_manifest("tolerant", namespace=made.namespace, queue=made.name, cpu="2", suspend=True)
        body["spec"]["template"]["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        await made.client.create(JOBS, body, namespace=made.namespace)
        assert await chosen(made, job="tolerant") == made.w1.name


@pytest.mark.also_on_binaries
async def test_free_quota_decides_and_when_some_comes_free_the_work_that_waits_goes_there(stage: Stage) -> None:
    async with scene(stage, "free", configuration=CAPACITY) as made:
        await uses(made, made.w1, "10")
        await uses(made, made.w2, "4")
        await hub_knows_quotas(made, w1=": free 0 of 10 cpu, short 40 cpu", w2=": free 6 of 10 cpu, short 40 cpu")
        queue = queue_text(made)
        await made.submit("first", cpu="5")
        assert await chosen(made, job="first") == made.w2.name
        await made.submit("second", cpu="5")
        await waits_for(
            made, f"{made.w1.name}: insufficient free quota: {queue}: free 0 of 10 cpu, short 5 cpu", job="second"
        )
        await waits_for(
            made, f"{made.w2.name}: insufficient free quota: {queue}: free 1 of 10 cpu, short 4 cpu", job="second"
        )
        await uses(made, made.w1, "5")
        assert await chosen(made, job="second") == made.w1.name


@pytest.mark.also_on_binaries
@pytest.mark.parametrize("dispatcher", [DISPATCHER_CAPACITY, DISPATCHER_ALL_AT_ONCE])
async def test_a_worker_without_the_local_queue_refuses_with_a_reason_until_there_is_one(
    stage: Stage, dispatcher: str
) -> None:
    configuration = settings(dispatcherName=dispatcher)
    async with scene(stage, f"none-{dispatcher}", clusters=(1,), configuration=configuration) as made:
        await made.w1.client.delete(LOCAL_QUEUES, made.name, namespace=made.namespace)
        missing = f"LocalQueue {made.namespace}/{made.name} does not exist on {made.w1.name}"
        if dispatcher == DISPATCHER_CAPACITY:
            await hub_knows(made, missing)  # else it may be granted, and is sent anew only after a while
        workload = await made.submit()
        await waits_for(made, missing)
        assert await made.w1.job("j", namespace=made.namespace) is None
        assert await made.w1.clone(workload) is None
        await make_local_queue(made, made.w1)
        # A worker that was asked before the hub knew refuses in the same words, and is asked again in the next epoch.
        clone = await eventually(partial(made.w1.clone, workload), what="the worker is asked")
        assert clone is not None
        epoch = clone_epoch(clone)
        await made.w1.admits(workload, epoch=epoch)
        await made.w1.starts("j", epoch=epoch)
        await made.job_says("ready", 1)


@pytest.mark.transports("pull")
async def test_a_queue_that_is_stopped_is_passed_over_and_asked_when_it_is_resumed(stage: Stage) -> None:
    async with scene(stage, "stopped", clusters=(1,), configuration=CAPACITY) as made:
        await local_queue_says(made, made.w1, active="False", message="LocalQueue is stopped")
        named = f"LocalQueue {made.namespace}/{made.name} is not active on {made.w1.name}"
        await hub_knows(made, f"{named}: LocalQueue is stopped")
        workload = await made.submit()
        await waits_for(made, f"{named}: LocalQueue is stopped")
        await set_active(made, made.w1, value="False")
        await local_queue_says(made, made.w1, active="True")
        await waits_for(made, f"{named}: ClusterQueue {made.name}: Ready")
        await set_active(made, made.w1)
        await made.w1.admits(workload)
        await made.w1.starts("j")
        await made.job_says("ready", 1)


@pytest.mark.transports("push")
async def test_work_that_runs_continues_when_its_local_queue_is_deleted(stage: Stage) -> None:
    async with scene(stage, "deleted", configuration=CAPACITY, clusters=(1,)) as made:
        await made.running(made.w1)
        await made.w1.client.delete(LOCAL_QUEUES, made.name, namespace=made.namespace)
        await made.submit("next")
        await waits_for(made, f"does not exist on {made.w1.name}", job="next")
        await made.w1.ends("j")
        await made.finished()
        assert await made.evictions() == 0


@pytest.mark.transports("push")
async def test_with_an_inactive_queue_the_copy_waits_there_under_a_dispatcher_of_kueues(stage: Stage) -> None:
    async with scene(stage, "inactive") as made:
        await local_queue_says(made, made.w1, active="False", message="stopped")
        workload = await made.submit()
        await made.w1.asked(workload)
        await made.w2.admits(workload)
        await made.w2.starts("j")
        await made.w1.relieved(workload)


@asynccontextmanager
async def telling_only_of_changes(made: Scene, *, configuration: str) -> AsyncIterator[None]:
    """No agent reports but for a change: those that the manager hosts are those of another manager, in the test."""
    push = replace(PUSH, intervals=replace(PUSH.intervals, report_seconds=NEVER))
    await made.stage.manager.stop()
    async with running_manager(made.stage.hub, settings=configuration, dispatch=partial(DispatchController, push=push)):
        await made.cluster_says(made.w1, "True", "Active")
        await made.cluster_says(made.w2, "True", "Active")
        yield
    await made.stage.manager.start()


async def follows(made: Scene, cpu: str) -> None:
    """The hub's queue has that quota soon: at most a report a second, and nothing else to wait for."""
    await eventually(
        lambda: hub_queue(made), what=f"it has {cpu} cpu", deadline=SOON, until=lambda seen: cpu_of(seen) == cpu
    )


@pytest.mark.also_on_binaries
async def test_each_change_on_a_worker_is_seen_without_waiting_for_a_regular_report(stage: Stage) -> None:
    async with (
        scene(stage, "events", clusters=(1,), configuration=FOLLOWING, intervals=RARE) as made,
        telling_only_of_changes(made, configuration=FOLLOWING),
    ):
        await set_management(made, "Automated")
        await set_active(made, made.w1)  # of which a report tells, and with it the agent hears what is asked
        await follows(made, "10")
        await made.w1.client.patch(CLUSTER_QUEUES, made.name, of("cpu", "7"))
        await follows(made, "7")
        await made.w1.client.delete(LOCAL_QUEUES, made.name, namespace=made.namespace)
        await follows(made, "0")
        await make_local_queue(made, made.w1)
        await follows(made, "7")
        await set_active(made, made.w1, value="False")
        await follows(made, "0")
        await set_management(made, "Manual")
        await set_active(made, made.w1)
        await uses(made, made.w1, "5")
        await hub_knows(made, "free 2 of 7 cpu")
        await made.submit("small", cpu="4")
        await waits_for(made, "free 2 of 7 cpu, short 2 cpu", job="small")
        await uses(made, made.w1, "3")
        assert await chosen(made, job="small") == made.w1.name
        await made.submit("large", cpu="20")
        await waits_for(made, "even when it is empty", job="large")
        cohort = {"apiVersion": COHORTS.api_version, "kind": COHORTS.kind, "metadata": {"name": made.name}}
        await made.w1.client.patch(CLUSTER_QUEUES, made.name, {"spec": {"cohortName": made.name}})
        await made.w1.client.create(COHORTS, {**cohort, **of("cpu", "30")})
        try:
            assert await chosen(made, job="large") == made.w1.name
        finally:
            await made.w1.client.delete(COHORTS, made.name)
