# SPDX-License-Identifier: Apache-2.0
"""Push: the manager holds the kubeconfig of a worker and hosts the agent's code.

The management cluster is a real one, the workers are embedded API servers behind a proxy that can break the link.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from manager.dispatch.transport.push_hosts import PushSettings
from multikueue.api.constants import ORIGIN_LABEL, PARTITION_POLICY_ANNOTATION
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, MULTIKUEUE_CLUSTERS, MULTIKUEUE_CONFIGS, NODES, WORKLOADS
from multikueue.core.backoff import Backoff
from multikueue.core.keys import Key
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import QUICK, make_node
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
from tests.support.push_workers import PushWorker, push_worker
from tests.support.workers import SCALED_DOWN, FakeWorker, make_check
from worker_agent.app import Agent

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

ALL_AT_ONCE = SCALED_DOWN.replace(
    "multiKueue: {", "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-all-at-once, "
)
QUICK_PUSH = PushSettings(intervals=QUICK, backoff=Backoff(base=0.2, cap=1.0), first_read_seconds=10.0)


@dataclass(frozen=True)
class Scene:
    """A queue of its own over two push workers."""

    client: KubeClient
    hub: Cluster
    name: str
    w1: PushWorker
    w2: PushWorker

    @property
    def namespace(self) -> str:
        return f"ns-{self.name}"

    async def submit(self, job: str = "j") -> None:
        await make_job(self.client, job, namespace=self.namespace, queue=self.name)

    async def workload(self, job: str = "j") -> Object | None:
        return await workload_of(self.client, job, namespace=self.namespace)

    async def placed(self, job: str = "j") -> tuple[PushWorker, PushWorker]:
        """The worker that was granted the job and the other one."""
        found = await eventually(
            lambda: self.workload(job),
            what=f"{job} is granted",
            until=lambda seen: bool(seen and (seen.get("status") or {}).get("clusterName")),
        )
        assert found is not None
        chosen = found["status"]["clusterName"]
        return (self.w1, self.w2) if chosen == self.w1.name else (self.w2, self.w1)

    async def says(self, worker: PushWorker, status: str, reason: str, *, part: str = "") -> Object:
        """The Active condition of the cluster once it says that."""
        found = await eventually(
            lambda: get(self.client, MULTIKUEUE_CLUSTERS, worker.name),
            what=f"{worker.name} says Active={status} {reason} {part}",
            until=lambda seen: (
                (condition(seen, "Active").get("status"), condition(seen, "Active").get("reason")) == (status, reason)
                and part in condition(seen, "Active")["message"]
            ),
        )
        return condition(found, "Active")

    async def finished(self, job: str = "j") -> Object:
        return await wait_condition(self.client, job, "Finished", namespace=self.namespace, reason="Succeeded")


@pytest.fixture
async def scene(hub: Cluster, client: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    name = unique_name(request.node.name)
    namespace = f"ns-{name}"
    async with AsyncExitStack() as stack:
        w1, w2 = [
            await stack.enter_async_context(push_worker(client, f"{name}-{number}", namespace=namespace))
            for number in (1, 2)
        ]
        await make_check(client, name, (w1.name, w2.name))
        await make_queue(client, name, namespace=namespace, cpu="40", checks=(name,))
        yield Scene(client, hub, name, w1, w2)


@asynccontextmanager
async def managed(scene: Scene, *, connected: bool = True, settings: str = SCALED_DOWN) -> AsyncIterator[None]:
    """A manager that hosts the agents of both workers."""
    dispatch = partial(DispatchController, push=QUICK_PUSH)
    async with running_manager(scene.hub, settings=settings, dispatch=dispatch):
        if connected:
            for worker in (scene.w1, scene.w2):
                await scene.says(worker, "True", "Active")
            await eventually(
                lambda: get(scene.client, CLUSTER_QUEUES, scene.name),
                what="the queue is active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
        yield


async def test_j1_twenty_jobs_run_on_workers_without_an_agent_and_leave_nothing_behind(scene: Scene) -> None:
    names = [f"j{number}" for number in range(20)]
    async with managed(scene), anyio.create_task_group() as tasks:
        for worker in (scene.w1, scene.w2):
            tasks.start_soon(partial(worker.play, namespace=scene.namespace))
        for name in names:
            await scene.submit(name)
        for name in names:
            await scene.finished(name)
            job = await get(scene.client, JOBS, name, namespace=scene.namespace)
            assert job is not None
            assert job["status"]["succeeded"] == 1
        for worker in (scene.w1, scene.w2):
            for name in names:
                await worker.gone(name, namespace=scene.namespace)
        tasks.cancel_scope.cancel()


async def test_other_credentials_are_taken_up_without_a_gap(scene: Scene) -> None:
    async with managed(scene):
        await scene.submit()
        worker, _ = await scene.placed()
        await worker.runs("j", namespace=scene.namespace)
        before = await scene.says(worker, "True", "Active")
        worker.accept("first", "second")
        await worker.set_kubeconfig(worker.kubeconfig("second"))
        await anyio.sleep(0.5)
        # A request with the old token fails from now on, so that whoever still sends it is seen.
        worker.accept("second")
        await anyio.sleep(2 * QUICK.lease_seconds)
        assert await scene.says(worker, "True", "Active") == before
        await worker.finish("j", namespace=scene.namespace)
        workload = await scene.finished()
        assert "schedulingStats" not in workload["status"] or "evictions" not in workload["status"]["schedulingStats"]


async def test_q2_a_worker_that_does_not_answer_is_tried_again_at_growing_intervals(scene: Scene) -> None:
    async with managed(scene):
        await scene.w1.proxy.refuse()
        await scene.says(scene.w1, "False", "ClientConnectionFailed", part="connection attempts: 3, next connection")
        await scene.w1.proxy.start()
        await scene.says(scene.w1, "True", "Active")


async def test_a_fault_over_one_cluster_does_not_end_the_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Agent.run

    async def run(agent: Agent) -> None:
        if agent.cluster == scene.w1.name:
            raise ValueError("nobody expects this")
        await sound(agent)

    monkeypatch.setattr(Agent, "run", run)
    async with managed(scene, connected=False):
        await scene.says(
            scene.w1, "False", "ClientConnectionFailed", part="the hosted agent failed: ValueError('nobody"
        )
        await scene.says(scene.w2, "True", "Active")
        monkeypatch.undo()
        await scene.says(scene.w1, "True", "Active")


async def test_credentials_that_the_worker_refuses_are_reported(scene: Scene) -> None:
    async with managed(scene):
        await scene.w1.set_kubeconfig(scene.w1.kubeconfig("nonsense"))
        await scene.says(scene.w1, "False", "ClientConnectionFailed", part="Unauthorized")
        await scene.w1.set_kubeconfig(scene.w1.kubeconfig("first"))
        await scene.says(scene.w1, "True", "Active")


async def test_fenced_work_stays_where_it_is_since_nothing_else_there_would_stop_it(scene: Scene) -> None:
    async with managed(scene):
        await scene.submit()
        worker, _ = await scene.placed()
        await worker.runs("j", namespace=scene.namespace)
        workload = await scene.workload()
        assert workload is not None
        fenced = {"metadata": {"annotations": {PARTITION_POLICY_ANNOTATION: "fenced"}}}
        await scene.client.patch(WORKLOADS, workload["metadata"]["name"], fenced, namespace=scene.namespace)
        await worker.proxy.refuse()
        await scene.says(worker, "False", "ClientConnectionFailed")
        await anyio.sleep(5.0)
        await worker.proxy.start()
        await worker.finish("j", namespace=scene.namespace)
        workload = await scene.finished()
        assert "evictions" not in (workload["status"].get("schedulingStats") or {})


async def test_j8_a_restarted_manager_finds_what_runs_from_the_jobs_on_the_worker(scene: Scene) -> None:
    async with managed(scene):
        await scene.submit()
        worker, _ = await scene.placed()
        made = await worker.runs("j", namespace=scene.namespace)
    await worker.proxy.refuse()
    async with managed(scene, connected=False):
        await scene.says(worker, "False", "ClientConnectionFailed")
        await worker.proxy.start()
        await scene.says(worker, "True", "Active")
        await worker.finish("j", namespace=scene.namespace)
        workload = await scene.finished()
        assert "evictions" not in (workload["status"].get("schedulingStats") or {})
        assert made["metadata"]["labels"][ORIGIN_LABEL] == "multikueue"
        await worker.gone("j", namespace=scene.namespace)


async def test_j4_a_job_deleted_while_no_manager_ran_is_removed_afterwards(scene: Scene) -> None:
    async with managed(scene):
        await scene.submit()
        worker, _ = await scene.placed()
        await worker.runs("j", namespace=scene.namespace)
    await scene.client.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
    async with managed(scene):
        await worker.gone("j", namespace=scene.namespace)


async def test_a_deleted_cluster_is_left_in_good_order(scene: Scene) -> None:
    async with managed(scene):
        await scene.submit()
        first, second = await scene.placed()
        await first.runs("j", namespace=scene.namespace)
        await scene.client.delete(MULTIKUEUE_CLUSTERS, first.name)
        stopped = await eventually(
            lambda: first.job("j", namespace=scene.namespace),
            what="the copy is told to stop",
            until=lambda seen: bool(seen and seen["spec"]["suspend"]),
        )
        assert stopped is not None
        status = {"active": 0, "ready": 0, "startTime": None, "conditions": [{"type": "Suspended", "status": "True"}]}
        await first.client.patch(JOBS, "j", {"status": status}, namespace=scene.namespace, subresource="status")
        await second.runs("j", namespace=scene.namespace)
        await first.gone("j", namespace=scene.namespace)


async def test_fenced_work_is_fenced_by_an_agent_though_a_push_cluster_is_nominated_too(scene: Scene) -> None:
    """It was granted as `keep`, and counted as fenced when that cluster was lost: seed 5923 of the simulation."""
    agent = FakeWorker(scene.client, f"{scene.name}-3")
    await agent.enrol()
    clusters = [scene.w1.name, agent.name]
    await scene.client.patch(MULTIKUEUE_CONFIGS, scene.name, {"spec": {"clusters": clusters}})
    await make_node(scene.w1.client, f"{scene.w1.name}-node", cpu="100m")  # it is nominated, and cannot reserve
    async with managed(scene, settings=ALL_AT_ONCE):
        await agent.connect()
        await eventually(
            lambda: get(scene.client, MULTIKUEUE_CLUSTERS, agent.name),
            what="the agent counts as connected",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        body = job_manifest("j", namespace=scene.namespace, queue=scene.name)
        body["metadata"]["annotations"] = {PARTITION_POLICY_ANNOTATION: "fenced"}
        await scene.client.create(JOBS, body, namespace=scene.namespace)
        workload = await wait_condition(scene.client, "j", "QuotaReserved", namespace=scene.namespace)
        key = Key(scene.namespace, workload["metadata"]["name"])
        asked = await agent.assigned(key)
        nominated = (await scene.workload() or {})["status"]["nominatedClusterNames"]
        await agent.say(key, "Reserved")
        granted = await agent.assigned(key, intent="Run")
        assert set(nominated) == set(clusters)
        assert {each["spec"]["partitionPolicy"] for each in (asked, granted)} == {"fenced"}


async def test_one_config_mixes_push_and_pull(scene: Scene) -> None:
    agent = FakeWorker(scene.client, f"{scene.name}-3")
    await agent.enrol()
    clusters = [scene.w1.name, agent.name]
    await scene.client.patch(MULTIKUEUE_CONFIGS, scene.name, {"spec": {"clusters": clusters}})
    async with managed(scene):
        await agent.connect()
        await eventually(
            lambda: get(scene.client, MULTIKUEUE_CLUSTERS, agent.name),
            what="the agent counts as connected",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        await scene.submit()
        await scene.w1.runs("j", namespace=scene.namespace)
        await scene.w1.finish("j", namespace=scene.namespace)
        await scene.finished()
        await scene.w1.proxy.refuse()
        await scene.says(scene.w1, "False", "ClientConnectionFailed")
        await scene.submit("k")
        workload = await wait_condition(scene.client, "k", "QuotaReserved", namespace=scene.namespace)
        key = Key(scene.namespace, workload["metadata"]["name"])
        await agent.assigned(key)
        await agent.say(key, "Reserved")
        await agent.assigned(key, intent="Run")
        await agent.say_finished(key)
        await scene.finished("k")


async def test_workers_without_nodes_are_asked_at_once(scene: Scene) -> None:
    for worker in (scene.w1, scene.w2):
        await worker.client.delete(NODES, f"{worker.name}-node")
    async with managed(scene):
        await scene.submit()
        found = await eventually(
            scene.workload,
            what="both are asked",
            deadline=10,  # well before a workload that no cluster has capacity for is sent anywhere
            until=lambda seen: len(((seen or {}).get("status") or {}).get("nominatedClusterNames") or ()) == 2,
        )
        assert "clusterName" not in (found or {})["status"]
        await make_node(scene.w1.client, f"{scene.w1.name}-node")
        await scene.w1.client.patch(NODES, f"{scene.w1.name}-node", {"spec": {"taints": None}})
        winner, _ = await scene.placed()
        assert winner is scene.w1
