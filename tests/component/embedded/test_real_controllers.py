# SPDX-License-Identifier: Apache-2.0
"""The Job controller and the scheduler of a real cluster, both written in Go, at work on the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from devcluster.cluster import CONTROLLER_MANAGER, KUBELET_CLIENT, SCHEDULER, Cluster
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import LogServing, VirtualNodes
from devcluster.pki import Authority
from devcluster.processes.process import Process
from devcluster.providers.binaries import control_plane
from devcluster.providers.binaries.release import Binaries
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.resource import JOBS, PODS
from multikueue.kube.rest.client import KubeClient

pytestmark = pytest.mark.binaries

_DEADLINE = 60.0


@pytest.fixture
async def cluster(kube_binaries: Binaries, tmp_path: Path) -> AsyncIterator[Cluster]:
    """An embedded API server without controllers of ours; real ones run against it, by certificate."""
    bare = ClusterSpec(controllers=False, scheduler=False)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(EmbeddedProvider(folder=tmp_path))
        made = await provider.create("judged", folder=tmp_path / "judged", spec=bare)
        await stack.enter_async_context(made)
        layout = control_plane.ControlPlaneLayout(
            name=made.name, folder=made.folder, etcd_folder=tmp_path, port=int(made.server.rpartition(":")[2])
        )
        control_plane.prepare(layout, Authority.load_or_create(layout.pki, name="judged-ca"))
        for spec in (
            control_plane.controller_manager(kube_binaries, layout),
            control_plane.scheduler(kube_binaries, layout),
        ):
            process = Process(spec)
            await process.start()
            stack.push_async_callback(process.stop)
        yield made


def job(name: str, **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"multikueue.io/run-for": "200ms"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


async def test_real_controllers_run_jobs_to_their_end_and_collect_their_pods(cluster: Cluster) -> None:
    pki = cluster.folder / "pki"
    logs = LogServing(
        ca=pki / "ca.crt", certificate=pki / "kubelet.crt", key=pki / "kubelet.key", caller=KUBELET_CLIENT
    )
    async with cluster.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(VirtualNodes(client, nodes=several(2), cluster=cluster.name, logs=logs).run)
        await client.create(JOBS, job("pair", parallelism=2, completions=2), namespace="default")
        indexed = job("indexed", parallelism=2, completions=3, completionMode="Indexed")
        await client.create(JOBS, indexed, namespace="default")

        pair = await _completed(client, cluster, "pair")
        assert pair["status"]["succeeded"] == 2
        assert "kube-controller-manager" in {each["manager"] for each in pair["metadata"]["managedFields"]}
        indexes = await _completed(client, cluster, "indexed")
        assert indexes["status"]["completedIndexes"] == "0-2"
        pods = await client.list_all(PODS, namespace="default")
        assert len(pods.items) == 5

        await client.delete(JOBS, "pair", namespace="default", propagation="Background")
        await client.delete(JOBS, "indexed", namespace="default", propagation="Foreground")
        with anyio.move_on_after(_DEADLINE):
            while (await client.list_all(PODS, namespace="default")).items:
                await anyio.sleep(0.05)
        assert not (await client.list_all(PODS, namespace="default")).items, _told(cluster)
        tasks.cancel_scope.cancel()
    assert any("Caches are synced" in line for line in _log(cluster, CONTROLLER_MANAGER))
    assert [line for each in (CONTROLLER_MANAGER, SCHEDULER) for line in _failures(cluster, each)] == []


async def _completed(client: KubeClient, cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with anyio.move_on_after(_DEADLINE):
        while True:
            found = await client.get_object(JOBS, name, namespace="default")
            if found.get("status", {}).get("completionTime"):
                return found
            await anyio.sleep(0.05)
    raise AssertionError(f"job {name} did not end: {found.get('status')}\n{_told(cluster)}")


def _log(cluster: Cluster, component: str) -> list[str]:
    return (cluster.folder / "logs" / f"{component}.log").read_text().splitlines()


def _failures(cluster: Cluster, component: str) -> list[str]:
    """What an informer could neither list nor watch."""
    return [line for line in _log(cluster, component) if line[:1] in "EW" and "reflector" in line.lower()]


def _told(cluster: Cluster) -> str:
    """The ends of both logs."""
    return "\n".join("\n".join(_log(cluster, component)[-15:]) for component in (CONTROLLER_MANAGER, SCHEDULER))
