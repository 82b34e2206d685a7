# SPDX-License-Identifier: Apache-2.0
"""Workers that place pods by a topology: a manager with queues runs there, and the hub leaves places to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from multikueue.api.constants import (
    POD_SET_PREFERRED_TOPOLOGY_ANNOTATION,
    POD_SET_REQUIRED_TOPOLOGY_ANNOTATION,
    TOPOLOGY_SCHEDULING_GATE,
)
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, NODES, RESOURCE_FLAVORS, TOPOLOGIES
from multikueue.api.topologyslices import expand
from tests.support.agents import make_node
from tests.support.managers import Object, eventually, is_true, job_manifest, running_manager, wait_condition
from tests.support.scenes import Scene, Stage, scene
from tests.support.sites import Site, own_client

pytestmark = pytest.mark.anyio

RACK: Final = "example.com/rack"
HOST: Final = "kubernetes.io/hostname"
LEVELS: Final = (RACK, HOST)
RACKS: Final = {"r1": ("h1", "h2"), "r2": ("h3", "h4")}
"""Of each worker; each host takes two pods of one cpu."""


async def place_by_racks(client: Any, made: Scene, *, cpu: str = "10") -> None:
    """The queue of the scene has a flavor with a topology there, and so much quota."""
    levels = [{"nodeLabel": level} for level in LEVELS]
    for resource, spec in (
        (TOPOLOGIES, {"levels": levels}),
        (RESOURCE_FLAVORS, {"topologyName": made.name, "nodeLabels": {"pool": made.name}}),
    ):
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": made.name}}
        await client.create(resource, body | {"spec": spec})
    flavor = {"name": made.name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    await client.patch(CLUSTER_QUEUES, made.name, {"spec": {"resourceGroups": groups}})


@asynccontextmanager
async def placing(made: Scene, site: Site, *, cpu: str = "10") -> AsyncIterator[None]:
    """A worker with two racks, whose queues a manager of its own decides about."""
    await place_by_racks(site.client, made, cpu=cpu)
    hosts = [f"{made.name}-{host}" for of_rack in RACKS.values() for host in of_rack]
    for rack, of_rack in RACKS.items():
        for host in of_rack:
            labels = {"pool": made.name, RACK: rack, HOST: host}
            await make_node(site.client, f"{made.name}-{host}", cpu="2", labels=labels)
            # No node controller takes away what a new node is tainted with.
            await site.client.patch(NODES, f"{made.name}-{host}", {"spec": {"taints": None}})
    url = made.stage.servers[0 if site is made.w1 else 1].url
    try:
        async with running_manager(cast(Any, SimpleNamespace(client=lambda: own_client(url))), webhooks=False):
            yield
    finally:
        for host in hosts:
            await site.client.delete(NODES, host)


@asynccontextmanager
async def racked(stage: Stage, title: str, *, second: str = "10") -> AsyncIterator[Scene]:
    """A hub and two workers with topologies; `second` is the quota of the second worker."""
    async with scene(stage, title) as made, AsyncExitStack() as stack:
        await place_by_racks(made.client, made)
        for site, cpu in ((made.w1, "10"), (made.w2, second)):
            await stack.enter_async_context(placing(made, site, cpu=cpu))
        yield made


async def submit(made: Scene, *, pods: int, asks: dict[str, str]) -> tuple[str, str]:
    """A Job of one cpu for each pod; the names of its Workload, and of the worker where it is admitted."""
    body = job_manifest("j", namespace=made.namespace, queue=made.name, suspend=True)
    body["spec"] |= {"parallelism": pods, "completions": pods}
    body["spec"]["template"].setdefault("metadata", {})["annotations"] = asks
    await made.client.create(JOBS, body, namespace=made.namespace)
    workload = await wait_condition(made.client, "j", "Admitted", namespace=made.namespace)
    return workload["metadata"]["name"], workload["status"]["clusterName"]


async def hosts_on(made: Scene, cluster: str, workload: str) -> dict[str, int]:
    """How many pods each host gets by the clone on that worker, which is admitted."""
    site = made.w1 if cluster == made.w1.name else made.w2
    clone = await eventually(
        lambda: site.clone(workload),
        what="it is admitted there",
        until=lambda seen: seen is not None and is_true(seen, "Admitted"),
    )
    assert clone is not None
    (assigned,) = clone["status"]["admission"]["podSetAssignments"]
    job = await eventually(
        lambda: site.job("j", namespace=made.namespace),
        what="it is started there",
        until=lambda seen: seen is not None and not seen["spec"].get("suspend"),
    )
    assert job is not None
    gates = job["spec"]["template"]["spec"].get("schedulingGates") or []
    assert [gate["name"] for gate in gates] == [TOPOLOGY_SCHEDULING_GATE]
    domains = expand(assigned["topologyAssignment"])["domains"]
    return {domain["values"][-1]: domain["count"] for domain in domains}


async def shown(made: Scene) -> Object:
    """What the hub says of the only pod set."""
    status = await made.status()
    (assigned,) = status["admission"]["podSetAssignments"]
    return cast(Object, assigned)


async def test_t1_b15_a_job_has_places_on_the_worker_and_on_the_hub_none_that_it_waits_for(stage: Stage) -> None:
    async with racked(stage, "topology") as made:
        workload, cluster = await submit(made, pods=4, asks={POD_SET_REQUIRED_TOPOLOGY_ANNOTATION: RACK})
        hosts = await hosts_on(made, cluster, workload)
        assert hosts in ({"h1": 2, "h2": 2}, {"h3": 2, "h4": 2})
        assigned = await shown(made)
        assert (assigned["delayedTopologyRequest"], "topologyAssignment" in assigned) == ("Ready", False)


async def test_b16_a_job_that_asks_for_nothing_has_places_where_all_flavors_have_a_topology(stage: Stage) -> None:
    async with racked(stage, "implied") as made:
        workload, cluster = await submit(made, pods=3, asks={})
        assert sum((await hosts_on(made, cluster, workload)).values()) == 3
        assert (await shown(made))["delayedTopologyRequest"] == "Ready"


async def test_b17_a_job_goes_where_the_quota_is_and_keeps_together_what_it_can(stage: Stage) -> None:
    async with racked(stage, "preferred", second="1") as made:
        workload, cluster = await submit(made, pods=6, asks={POD_SET_PREFERRED_TOPOLOGY_ANNOTATION: RACK})
        assert cluster == made.w1.name
        hosts = await hosts_on(made, cluster, workload)
        assert sorted(hosts.values()) == [2, 2, 2]


async def test_b18_a_job_that_requires_one_host_has_one(stage: Stage) -> None:
    async with racked(stage, "host") as made:
        workload, cluster = await submit(made, pods=2, asks={POD_SET_REQUIRED_TOPOLOGY_ANNOTATION: HOST})
        assert list((await hosts_on(made, cluster, workload)).values()) == [2]


async def test_a_job_without_a_place_waits_in_all_queues_and_is_granted_where_there_is_one_first(stage: Stage) -> None:
    async with racked(stage, "no-place") as made:
        body = job_manifest("j", namespace=made.namespace, queue=made.name, suspend=True)
        body["spec"] |= {"parallelism": 3, "completions": 3}
        asks = {POD_SET_REQUIRED_TOPOLOGY_ANNOTATION: HOST}
        body["spec"]["template"].setdefault("metadata", {})["annotations"] = asks
        await made.client.create(JOBS, body, namespace=made.namespace)
        workload = await eventually(partial(made.workload, "j"), what="it has a Workload")
        assert workload is not None
        for site in (made.w1, made.w2):
            of_job = partial(site.clone, workload["metadata"]["name"])
            clone = await eventually(of_job, what=f"it waits on {site.name}")
            assert clone is not None
            assert not is_true(clone, "QuotaReserved")
        assert "clusterName" not in await made.status()
        labels = {"pool": made.name, RACK: "r3", HOST: "h5"}
        node = f"{made.name}-h5"
        await make_node(made.w2.client, node, cpu="3", labels=labels)
        await made.w2.client.patch(NODES, node, {"spec": {"taints": None}})
        workload = await wait_condition(made.client, "j", "Admitted", namespace=made.namespace)
        await made.w2.client.delete(NODES, node)
        assert workload["status"]["clusterName"] == made.w2.name
        assert not any(each["type"] == "Evicted" for each in workload["status"]["conditions"])
