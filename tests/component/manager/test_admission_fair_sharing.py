# SPDX-License-Identifier: Apache-2.0
"""What local queues used is sampled, shown in their status, and survives the manager (docs/spec/engine.md §1.10)."""

from __future__ import annotations

import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import Object, eventually, get, make_job, make_queue, running_manager, wait_condition

pytestmark = [pytest.mark.anyio, pytest.mark.binaries]

NAMESPACE = "team-usage"
SETTINGS = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
admissionFairSharing: {usageHalfLifeTime: 10s, usageSamplingInterval: 1s}
"""


def recorded(queue: Object | None) -> Object:
    """The consumption in the status; empty before the first sample."""
    status: Object = ((queue or {}).get("status") or {}).get("fairSharing") or {}
    found: Object = status.get("admissionFairSharingStatus") or {}
    return found


async def shows(client: KubeClient, *, other_than: Object) -> Object:
    queue = await eventually(
        lambda: get(client, LOCAL_QUEUES, "used", namespace=NAMESPACE),
        what="the local queue shows what it consumed",
        until=lambda found: "cpu" in recorded(found).get("consumedResources", {}) and recorded(found) != other_than,
    )
    return recorded(queue)


async def test_usage_is_sampled_while_jobs_run_and_a_new_manager_resumes_from_it(
    hub: Cluster, client: KubeClient
) -> None:
    async with running_manager(hub, settings=SETTINGS):
        await make_queue(client, "used", namespace=NAMESPACE)
        mode = {"spec": {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}}
        await client.patch(CLUSTER_QUEUES, "used", mode)
        await make_job(client, "worker", namespace=NAMESPACE, queue="used", cpu="2")
        await wait_condition(client, "worker", "Admitted", namespace=NAMESPACE)
        first = await shows(client, other_than={})
        second = await shows(client, other_than=first)
    assert second["lastUpdate"] >= first["lastUpdate"]
    async with running_manager(hub, settings=SETTINGS):
        third = await shows(client, other_than=second)
    # A start from nothing would record nothing at its first sample, and little at the next.
    assert third["consumedResources"]["cpu"] != "0"
    assert third["lastUpdate"] > second["lastUpdate"]
