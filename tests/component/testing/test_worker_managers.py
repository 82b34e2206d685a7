# SPDX-License-Identifier: Apache-2.0
"""Workers whose nodes have a shape, and whose queues are served by a manager of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from devcluster.federation.federation import Federation
from devcluster.federation.spec import FederationSpec, WorkerSpec
from devcluster.kubelet.node import of_groups
from devcluster.kubelet.node_groups import NodeTaint, NodeTraits, VirtualNodeGroup
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ProviderFactory
from multikueue.api.constants import PREBUILT_WORKLOAD_LABEL
from multikueue.api.resource import JOBS, NODES, WORKLOADS
from multikueue.testing.in_process import embedded_federation
from tests.support.federations import finished, job, objects, wait_until
from tests.support.managers import Object, is_true, make_namespace, make_queue
from tests.support.workers import make_check

GPU = NodeTraits(
    labels={"pool": "gpu"},
    taints=(NodeTaint(key="dedicated", value="gpu", effect="NoSchedule"),),
    resources={"example.com/gpu": "4"},
)
WORKER = WorkerSpec(name="worker-1", nodes=of_groups([VirtualNodeGroup(), VirtualNodeGroup(prefix="gpu", traits=GPU)]))


async def test_the_workers_own_queue_admits_the_job() -> None:
    given = job("asked", run_for="3s")
    given["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    async with embedded_federation(FederationSpec(workers=[WORKER], worker_queues=True)) as federation:
        async with federation.hub.client() as hub, federation.workers["worker-1"].client() as worker:
            await make_check(hub, "workers", ("worker-1",))
            await make_queue(hub, "jobs", namespace="team-a", checks=("workers",))
            await make_queue(worker, "jobs", namespace="team-a", cpu="4")
            await hub.create(JOBS, given, namespace="team-a")

            async def admitted() -> bool:
                return [is_true(each, "Admitted") for each in await objects(worker, WORKLOADS)] == [True]

            async def done() -> bool:
                return await finished(hub) == ["asked"]

            await wait_until(admitted, within=60, what="the worker's queue admits the Workload")
            await wait_until(done, within=60, what="the Job is complete on the hub")
        assert len(federation.worker_managers["worker-1"]) == 1


@pytest.mark.parametrize("queued", [True, False], ids=["by the worker's queues", "by the agent"])
async def test_pods_run_as_the_job_specifies_them_not_the_workload(queued: bool) -> None:
    copies: dict[str, Object] = {}
    twice, own = job("twice", run_for="2s"), job("own", run_for="2s")
    for each in (twice, own):
        each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    twice["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)"},
        {"name": "A", "value": "2"},
    ]
    own["metadata"]["labels"][PREBUILT_WORKLOAD_LABEL] = "made-by-hand"
    (container,) = own["spec"]["template"]["spec"]["containers"]
    own["spec"]["template"]["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    made: Object = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": "made-by-hand", "namespace": "team-a"},
        "spec": {
            "queueName": "jobs",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
        },
    }
    async with embedded_federation(FederationSpec(workers=[WORKER], worker_queues=queued)) as federation:
        async with federation.hub.client() as hub, federation.workers["worker-1"].client() as worker:
            await make_check(hub, "workers", ("worker-1",))
            await make_queue(hub, "jobs", namespace="team-a", checks=("workers",))
            await make_namespace(worker, "team-a")
            if queued:
                await make_queue(worker, "jobs", namespace="team-a", cpu="4")
            for each in (twice, own):
                await hub.create(JOBS, each, namespace="team-a")
            # Before its Job is there, nobody could tell what to send to a worker for it.
            await hub.create(WORKLOADS, made, namespace="team-a")

            async def done() -> bool:
                copies.update({each["metadata"]["name"]: each for each in await objects(worker, JOBS)})
                return sorted(await finished(hub)) == ["own", "twice"]

            await wait_until(done, within=60, what="both Jobs are complete on the hub")
    pods = {name: copy["spec"]["template"]["spec"] for name, copy in copies.items()}
    assert [volume["name"] for volume in pods["own"]["volumes"]] == ["scratch"]
    seen: dict[str, str] = {}
    for entry in pods["twice"]["containers"][0]["env"]:
        seen[entry["name"]] = entry["value"].replace("$(A)", seen.get("A", "$(A)"))
    assert seen == {"A": "2", "B": "1"}


@pytest.mark.parametrize(
    "provider",
    [pytest.param("embedded", id="embedded"), pytest.param("binaries", marks=pytest.mark.binaries, id="binaries")],
)
async def test_nodes_have_their_shape_on_each_provider(
    provider: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made: ProviderFactory = EmbeddedProvider
    if provider == "binaries":
        made = partial(BinariesProvider, binaries=request.getfixturevalue("kube_binaries"))
    spec = FederationSpec(workers=[WORKER], worker_queues=True)
    async with Federation(spec, folder=tmp_path, provider=made) as federation:
        assert set(federation.worker_managers) == {"worker-1"}
        async with federation.workers["worker-1"].client() as client:
            nodes = {each["metadata"]["name"]: each for each in await objects(client, NODES)}
    gpu = nodes["gpu-1"]
    assert (gpu["metadata"]["labels"]["pool"], gpu["status"]["allocatable"]["example.com/gpu"]) == ("gpu", "4")
    assert {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"} in gpu["spec"]["taints"]
    assert "example.com/gpu" not in nodes["node-1"]["status"]["allocatable"]
