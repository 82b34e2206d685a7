# SPDX-License-Identifier: Apache-2.0
"""Decisions beside an API server that answers late: what cannot be written yet is not decided yet."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest

from devcluster.apiserver.http.faults import Fault
from manager.app import Manager
from multikueue.api.resource import CLUSTER_QUEUES, WORKLOADS
from multikueue.core.keys import Key
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import eventually, is_true, make_queue, running_manager

pytestmark = pytest.mark.anyio

NAMESPACE = "team"
SMALL = 80
"""More than the manager decides ahead of its writes."""
FEW = 20
"""More than are written at once, and fewer than it decides ahead."""


async def create(client: KubeClient, name: str, *, priority: int) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {
        "queueName": "q",
        "priority": priority,
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    workload = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, "metadata": metadata, "spec": spec}
    await client.create(WORKLOADS, workload, namespace=NAMESPACE)


async def having(client: KubeClient, condition: str) -> list[str]:
    """The names of those that have the condition."""
    found = (await client.list_all(WORKLOADS, namespace=NAMESPACE)).items
    return [each["metadata"]["name"] for each in map(orjson.loads, found) if is_true(each, condition)]


async def knows(manager: Manager, name: str) -> bool:
    return manager.caches.view(WORKLOADS).get(Key(NAMESPACE, name)) is not None


async def under_way(manager: Manager) -> int:
    return manager.statuses.under_way


async def reserving(client: KubeClient) -> int:
    found: dict[str, Any] = orjson.loads(await client.get(CLUSTER_QUEUES, "q"))
    return int(found.get("status", {}).get("reservingWorkloads", 0))


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


async def test_a_workload_of_high_priority_comes_before_those_whose_admission_cannot_be_written_yet() -> None:
    async with running_hub() as hub, hub.client() as client:
        preemption = {"withinClusterQueue": "LowerPriority"}
        await make_queue(client, "q", namespace=NAMESPACE, cpu=str(SMALL), preemption=preemption)
        async with running_manager(hub.as_cluster, webhooks=False) as manager:
            path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads/"
            hub.api.faults.rules = [Fault(method="PATCH", path=path, hang=True)]
            for number in range(SMALL):
                await create(client, f"small-{number}", priority=0)
            last = f"small-{SMALL - 1}"
            await eventually(lambda: knows(manager, last), what="the manager knows all Workloads")
            await eventually(lambda: under_way(manager), what="admissions are being written", until=lambda n: n >= 8)
            await create(client, "urgent", priority=1000)
            await eventually(lambda: knows(manager, "urgent"), what="the manager knows the urgent Workload")

            hub.api.faults.rules = []
            await eventually(
                lambda: having(client, "Admitted"), what="the quota is used", until=lambda names: len(names) == SMALL
            )
            assert "urgent" in await having(client, "Admitted")
            # Had all been decided at once, its quota would have had to be taken from one of them.
            assert await having(client, "Preempted") == []


async def test_a_preempted_workload_whose_admission_is_not_written_yet_loses_it_without_an_eviction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="manager.scheduler.scheduler")
    async with running_hub() as hub, hub.client() as client:
        preemption = {"withinClusterQueue": "LowerPriority"}
        await make_queue(client, "q", namespace=NAMESPACE, cpu=str(FEW), preemption=preemption)
        async with running_manager(hub.as_cluster, webhooks=False) as manager:
            path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads/"
            hub.api.faults.rules = [Fault(method="PATCH", path=path, hang=True)]
            for number in range(FEW):
                await create(client, f"small-{number}", priority=0)
            await eventually(lambda: reserving(client), what="all quota is reserved", until=lambda n: n == FEW)
            assert await under_way(manager) < FEW
            await create(client, "urgent", priority=1000)
            text = f"preemptor={NAMESPACE}/urgent"
            await eventually(lambda: logged(caplog, text), what="a reservation is withdrawn for the urgent Workload")

            hub.api.faults.rules = []
            admitted = await eventually(
                lambda: having(client, "Admitted"), what="the quota is used", until=lambda names: len(names) == FEW
            )
            assert "urgent" in admitted
            assert await having(client, "Evicted") == []
