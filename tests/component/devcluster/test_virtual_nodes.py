# SPDX-License-Identifier: Apache-2.0
"""Virtual nodes on a real control plane: its scheduler, its Job controller, its kubectl."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from devcluster.cluster import KUBELET_CLIENT, Cluster
from devcluster.kubelet.journal import ENDED, STARTED, STOPPED, JournalEntry
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import LogServing, VirtualNodes
from devcluster.providers.binaries.release import Binaries
from multikueue.api.resource import JOBS, NODES, PODS
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient

pytestmark = pytest.mark.binaries


@asynccontextmanager
async def running_nodes(cluster: Cluster, entries: list[JournalEntry] | None = None) -> AsyncIterator[KubeClient]:
    pki = cluster.folder / "pki"
    logs = LogServing(
        ca=pki / "ca.crt", certificate=pki / "kubelet.crt", key=pki / "kubelet.key", caller=KUBELET_CLIENT
    )
    record = entries.append if entries is not None else None
    async with cluster.client() as client, anyio.create_task_group() as tasks:
        nodes = VirtualNodes(client, nodes=several(2), cluster=cluster.name, logs=logs, record=record)
        tasks.start_soon(nodes.run)
        yield client
        tasks.cancel_scope.cancel()


def pod(name: str, *, restart: str = "Never", **annotations: str) -> dict[str, Any]:
    told = {f"multikueue.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": told},
        "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "busybox"}]},
    }


async def until(client: KubeClient, name: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The pod as soon as it is as wanted."""
    found: dict[str, Any] = {}
    with anyio.move_on_after(30):
        while True:
            found = await client.get_object(PODS, name, namespace="default")
            if condition(found):
                return found
            await anyio.sleep(0.05)
    raise AssertionError(f"pod {name} did not get there: {found['status']}")


async def exists(client: KubeClient, name: str) -> bool:
    try:
        await client.get(PODS, name, namespace="default")
    except NotFound:
        return False
    return True


def phase(wanted: str) -> Callable[[dict[str, Any]], bool]:
    return lambda found: found["status"].get("phase") == wanted


def condition_of(found: dict[str, Any], name: str) -> str:
    entries = found["status"].get("conditions") or ()
    return next((str(each["status"]) for each in entries if each["type"] == name), "")


async def test_a_job_runs_to_its_end_and_is_written_down(binaries_cluster: Cluster) -> None:
    entries: list[JournalEntry] = []
    async with running_nodes(binaries_cluster, entries) as client:
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "pair"},
            "spec": {
                "parallelism": 2,
                "completions": 2,
                "template": {
                    "metadata": {"annotations": {"multikueue.io/run-for": "300ms"}},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
                },
            },
        }
        await client.create(JOBS, job, namespace="default")
        with anyio.fail_after(30):
            while not (await client.get_object(JOBS, "pair", namespace="default"))["status"].get("completionTime"):
                await anyio.sleep(0.05)
        await client.delete(JOBS, "pair", namespace="default", propagation="Background")
    mine = [entry for entry in entries if entry.owner == "Job/pair"]
    assert sorted(entry.event for entry in mine) == [ENDED, ENDED, STARTED, STARTED]
    assert {entry.exit_code for entry in mine if entry.event == ENDED} == {0}


async def test_nodes_are_ready_and_schedulable(binaries_cluster: Cluster) -> None:
    async with running_nodes(binaries_cluster) as client:
        with anyio.fail_after(30):
            while True:
                try:
                    node = await client.get_object(NODES, "node-1")
                except NotFound:
                    node = {"spec": {"taints": ["not registered yet"]}}
                if not node["spec"].get("taints"):
                    break
                await anyio.sleep(0.05)
    assert node["status"]["allocatable"]["cpu"] == "8"
    ready = next(each for each in node["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True"


async def test_pods_end_as_their_annotations_specify(binaries_cluster: Cluster) -> None:
    async with running_nodes(binaries_cluster) as client:
        for each in (
            pod("fails", run_for="0s", exit_code="3"),
            pod("recovers", restart="OnFailure", run_for="100ms", fail_once="true"),
            pod("stays", run_for="forever"),
            pod("unready", run_for="forever", never_ready="true"),
            pod("slow", run_for="forever", ready_after="400ms"),
            pod("wrong", run_for="soon"),
        ):
            await client.create(PODS, each, namespace="default")
        failed = await until(client, "fails", phase("Failed"))
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        recovered = await until(client, "recovers", phase("Succeeded"))
        assert recovered["status"]["containerStatuses"][0]["restartCount"] == 1
        await until(client, "stays", lambda found: condition_of(found, "Ready") == "True")
        await until(client, "slow", phase("Running"))
        await until(client, "slow", lambda found: condition_of(found, "Ready") == "True")
        unready = await until(client, "unready", phase("Running"))
        assert condition_of(unready, "Ready") == "False"
        wrong = await until(client, "wrong", phase("Failed"))
        assert "run-for: 'soon' is not a duration" in wrong["status"]["message"]
        await client.delete_collection(PODS, namespace="default")


async def test_a_deleted_pod_takes_the_time_of_its_annotation(binaries_cluster: Cluster) -> None:
    entries: list[JournalEntry] = []
    async with running_nodes(binaries_cluster, entries) as client:
        await client.create(PODS, pod("lingers", run_for="forever", stop_after="1s"), namespace="default")
        await until(client, "lingers", phase("Running"))
        await client.delete(PODS, "lingers", namespace="default", grace_seconds=30)
        lingering = await until(client, "lingers", lambda found: "deletionTimestamp" in found["metadata"])
        assert lingering["status"]["phase"] == "Running"
        with anyio.fail_after(20):
            while [entry.event for entry in entries if entry.pod == "lingers"] != [STARTED, STOPPED]:
                await anyio.sleep(0.05)
        with anyio.fail_after(20):
            while await exists(client, "lingers"):
                await anyio.sleep(0.05)


async def test_pods_run_on_when_the_process_of_the_nodes_comes_back(binaries_cluster: Cluster) -> None:
    entries: list[JournalEntry] = []
    async with running_nodes(binaries_cluster) as client:
        await client.create(PODS, pod("survivor", run_for="10s"), namespace="default")
        before = await until(client, "survivor", phase("Running"))
    async with running_nodes(binaries_cluster, entries) as client:
        after = await until(client, "survivor", phase("Succeeded"))
        await client.delete(PODS, "survivor", namespace="default", grace_seconds=0)
    started = before["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert after["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"] == started
    assert [entry.event for entry in entries if entry.pod == "survivor"] == [ENDED]


async def test_kubectl_logs_shows_the_output_of_a_container(binaries_cluster: Cluster, kube_binaries: Binaries) -> None:
    async with running_nodes(binaries_cluster) as client:
        await client.create(PODS, pod("talks", run_for="forever"), namespace="default")
        await until(client, "talks", phase("Running"))
        command = [
            str(kube_binaries.path("kubectl")),
            "--kubeconfig",
            str(binaries_cluster.kubeconfig),
            "logs",
            "talks",
        ]
        said = await anyio.run_process(command)
        await client.delete(PODS, "talks", namespace="default", grace_seconds=0)
    assert said.stdout.decode().startswith("main started on virtual node node-")
