# SPDX-License-Identifier: Apache-2.0
"""Dispatch on a real management cluster, with workers that the test plays.

What an agent says out of turn: late, of an older epoch, or no. The scenarios are in tests/component/scenarios.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.remoteassignment import assignment_name
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    WORKLOADS,
)
from multikueue.core.keys import Key
from multikueue.kube.errors import InternalError, NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.jobs import running_status
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.names import unique_name
from tests.support.workers import (
    SCALED_DOWN,
    FakeWorker,
    check_of,
    make_check,
)

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]


@dataclass(frozen=True)
class Scene:
    """A queue of its own with a MultiKueue check over two workers."""

    client: KubeClient
    hub: Cluster
    name: str
    w1: FakeWorker
    w2: FakeWorker

    @property
    def namespace(self) -> str:
        return f"ns-{self.name}"

    async def submit(self, job: str = "j", *, parallelism: int = 1) -> Key:
        """A Job; gives its Workload once it holds quota."""
        await make_job(self.client, job, namespace=self.namespace, queue=self.name, parallelism=parallelism)
        workload = await wait_condition(self.client, job, "QuotaReserved", namespace=self.namespace)
        return Key(self.namespace, workload["metadata"]["name"])

    async def workload(self, job: str = "j") -> Object | None:
        return await workload_of(self.client, job, namespace=self.namespace)

    async def job(self, job: str = "j") -> Object | None:
        return await get(self.client, JOBS, job, namespace=self.namespace)

    async def job_status(self, job: str = "j") -> Object:
        return ((await self.job(job)) or {}).get("status") or {}

    async def reclaimable(self, count: int) -> Object:
        """The Workload once so many of its pods need no quota any more."""
        found = await eventually(
            self.workload,
            what=f"{count} pods are reclaimable",
            until=lambda seen: sum(each["count"] for each in _status(seen).get("reclaimablePods") or ()) == count,
        )
        assert found is not None
        return found

    async def check(self, state: str, *, job: str = "j", message: str = "") -> Object:
        """The workload once the check says that."""
        found = await eventually(
            lambda: self.workload(job),
            what=f"the check says {state} {message}",
            until=lambda seen: (
                check_of(seen, self.name).get("state") == state and message in check_of(seen, self.name)["message"]
            ),
        )
        assert found is not None
        return found

    async def granted(self, winner: FakeWorker, *, epoch: int = 1) -> Key:
        """A Job that `winner` runs."""
        key = await self.submit()
        await winner.assigned(key, epoch=epoch)
        await winner.say(key, "Reserved", epoch=epoch)
        await winner.assigned(key, intent="Run", epoch=epoch)
        await self.check("Ready")
        await winner.say(key, "Running", epoch=epoch, jobStatus=running_status(), jobUID="r")
        await eventually(
            self.job_status, what="the running status is mirrored", until=lambda seen: seen.get("active") == 1
        )
        return key


@pytest.fixture
async def scene(hub: Cluster, client: KubeClient, request: pytest.FixtureRequest) -> Scene:
    name = unique_name(request.node.name)
    made = Scene(client, hub, name, FakeWorker(client, f"{name}-1"), FakeWorker(client, f"{name}-2"))
    for worker in (made.w1, made.w2):
        await worker.enrol()
    await make_check(client, name, (made.w1.name, made.w2.name))
    await make_queue(client, name, namespace=made.namespace, checks=(name,))
    return made


@asynccontextmanager
async def managed(scene: Scene, *, connected: bool = True, settings: str = SCALED_DOWN) -> AsyncIterator[None]:
    """A manager that dispatches, and workers that are connected."""
    async with running_manager(scene.hub, settings=settings, dispatch=DispatchController):
        if connected:
            for worker in (scene.w1, scene.w2):
                await worker.connect()
                await cluster_says(scene, worker, "True", "Active")
            await eventually(
                lambda: get(scene.client, CLUSTER_QUEUES, scene.name),
                what="the queue is active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
        yield


async def cluster_says(scene: Scene, worker: FakeWorker, status: str, reason: str) -> Object:
    """The MultiKueueCluster once its Active condition says that."""
    return await _active(scene, MULTIKUEUE_CLUSTERS, worker.name, status, reason)


async def check_says(scene: Scene, status: str, reason: str) -> Object:
    """The AdmissionCheck once its Active condition says that."""
    return await _active(scene, ADMISSION_CHECKS, scene.name, status, reason)


async def _active(scene: Scene, resource: object, name: str, status: str, reason: str) -> Object:
    found = await eventually(
        lambda: get(scene.client, resource, name),
        what=f"{name} says Active={status} {reason}",
        until=lambda seen: (
            (condition(seen, "Active").get("status"), condition(seen, "Active").get("reason")) == (status, reason)
        ),
    )
    return condition(found, "Active")


async def test_a_late_reserver_never_overtakes_the_winner(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.submit()
        await scene.w1.assigned(key)
        await scene.w2.assigned(key)
        await scene.w2.disconnect()
        await cluster_says(scene, scene.w2, "False", "ClientConnectionFailed")
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        await scene.w2.relieved(key)
        await scene.w2.connect()
        await cluster_says(scene, scene.w2, "True", "Active")
        workload = await scene.workload()
        assert workload is not None
        assert workload["status"]["clusterName"] == scene.w1.name


async def test_a_status_of_an_older_epoch_finishes_nothing(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await scene.w1.say(key, "Evicted", jobStatus={"active": 0}, jobUID="r")
        await scene.w1.assigned(key, epoch=2)
        await scene.w1.say_finished(key, epoch=1)
        await scene.w2.say(key, "Reserved", epoch=2)
        await scene.w2.assigned(key, intent="Run", epoch=2)
        assert not condition(await scene.workload(), "Finished")


async def test_a_refusal_after_the_grant_sends_it_elsewhere(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.submit()
        await scene.w1.assigned(key)
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        await scene.w1.say(key, "Refused", reason="NameConflict", message="a job is there")
        await scene.w2.assigned(key, epoch=2)
        await eventually(
            scene.workload,
            what="only the other cluster is nominated",
            until=lambda seen: seen is not None and seen["status"].get("nominatedClusterNames") == [scene.w2.name],
        )
        assert await scene.w1.assignment(key) is None


async def test_a_refusal_by_all_is_shown_in_the_check(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.submit()
        for worker in (scene.w1, scene.w2):
            await worker.assigned(key)
            await worker.say(key, "Refused", reason="NamespaceNotFound", message="no such namespace")
        await scene.check("Pending", message=f"{scene.w1.name}: no such namespace; {scene.w2.name}: no such")


async def test_an_eviction_here_holds_quota_until_the_worker_has_stopped(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await scene.client.patch(WORKLOADS, key.name, {"spec": {"active": False}}, namespace=key.namespace)
        await scene.w1.assigned(key, intent="Evict")
        status = await scene.job_status()
        assert status["active"] == 1
        await scene.w1.say(key, "Evicted", jobStatus={"active": 0, "ready": 0}, jobUID="r")
        await wait_condition(scene.client, "j", "QuotaReserved", namespace=scene.namespace, status="False")
        await scene.w1.relieved(key)
        status = await scene.job_status()
        assert not status.get("active")


async def test_pods_that_succeeded_on_a_former_cluster_hold_quota_on_the_next_one(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.submit(parallelism=3)
        await scene.w1.assigned(key)
        await scene.w1.say(key, "Reserved")
        await scene.w1.assigned(key, intent="Run")
        await scene.w1.say(key, "Running", jobStatus={**running_status(1), "succeeded": 2}, jobUID="r")
        await scene.reclaimable(2)
        await scene.client.patch(MULTIKUEUE_CONFIGS, scene.name, {"spec": {"clusters": [scene.w2.name]}})
        await scene.w1.assigned(key, intent="Evict")
        await scene.w1.say(key, "Evicted", jobStatus={"active": 0, "succeeded": 2}, jobUID="r")

        await scene.w2.assigned(key, epoch=2)
        workload = await scene.reclaimable(0)
        assert [each["count"] for each in workload["status"]["admission"]["podSetAssignments"]] == [3]
        await scene.w2.say(key, "Reserved", epoch=2)
        await scene.w2.assigned(key, intent="Run", epoch=2)
        await scene.w2.say(key, "Running", epoch=2, jobStatus={**running_status(2), "succeeded": 1}, jobUID="r2")
        await scene.reclaimable(1)
        status = await scene.job_status()
        assert status["succeeded"] == 2, "the API server refuses a smaller number"


async def test_j4_a_job_deleted_while_no_manager_ran_is_removed_afterwards(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await scene.w1.disconnect()

    async def released() -> bool:
        # An API server goes on asking webhooks for a moment after their configuration was removed.
        with suppress(InternalError):
            await scene.client.patch(WORKLOADS, key.name, {"metadata": {"finalizers": None}}, namespace=key.namespace)
            return True
        return False

    await eventually(released, what="the Workload is nobody's any more")
    await scene.client.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
    with suppress(NotFound):  # the garbage collector may have been first
        await scene.client.delete(WORKLOADS, key.name, namespace=key.namespace)
    async with managed(scene, connected=False):
        await scene.w1.relieved(key)


async def test_an_assignment_removed_by_hand_is_retried_at_once(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await scene.client.delete(REMOTE_ASSIGNMENTS, assignment_name(key), namespace=scene.w1.mailbox)
        await scene.w1.assigned(key, epoch=2)


async def test_a_cluster_taken_out_of_the_config_is_judged_as_a_lost_one(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await scene.client.patch(MULTIKUEUE_CONFIGS, scene.name, {"spec": {"clusters": [scene.w2.name]}})
        # Its agent is there, so it is asked to stop, and only then does the work go elsewhere.
        await scene.w1.assigned(key, intent="Evict")
        await scene.w1.say(key, "Evicted", jobStatus={"active": 0}, jobUID="r")
        await scene.w2.assigned(key, epoch=2)
        await scene.w1.relieved(key)


async def test_a_deleted_cluster_that_is_still_listed_is_judged_as_a_lost_one(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await scene.client.delete(MULTIKUEUE_CLUSTERS, scene.w1.name)
        await check_says(scene, "True", "SomeActiveClusters")
        await scene.w1.assigned(key, intent="Evict")
        await scene.w1.say(key, "Evicted", jobStatus={"active": 0}, jobUID="r")
        await scene.w2.assigned(key, epoch=2)


async def test_a_deleted_cluster_whose_agent_is_gone_does_not_hold_quota(scene: Scene) -> None:
    async with managed(scene):
        key = await scene.granted(scene.w1)
        await scene.w1.disconnect()
        await scene.client.delete(MULTIKUEUE_CLUSTERS, scene.w1.name)
        await scene.w2.assigned(key, epoch=2)
        await scene.w1.relieved(key)


def _status(obj: Object | None) -> Object:
    return (obj or {}).get("status") or {}
