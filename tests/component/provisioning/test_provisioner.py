# SPDX-License-Identifier: Apache-2.0
"""The provisioner of local clusters with a manager: deploy/examples/provisioning, and what people can make fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from devcluster import manifests
from devcluster.cluster import Cluster
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.provisioner import controller
from devcluster.provisioner.answers import ATOMIC_SCALE_UP, CAPACITY_LABEL, CHECK_CAPACITY, QUEUED
from devcluster.provisioner.controller import Provisioner
from devcluster.provisioner.settings import NAME, NAMESPACE
from multikueue.api.resource import CONFIG_MAPS, JOBS, NODES, PODS
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import condition, ensure, eventually, get
from tests.support.provisioning import ProvisioningScene, provisioning_scene

pytestmark = pytest.mark.anyio

EXAMPLE: Final = Path(__file__).parents[3] / "deploy" / "examples" / "provisioning"


@asynccontextmanager
async def provisioner(cluster: Cluster, **data: str) -> AsyncIterator[KubeClient]:
    """The provisioner with these settings, as long as the context lasts."""
    async with cluster.client() as client, cluster.client() as own, anyio.create_task_group() as tasks:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}}
        await ensure(client, CONFIG_MAPS, body)
        await configure(client, **{"delaySeconds": "0", "queueSeconds": "1", **data})
        tasks.start_soon(Provisioner(own).run)
        yield client
        tasks.cancel_scope.cancel()


async def configure(client: KubeClient, **data: str) -> None:
    """Replace the settings."""
    found = await client.get_object(CONFIG_MAPS, NAME, namespace=NAMESPACE)
    cleared: dict[str, Any] = dict.fromkeys(found.get("data") or {})
    await client.patch(CONFIG_MAPS, NAME, {"data": {**cleared, **data}}, namespace=NAMESPACE)


async def added_nodes(client: KubeClient) -> int:
    """How many nodes it has added."""
    return len((await client.list_all(NODES, label_selector=CAPACITY_LABEL)).items)


async def no_nodes(client: KubeClient) -> None:
    """Wait until what it added is gone."""

    async def probe() -> bool:
        return await added_nodes(client) == 0

    await eventually(probe, what="no node is left")


async def completed(client: KubeClient, name: str, *, namespace: str) -> None:
    """Wait until the Job has completed."""
    await eventually(
        lambda: get(client, JOBS, name, namespace=namespace),
        what=f"{name} completes",
        until=lambda job: condition(job, "Complete").get("status") == "True",
    )


@pytest.mark.also_on_binaries
async def test_pd1_the_example_runs_on_nodes_that_were_added_and_they_go_with_it(cluster: Cluster) -> None:
    async with provisioner(cluster) as client:
        for file in ("10-queues.yaml", "20-job.yaml"):
            for document in manifests.read(EXAMPLE / file):
                resource = await manifests.resource_of(client, document)
                await ensure(client, resource, document)
        await completed(client, "large", namespace="growing")
        job = await client.get_object(JOBS, "large", namespace="growing")
        assert CAPACITY_LABEL in job["spec"]["template"]["spec"]["nodeSelector"]
        await no_nodes(client)


@pytest.mark.also_on_binaries
async def test_pd2_a_request_beyond_the_last_node_fails_until_there_are_more(cluster: Cluster) -> None:
    async with provisioner(cluster, nodes="1") as client, scene_of(cluster, "pd2", ATOMIC_SCALE_UP) as scene:
        await scene.submit(cpu="5", parallelism=2)
        workload = await scene.condition("Evicted", reason="AdmissionCheck")
        assert "out of capacity: more than 1 nodes are needed" in condition(workload, "Evicted")["message"]
        await configure(client, nodes="2", delaySeconds="0")
        await scene.started()
        await scene.delete_job()
        await no_nodes(client)


@pytest.mark.also_on_binaries
async def test_pd3_revoked_capacity_takes_the_nodes_and_ends_the_job(cluster: Cluster) -> None:
    async with provisioner(cluster) as client, scene_of(cluster, "pd3", ATOMIC_SCALE_UP) as scene:
        await scene.submit(cpu="6")
        await scene.condition("Admitted")
        assert await added_nodes(client) == 1
        (request,) = await scene.requests()
        await configure(client, revoke=f"pd3/{request['metadata']['name']}")
        workload = await scene.condition("Evicted", reason="DeactivatedDueToAdmissionCheck")
        assert "The nodes were taken away" in condition(workload, "Evicted")["message"]
        await no_nodes(client)

        async def pods() -> int:
            return len((await client.list_all(PODS, namespace="pd3")).items)

        await eventually(pods, what="no pod waits for a kubelet that is gone", until=lambda left: left == 0)


@pytest.mark.also_on_binaries
async def test_pd4_the_queued_class_shows_when_capacity_is_expected(cluster: Cluster) -> None:
    async with provisioner(cluster, queueSeconds="3600") as client, scene_of(cluster, "pd4", QUEUED) as scene:
        await scene.submit()
        await scene.check(until="Pending", message="Capacity is expected at ")
        await configure(client, queueSeconds="0")
        await scene.started()
        await scene.delete_job()
        await no_nodes(client)


@pytest.mark.also_on_binaries
async def test_pd5_a_check_of_capacity_adds_no_node_and_fails_where_there_is_none(cluster: Cluster) -> None:
    async with provisioner(cluster) as client, scene_of(cluster, "pd5", CHECK_CAPACITY) as scene:
        await scene.submit()
        workload = await scene.condition("Evicted", reason="AdmissionCheck")
        assert "capacity for 0 of 1 pods" in condition(workload, "Evicted")["message"]
        assert await added_nodes(client) == 0


def scene_of(cluster: Cluster, name: str, class_name: str) -> AbstractAsyncContextManager[ProvisioningScene]:
    """A scene whose requests are of that class; an attempt that fails is repeated often enough."""
    retry = {"backoffLimitCount": 50, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
    return provisioning_scene(cluster, name, provisioningClassName=class_name, retryStrategy=retry)


async def test_pd6_capacity_is_provisioned_when_its_nodes_exist_and_not_before(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, released = anyio.Event(), anyio.Event()

    class LateNodes(VirtualNodes):
        async def run(self) -> None:
            asked.set()
            await released.wait()
            await super().run()

    monkeypatch.setattr(controller, "VirtualNodes", LateNodes)
    async with provisioner(cluster) as client, scene_of(cluster, "pd6", ATOMIC_SCALE_UP) as scene:
        await scene.submit(cpu="6")
        await asked.wait()
        await anyio.sleep(5 * controller.NODES_SECONDS)
        (request,) = await scene.requests()
        assert condition(request, "Provisioned").get("status") != "True"
        released.set()
        await scene.condition("Admitted")
        assert await added_nodes(client) == 1
        await scene.delete_job()
        await no_nodes(client)
