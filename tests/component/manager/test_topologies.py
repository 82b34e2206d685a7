# SPDX-License-Identifier: Apache-2.0
"""Jobs in a queue with a Topology: pods go to the domains that their job was given, or the job waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.constants import (
    POD_SET_REQUIRED_TOPOLOGY_ANNOTATION,
    RESOURCE_IN_USE_FINALIZER,
    TOPOLOGY_SCHEDULING_GATE,
)
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, NODES, PODS, RESOURCE_FLAVORS, SERVICE_ACCOUNTS, TOPOLOGIES
from multikueue.api.topologyslices import expand
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.agents import make_node
from tests.support.app_sets import MANAGER, grant_roles
from tests.support.both_providers import running_cluster
from tests.support.hubs import running_hub
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    eventually,
    get,
    job_manifest,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.anyio

TEAM = "team"
FLAVOR: Object = {
    "apiVersion": RESOURCE_FLAVORS.api_version,
    "kind": RESOURCE_FLAVORS.kind,
    "metadata": {"name": "racked"},
    "spec": {"topologyName": "racks", "nodeLabels": {"pool": "racked"}},
}
TOPOLOGY: Object = {
    "apiVersion": TOPOLOGIES.api_version,
    "kind": TOPOLOGIES.kind,
    "metadata": {"name": "racks"},
    "spec": {"levels": [{"nodeLabel": "example.com/rack"}]},
}
RACK = "example.com/rack"
SERVERS = [
    pytest.param("embedded", id="embedded"),
    pytest.param("binaries", id="binaries", marks=pytest.mark.binaries),
]


async def racked_queue(client: KubeClient) -> None:
    """A queue whose flavor has a topology that is there."""
    await client.create(RESOURCE_FLAVORS, FLAVOR)
    await client.create(TOPOLOGIES, TOPOLOGY)
    await make_queue(client, TEAM, namespace=TEAM, flavor="racked")


async def active_reason(client: KubeClient, reason: str) -> None:
    await eventually(
        lambda: get(client, CLUSTER_QUEUES, TEAM),
        what=f"Active of the ClusterQueue has the reason {reason}",
        until=lambda queue: condition(queue, "Active").get("reason") == reason,
    )


async def rack_node(client: KubeClient, name: str, *, rack: str, pool: str, cpu: str = "4") -> None:
    """A node that is ready and takes pods."""
    await make_node(client, name, cpu=cpu, labels={RACK: rack, "pool": pool})
    # No node controller takes away what a new node is tainted with.
    await client.patch(NODES, name, {"spec": {"taints": None}})


async def test_a_queue_is_active_once_the_topology_of_its_flavor_exists() -> None:
    async with running_hub() as hub, hub.client() as client:
        await client.create(RESOURCE_FLAVORS, FLAVOR)
        async with running_manager(hub.as_cluster, webhooks=False):
            await make_queue(client, TEAM, namespace=TEAM, flavor="racked")
            await active_reason(client, "TopologyNotFound")
            await client.create(TOPOLOGIES, TOPOLOGY)
            await active_reason(client, "Ready")
            await rack_node(client, "n", rack="r1", pool="racked")
            await client.create(JOBS, job_manifest("j", namespace=TEAM, queue=TEAM, suspend=True), namespace=TEAM)
            await wait_condition(client, "j", "Admitted", namespace=TEAM)


async def test_a_topology_stays_until_no_flavor_names_it() -> None:
    async with running_hub() as hub, hub.client() as client:
        await racked_queue(client)
        async with running_manager(hub.as_cluster, webhooks=False):
            await active_reason(client, "Ready")
            await eventually(
                lambda: get(client, TOPOLOGIES, "racks"),
                what="the Topology has its finalizer",
                until=lambda seen: (
                    seen is not None and seen["metadata"].get("finalizers") == [RESOURCE_IN_USE_FINALIZER]
                ),
            )
            await client.delete(TOPOLOGIES, "racks")
            await client.delete(CLUSTER_QUEUES, TEAM)
            await eventually(
                lambda: get(client, CLUSTER_QUEUES, TEAM), what="the queue is gone", until=lambda seen: not seen
            )
            waits = await get(client, TOPOLOGIES, "racks")
            assert waits is not None
            assert "deletionTimestamp" in waits["metadata"]
            await client.delete(RESOURCE_FLAVORS, "racked")
            await eventually(
                lambda: get(client, TOPOLOGIES, "racks"), what="the Topology is gone", until=lambda seen: not seen
            )


async def test_a_topology_that_was_there_before_the_manager_counts() -> None:
    async with running_hub() as hub, hub.client() as client:
        await racked_queue(client)
        async with running_manager(hub.as_cluster, webhooks=False):
            await active_reason(client, "Ready")


@pytest.fixture(scope="module", params=SERVERS)
async def hub(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """An API server with our kinds and its controllers; pods are not scheduled."""
    async with running_cluster(request, tmp_path_factory, "topologies", controllers=True) as cluster:
        yield cluster


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator, beside a manager that has the roles for topologies."""
    async with connections_closed(), hub.client() as client:
        await grant_roles(client, "manager.yaml", "manager-topologies.yaml")
        async with running_manager(hub, user=MANAGER):
            yield client


async def racks(client: KubeClient, team: str, **cpu: str) -> None:
    """A queue of that team's own nodes: one in each of these racks, with so much cpu."""
    topology = {**TOPOLOGY, "metadata": {"name": team}}
    flavor = {**FLAVOR, "metadata": {"name": team}, "spec": {"topologyName": team, "nodeLabels": {"pool": team}}}
    await client.create(TOPOLOGIES, topology)
    await client.create(RESOURCE_FLAVORS, flavor)
    for rack, amount in cpu.items():
        await rack_node(client, f"{team}-{rack}", rack=rack, pool=team, cpu=amount)
    await make_queue(client, team, namespace=team, cpu="100", flavor=team)


async def submit(client: KubeClient, name: str, pods: int, *, team: str) -> None:
    """A Job of that many pods with one cpu each, in one rack."""
    job = job_manifest(name, namespace=team, queue=team, parallelism=pods)
    job["spec"]["template"]["metadata"] = {"annotations": {POD_SET_REQUIRED_TOPOLOGY_ANNOTATION: RACK}}
    await client.create(JOBS, job, namespace=team)


def places(workload: Object) -> dict[str, int]:
    """The racks of its only pod set, with the number of pods."""
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    plain = expand(assigned["topologyAssignment"])
    assert plain["levels"] == [RACK]
    return {"/".join(each["values"]): each["count"] for each in plain["domains"]}


async def admitted(client: KubeClient, name: str, *, team: str) -> dict[str, int]:
    """The places of a Job, once it is admitted."""
    return places(await wait_condition(client, name, "Admitted", namespace=team))


async def waits(client: KubeClient, name: str, message: str, *, team: str) -> None:
    """The Job is not admitted, and its Workload says that."""
    found = await eventually(
        lambda: workload_of(client, name, namespace=team),
        what=f"{team}/{name} waits",
        until=lambda seen: message in condition(seen, "QuotaReserved").get("message", ""),
    )
    shown = condition(found, "QuotaReserved")
    assert (shown["status"], shown["reason"]) == ("False", "TopologyPlacementFailed")


async def started(client: KubeClient, name: str, pods: int, *, team: str) -> Counter[str]:
    """The racks of the pods of a Job, once so many are there and none has the gate."""

    async def probe() -> list[Object]:
        page = await client.list_all(PODS, namespace=team, label_selector=f"batch.kubernetes.io/job-name={name}")
        return [orjson.loads(raw) for raw in page.items]

    def all_started(found: list[Object]) -> bool:
        gates = [gate["name"] for pod in found for gate in pod["spec"].get("schedulingGates") or ()]
        return len(found) == pods and TOPOLOGY_SCHEDULING_GATE not in gates

    found = await eventually(probe, what=f"{pods} pods of {name} are started", until=all_started)
    return Counter(pod["spec"]["nodeSelector"][RACK] for pod in found)


async def bind_pod(client: KubeClient, name: str, node: str, *, team: str, cpu: str) -> None:
    """A pod without a queue on a node."""
    await eventually(
        lambda: get(client, SERVICE_ACCOUNTS, "default", namespace=team), what="pods of the namespace have an account"
    )
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": team}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=team)


async def test_the_pods_of_a_job_go_to_the_rack_that_it_was_given(client: KubeClient) -> None:
    await racks(client, "placed", r1="2", r2="4")
    await submit(client, "three", 3, team="placed")
    assert await admitted(client, "three", team="placed") == {"r2": 3}
    assert await started(client, "three", 3, team="placed") == {"r2": 3}
    await submit(client, "two", 2, team="placed")
    assert await admitted(client, "two", team="placed") == {"r1": 2}
    assert await started(client, "two", 2, team="placed") == {"r1": 2}


async def test_a_job_that_fits_in_no_rack_says_how_much_does_and_waits_for_a_node(client: KubeClient) -> None:
    await racks(client, "full", r1="2", r2="1")
    await submit(client, "large", 4, team="full")
    await waits(client, "large", 'topology "full" allows to fit only 2 out of 4 pod(s)', team="full")
    await rack_node(client, "full-r2-more", rack="r2", pool="full", cpu="3")
    assert await admitted(client, "large", team="full") == {"r2": 4}
    assert await started(client, "large", 4, team="full") == {"r2": 4}


async def test_a_pod_without_a_queue_takes_the_capacity_of_its_node_until_it_is_gone(client: KubeClient) -> None:
    await racks(client, "shared", r1="3")
    await bind_pod(client, "plain", "shared-r1", team="shared", cpu="2")
    await submit(client, "two", 2, team="shared")
    await waits(client, "two", 'topology "shared" allows to fit only 1 out of 2 pod(s)', team="shared")
    await client.delete(PODS, "plain", namespace="shared", grace_seconds=0)
    assert await admitted(client, "two", team="shared") == {"r1": 2}
