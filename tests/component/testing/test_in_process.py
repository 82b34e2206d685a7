# SPDX-License-Identifier: Apache-2.0
"""A federation in the event loop of a test does what one of processes does, and leaves nothing behind."""

from __future__ import annotations

import pytest

from devcluster.federation.spec import FederationSpec, WorkerSpec, several_workers
from devcluster.kubelet.node import several
from multikueue.api.resource import MULTIKUEUE_CLUSTERS, NODES, PODS
from multikueue.testing.in_process import embedded_federation
from tests.support import federations
from tests.support.federations import job

pytestmark = pytest.mark.timeout(180)


async def test_a_job_given_to_the_hub_runs_once_on_one_worker() -> None:
    async with embedded_federation() as federation:
        await federations.apply_two_teams(federation)
        given = job("in-process", pods=2, run_for="100ms")
        async with federation.hub.client() as hub:
            await hub.create(federations.JOBS, given, namespace="team-a")

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


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    async def divide_by_zero() -> float:
        async with embedded_federation(FederationSpec(workers=several_workers(1), manager=False)) as federation:
            return 1 / len(federation.agents)

    with pytest.raises(ZeroDivisionError):
        await divide_by_zero()
