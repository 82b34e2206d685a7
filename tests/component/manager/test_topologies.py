# SPDX-License-Identifier: Apache-2.0
"""A queue whose flavor names a Topology is active while that Topology exists."""

from __future__ import annotations

import pytest

from multikueue.api.resource import CLUSTER_QUEUES, JOBS, RESOURCE_FLAVORS, TOPOLOGIES
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    job_manifest,
    make_queue,
    running_manager,
    wait_condition,
)

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


async def active_reason(client: KubeClient, reason: str) -> None:
    await eventually(
        lambda: get(client, CLUSTER_QUEUES, TEAM),
        what=f"Active of the ClusterQueue has the reason {reason}",
        until=lambda queue: condition(queue, "Active").get("reason") == reason,
    )


async def test_a_queue_is_active_once_the_topology_of_its_flavor_exists() -> None:
    async with running_hub() as hub, hub.client() as client:
        await client.create(RESOURCE_FLAVORS, FLAVOR)
        async with running_manager(hub.as_cluster, webhooks=False):
            await make_queue(client, TEAM, namespace=TEAM, flavor="racked")
            await active_reason(client, "TopologyNotFound")
            await client.create(TOPOLOGIES, TOPOLOGY)
            await active_reason(client, "Ready")
            await client.create(JOBS, job_manifest("j", namespace=TEAM, queue=TEAM, suspend=True), namespace=TEAM)
            await wait_condition(client, "j", "Admitted", namespace=TEAM)
            await client.delete(TOPOLOGIES, "racks")
            await active_reason(client, "TopologyNotFound")


async def test_a_topology_that_was_there_before_the_manager_counts() -> None:
    async with running_hub() as hub, hub.client() as client:
        await client.create(RESOURCE_FLAVORS, FLAVOR)
        await client.create(TOPOLOGIES, TOPOLOGY)
        await make_queue(client, TEAM, namespace=TEAM, flavor="racked")
        async with running_manager(hub.as_cluster, webhooks=False):
            await active_reason(client, "Ready")
