# SPDX-License-Identifier: Apache-2.0
"""A federation in the event loop of a test does what one of processes does, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from devcluster.federation.spec import FederationSpec, WorkerSpec, several_workers
from devcluster.kubelet.node import several
from multikueue.api.resource import JOBS, MULTIKUEUE_CLUSTERS, NAMESPACES, NODES, PODS
from multikueue.core.errors import MultikueueError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.in_process import InProcessCluster, embedded_federation
from tests.support import federations
from tests.support.federations import job


async def test_a_job_given_to_the_hub_runs_once_on_one_worker() -> None:
    async with embedded_federation() as federation:
        await federations.apply_two_teams(federation)
        given = job("in-process", pods=2, run_for="100ms")
        async with federation.hub.client() as hub:
            await hub.create(JOBS, given, namespace="team-a")

            async def done() -> bool:
                return await federations.finished(hub) == ["in-process"]

            await federations.wait_until(done, within=60, what="the Job is complete on the hub")
            assert await federations.names(hub, PODS) == []
        assert federations.ran_once(federation, [given]) == []


async def test_a_federation_has_the_workers_and_nodes_of_its_spec() -> None:
    workers = [WorkerSpec(name="small", nodes=several(1)), *several_workers(2, nodes=3)]
    async with embedded_federation(FederationSpec(workers=workers)) as federation:
        async with federation.hub.client() as hub:
            assert await federations.names(hub, MULTIKUEUE_CLUSTERS) == ["small", "worker-1", "worker-2"]
        for worker in workers:
            async with federation.workers[worker.name].client() as client:
                assert len(await federations.names(client, NODES)) == len(worker.nodes)
        assert set(federation.agents) == {"small", "worker-1", "worker-2"}


async def test_other_programs_use_the_kubeconfig_that_it_writes(tmp_path: Path) -> None:
    async with embedded_federation(FederationSpec(workers=several_workers(1))) as federation:
        for cluster in federation.clusters:
            path = cluster.write_kubeconfig(tmp_path / cluster.name)
            config = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]
            # Over plain HTTP kubectl and client-go send no token.
            assert config["server"].startswith("https://")
            async with KubeClient(credentials.load(path)) as client:
                assert "default" in await federations.names(client, NAMESPACES)


async def test_a_kubeconfig_needs_a_cluster_that_is_served(tmp_path: Path) -> None:
    with pytest.raises(MultikueueError, match="cluster alone is not served"):
        InProcessCluster("alone").write_kubeconfig(tmp_path / "alone")


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    async def divide_by_zero() -> float:
        async with embedded_federation(FederationSpec(workers=several_workers(1), manager=False)) as federation:
            return 1 / len(federation.agents)

    with pytest.raises(ZeroDivisionError):
        await divide_by_zero()
