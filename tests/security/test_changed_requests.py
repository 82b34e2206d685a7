# SPDX-License-Identifier: Apache-2.0
"""A user changes what a queued Workload requests while its quota is being reserved, to run with more than its quota."""

from __future__ import annotations

import anyio
import orjson
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.storage.entry import StoredChange
from multikueue.api.resource import CLUSTER_QUEUES, WORKLOADS
from tests.support.hubs import running_hub
from tests.support.managers import Object, condition, eventually, get, is_true, make_queue, running_manager
from tests.support.sockets import sockets_settle

__all__ = ["sockets_settle"]

pytestmark = pytest.mark.anyio

TEAM = "team"
PATH = f"/apis/{WORKLOADS.api_version}/namespaces/{TEAM}/workloads/"


def workload(cpu: str) -> Object:
    """One of a single pod, without a job."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": "w", "namespace": TEAM},
        "spec": {"queueName": TEAM, "podSets": [pod_set]},
    }


def quota_of(seen: Object) -> str:
    """The quota that it holds; empty if it holds none."""
    admission = (seen.get("status") or {}).get("admission") or {"podSetAssignments": []}
    return "".join(each["resourceUsage"]["cpu"] for each in admission["podSetAssignments"])


async def test_a_workload_never_has_the_quota_of_its_former_requests() -> None:
    quotas: list[tuple[str, str]] = []

    def record(collection: str, event: StoredChange) -> None:
        if collection == WORKLOADS.qualified and event.entry is not None and quota_of(event.value()):
            containers = event.value()["spec"]["podSets"][0]["template"]["spec"]["containers"]
            quotas.append((quota_of(event.value()), containers[0]["resources"]["requests"]["cpu"]))

    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM, cpu="10")
        async with running_manager(hub.as_cluster, webhooks=False, job_integrations=False) as manager:
            await eventually(
                lambda: get(client, CLUSTER_QUEUES, TEAM),
                what="the queue is active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
            hub.api.context.store.listen(record)
            hub.api.faults.rules = [Fault(method="PATCH", path=PATH, seconds=0.5)]
            stored = orjson.loads(await client.create(WORKLOADS, workload("1"), namespace=TEAM))
            with anyio.fail_after(10):
                while not manager.statuses.under_way:  # its reservation is on the way, and held up for half a second
                    await anyio.sleep(0.005)
            await client.replace(WORKLOADS, "w", {**stored, "spec": workload("8")["spec"]}, namespace=TEAM)
            await eventually(
                lambda: get(client, WORKLOADS, "w", namespace=TEAM),
                what="it has quota",
                until=lambda seen: seen is not None and is_true(seen, "QuotaReserved"),
            )
    assert set(quotas) == {("8", "8")}
