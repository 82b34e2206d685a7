# SPDX-License-Identifier: Apache-2.0
"""Jobs that name no queue, a queue without a ClusterQueue, or a priority class that there is not, on a hub."""

from __future__ import annotations

from typing import Any, Final

import orjson

from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.resource import EVENTS, JOBS, LOCAL_QUEUES, PRIORITY_CLASSES
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import (
    condition,
    eventually,
    get,
    job_manifest,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

TEAM: Final = "team"
EVERY_JOB: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
manageJobsWithoutQueueName: true
"""


async def test_a_job_without_a_queue_waits_until_it_has_one_and_again_when_it_has_none() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM)
        await make_queue(client, "full", namespace=TEAM, cpu="0")
        async with running_manager(hub.as_cluster, settings=EVERY_JOB, webhooks=False):
            await create(client, job_manifest("j", namespace=TEAM, queue=None, suspend=True))
            waiting = await wait_condition(client, "j", "QuotaReserved", namespace=TEAM, status="False")
            assert "queueName" not in waiting["spec"]
            assert_says(waiting, "LocalQueue  doesn't exist")
            await eventually(
                lambda: reasons(client), what="its event", until=lambda seen: ("j", "LocalQueueNotFound") in seen
            )
            await name_queue(client, "full")
            await eventually(lambda: queue_of(client), what="its queue", until=lambda seen: seen == "full")
            await name_queue(client, None)
            await eventually(lambda: queue_of(client), what="no queue", until=lambda seen: seen is None)
            await name_queue(client, TEAM)
            await wait_condition(client, "j", "Admitted", namespace=TEAM)


async def test_a_local_queue_without_a_cluster_queue_counts_what_waits_in_it() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_namespace(client, TEAM)
        metadata = {"name": "q", "namespace": TEAM}
        queue = {"apiVersion": LOCAL_QUEUES.api_version, "kind": "LocalQueue", "metadata": metadata}
        await client.create(LOCAL_QUEUES, {**queue, "spec": {"clusterQueue": "none"}}, namespace=TEAM)
        async with running_manager(hub.as_cluster, webhooks=False):
            await create(client, job_manifest("j", namespace=TEAM, queue="q", suspend=True))
            await eventually(
                lambda: get(client, LOCAL_QUEUES, "q", namespace=TEAM),
                what="a pending workload",
                until=lambda seen: ((seen or {}).get("status") or {}).get("pendingWorkloads") == 1,
            )


async def test_a_job_whose_pods_name_a_missing_priority_class_is_queued_once_it_is_there() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM)
        async with running_manager(hub.as_cluster, webhooks=False):
            job = job_manifest("j", namespace=TEAM, queue=TEAM, suspend=True)
            job["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
            await create(client, job)
            await eventually(
                lambda: reasons(client), what="its event", until=lambda seen: ("j", "ErrWorkloadCompose") in seen
            )
            assert await workload_of(client, "j", namespace=TEAM) is None
            shared = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass"}
            await client.create(PRIORITY_CLASSES, {**shared, "metadata": {"name": "urgent"}, "value": 7})
            admitted = await wait_condition(client, "j", "Admitted", namespace=TEAM)
            assert admitted["spec"]["priority"] == 7
            assert admitted["spec"]["priorityClassRef"]["name"] == "urgent"


async def create(client: KubeClient, job: dict[str, Any]) -> None:
    await client.create(JOBS, job, namespace=TEAM)


async def name_queue(client: KubeClient, queue: str | None) -> None:
    await client.patch(JOBS, "j", {"metadata": {"labels": {QUEUE_NAME_LABEL: queue}}}, namespace=TEAM)


async def queue_of(client: KubeClient) -> str | None:
    workload = await workload_of(client, "j", namespace=TEAM)
    assert workload is not None
    found: str | None = workload["spec"].get("queueName")
    return found


async def reasons(client: KubeClient) -> set[tuple[str, str]]:
    """The names of jobs that have events, each with a reason."""
    events = [orjson.loads(raw) for raw in (await client.list_all(EVENTS, namespace=TEAM)).items]
    return {(each["regarding"]["name"], each["reason"]) for each in events}


def assert_says(workload: dict[str, Any], message: str) -> None:
    found = condition(workload, "QuotaReserved")
    assert found is not None
    assert found["message"] == message
