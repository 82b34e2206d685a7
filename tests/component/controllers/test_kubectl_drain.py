# SPDX-License-Identifier: Apache-2.0
"""`kubectl drain` on an embedded cluster: a dry run evicts nothing, and a budget is waited for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from devcluster.controllers.app import Controllers
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.providers.binaries.release import KUBECTL, Binaries
from multikueue.api.resource import NODES
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.component.controllers.budget_cases import BudgetStage
from tests.component.controllers.cluster_cases import Place
from tests.support.embedded_process import embedded_cluster

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.binaries


async def test_a_drain_evicts_nothing_in_a_dry_run_and_then_as_many_as_the_budget_allows(
    kube_binaries: Binaries, tmp_path: Path
) -> None:
    with embedded_cluster(tmp_path) as cluster:
        async with cluster, cluster.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(Controllers(client).run)
            tasks.start_soon(VirtualNodes(client, nodes=several(1)).run)
            place = Place(client, "drained")
            await place.found()
            stage = BudgetStage(place)
            await stage.create(replicas=3)
            await stage.ready(3)
            await stage.budget(minAvailable=2)
            before = await stage.seen(disruptionsAllowed=1)
            node = (await client.request("GET", NODES.path())).json()["items"][0]["metadata"]["name"]

            async def drain(*options: str) -> subprocess.CompletedProcess[str]:
                command = [str(kube_binaries.path(KUBECTL)), f"--kubeconfig={cluster.kubeconfig}", "drain", node]
                return await anyio.to_thread.run_sync(
                    lambda: subprocess.run(
                        [*command, *options], capture_output=True, text=True, timeout=60, check=False
                    )
                )

            pods = await _names(stage)
            done = await drain("--dry-run=server")
            assert done.returncode == 0, done.stderr
            assert sum(f"evicting pod drained/{pod} (server dry run)" in done.stdout for pod in pods) == 3
            assert await _names(stage) == pods
            assert await stage.seen() == before

            done = await drain("--timeout=3s")
            # The next pod has no node any more, so that the budget allows no second eviction.
            assert done.returncode == 1, done.stdout
            assert "Cannot evict pod as it would violate the pod's disruption budget." in done.stderr
            assert len(set(pods) & set(await _names(stage))) == 2
            await _uncordon(client, node)
            await stage.ready(3)
            await stage.seen(disruptionsAllowed=1)
            tasks.cancel_scope.cancel()


async def _names(stage: BudgetStage) -> list[str]:
    return [pod["metadata"]["name"] for pod in await stage.pods()]


async def _uncordon(client: KubeClient, node: str) -> None:
    await client.patch(NODES, node, {"spec": {"unschedulable": None}})
