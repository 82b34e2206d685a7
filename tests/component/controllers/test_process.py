# SPDX-License-Identifier: Apache-2.0
"""The controllers as a process: they start, see kinds that appear later, and go on after a crash."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from devcluster.cluster import Cluster
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.processes.process import Process, ProcessSpec
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, JOBS, PODS, SERVICE_ACCOUNTS, Resource
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from tests.component.controllers.scenarios import has
from tests.support.embedded_process import embedded_cluster

_SECONDS = 60.0
_THINGS = Resource("example.com", "v1", "Thing", "things")


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[KubeClient, Process, Cluster]]:
    """An embedded cluster whose controllers are a process, and its virtual nodes."""
    with embedded_cluster(folder) as cluster:
        async with cluster, cluster.client() as client:
            arguments = [
                *(sys.executable, "-m", "devcluster.controllers", "--kubeconfig", str(cluster.kubeconfig)),
                *("--ca-cert", str(folder / "ca.crt"), "--ca-key", str(folder / "ca.key")),
            ]
            spec = ProcessSpec(
                name="controllers",
                arguments=arguments,
                folder=Path(__file__).parents[3],
                log=folder / "controllers.log",
            )
            process = Process(spec)
            await process.start()
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(VirtualNodes(client, nodes=several(1)).run)
                    yield client, process, cluster
                    tasks.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await process.stop()


async def present(client: KubeClient, resource: Resource, name: str) -> None:
    with anyio.fail_after(_SECONDS):
        while True:
            try:
                await client.get(resource, name, namespace="default")
                return
            except NotFound:
                await anyio.sleep(0.05)


async def gone(client: KubeClient, resource: Resource, name: str) -> None:
    with anyio.fail_after(_SECONDS):
        while True:
            try:
                await client.get(resource, name, namespace="default")
            except NotFound:
                return
            await anyio.sleep(0.05)


def definition() -> JsonObject:
    schema: dict[str, Any] = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def test_an_object_of_a_kind_that_came_later_goes_with_its_owner(tmp_path: Path) -> None:
    async with running(tmp_path) as (client, _, _):
        await present(client, SERVICE_ACCOUNTS, "default")
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
        await client.create(CONFIG_MAPS, body, namespace="default")
        owner = await client.get_object(CONFIG_MAPS, "owner", namespace="default")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        thing = {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "owned", "ownerReferences": [reference]},
        }
        with anyio.fail_after(_SECONDS):
            while True:
                try:
                    await client.create(_THINGS, thing, namespace="default")
                    break
                except NotFound:
                    await anyio.sleep(0.05)
        await client.delete(CONFIG_MAPS, "owner", namespace="default")
        await gone(client, _THINGS, "owned")


@pytest.mark.parametrize("victim", ["controllers", "apiserver"])
async def test_a_job_makes_each_pod_once_though_a_process_is_killed(tmp_path: Path, victim: str) -> None:
    async with running(tmp_path) as (client, controllers, cluster):
        await present(client, SERVICE_ACCOUNTS, "default")
        template = {
            "metadata": {"annotations": {"multikueue.io/run-for": "500ms"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
        }
        spec = {"parallelism": 4, "completions": 8, "completionMode": "Indexed", "template": template}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
        await client.create(JOBS, job, namespace="default")
        with anyio.fail_after(_SECONDS):
            while not (await client.get_object(JOBS, "job", namespace="default"))["status"].get("succeeded"):
                await anyio.sleep(0.05)
        process = controllers if victim == "controllers" else cluster.component("apiserver")
        await process.kill()
        await process.start()
        with anyio.fail_after(_SECONDS):
            while not has(await client.get_object(JOBS, "job", namespace="default"), "Complete"):
                await anyio.sleep(0.1)
        found = await client.get_object(JOBS, "job", namespace="default")
        assert found["status"]["completedIndexes"] == "0-7"
        assert found["status"].get("failed", 0) == 0
        pods = (await client.request("GET", PODS.path("default"))).json()["items"]
        assert len(pods) == 8
