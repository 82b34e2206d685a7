# SPDX-License-Identifier: Apache-2.0
"""A Workload has one owner: a Job that names the Workload of another one does not run on the other's quota."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from multikueue.api.constants import PREBUILT_WORKLOAD_LABEL, RESOURCE_IN_USE_FINALIZER
from multikueue.api.resource import EVENTS, JOBS, WORKLOADS
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.errors import ApiError
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import (
    Object,
    connections_closed,
    eventually,
    get,
    is_true,
    job_manifest,
    make_queue,
    running_manager,
    wait_condition,
)
from tests.support.tenant_hubs import hub as hub

pytestmark = pytest.mark.anyio

TEAM = "team"


async def submit(client: KubeClient, name: str, **more: Any) -> Object:
    workload = more.pop("workload", "")
    labels = {PREBUILT_WORKLOAD_LABEL: workload} if workload else {}
    manifest = job_manifest(name, namespace=TEAM, queue=TEAM, labels=labels, suspend=True, **more)
    stored: Object = orjson.loads(await client.create(JOBS, manifest, namespace=TEAM))
    return stored


async def refusals(client: KubeClient, job: str) -> list[str]:
    """What the Job was told about the Workload that it names."""
    page = await client.list_all(EVENTS, namespace=TEAM)
    found = [orjson.loads(raw) for raw in page.items]
    return [
        event["note"] for event in found if (event["reason"], event["regarding"]["name"]) == ("WorkloadRefused", job)
    ]


async def refused(client: KubeClient, job: str, why: str) -> None:
    """Wait for the event; the Job is suspended then, and stays so."""

    async def told() -> list[str]:
        return await refusals(client, job)

    await eventually(told, what=f"{job} is refused", until=lambda seen: any(why in note for note in seen))
    found = await get(client, JOBS, job, namespace=TEAM)
    assert found is not None
    assert found["spec"]["suspend"] is True


def workload_for(job: Object, name: str) -> Object:
    """A Workload for such a Job, which nobody owns."""
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"queueName": TEAM, "active": True, "podSets": list(BATCH_JOB.pod_sets(job)), "priority": 0},
    }


async def started(client: KubeClient, *names: str) -> list[str]:
    """Those of the Jobs that were started."""
    found = [await get(client, JOBS, name, namespace=TEAM) for name in names]
    return [job["metadata"]["name"] for job in found if job is not None and not job["spec"]["suspend"]]


async def test_a_job_that_names_another_jobs_workload_stays_suspended_with_an_event() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM, cpu="1")
        async with running_manager(hub.as_cluster, webhooks=False):
            await submit(client, "honest")
            admitted = await wait_condition(client, "honest", "Admitted", namespace=TEAM)
            await submit(client, "thief", workload=admitted["metadata"]["name"])
            await refused(client, "thief", 'belongs to "Job" "honest"')
            # Nor does the end of the second one touch what belongs to the first.
            await client.delete(JOBS, "thief", namespace=TEAM)
            await submit(client, "second-thief", workload=admitted["metadata"]["name"])
            await refused(client, "second-thief", 'belongs to "Job" "honest"')
            kept = await get(client, WORKLOADS, admitted["metadata"]["name"], namespace=TEAM)
            assert kept is not None
            assert RESOURCE_IN_USE_FINALIZER in kept["metadata"]["finalizers"]
            assert is_true(kept, "Admitted")


async def test_a_job_that_runs_already_is_stopped_when_its_workload_belongs_to_another() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM, cpu="1")
        async with running_manager(hub.as_cluster, webhooks=False):
            await submit(client, "honest")
            admitted = await wait_condition(client, "honest", "Admitted", namespace=TEAM)
            labels = {PREBUILT_WORKLOAD_LABEL: admitted["metadata"]["name"]}
            running = job_manifest("thief", namespace=TEAM, queue=TEAM, labels=labels, suspend=False)
            await client.create(JOBS, running, namespace=TEAM)
            await eventually(
                lambda: get(client, JOBS, "thief", namespace=TEAM),
                what="it is suspended",
                until=lambda seen: bool(seen and seen["spec"]["suspend"]),
            )


async def test_of_two_jobs_that_name_one_free_workload_the_second_stays_suspended() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM, cpu="10")
        async with running_manager(hub.as_cluster, webhooks=False):
            like = await submit(client, "one", workload="shared")
            await submit(client, "two", workload="shared")
            await client.create(WORKLOADS, workload_for(like, "shared"), namespace=TEAM)

            async def ran() -> list[str]:
                return await started(client, "one", "two")

            (first,) = await eventually(ran, what="one of them runs")
            second = {"one": "two", "two": "one"}[first]
            await refused(client, second, f'belongs to "Job" "{first}"')
            assert await ran() == [first]


@pytest.mark.parametrize(
    ("state", "why"),
    [("other pods", "in its pods or its queue"), ("finished", "is finished"), ("deleted", "is being deleted")],
    ids=["made for other pods", "finished", "being deleted"],
)
async def test_a_workload_that_cannot_be_the_jobs_own_is_left_as_it_is(state: str, why: str) -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM, cpu="10")
        mine = job_manifest("mine", namespace=TEAM, queue=TEAM)
        theirs = job_manifest("theirs", namespace=TEAM, queue=TEAM, cpu="9")
        made = workload_for(theirs if state == "other pods" else mine, "w")
        # Of another client: the manager removes its own from a Workload without an owner that is being deleted.
        made["metadata"]["finalizers"] = [RESOURCE_IN_USE_FINALIZER, "example.com/kept"]
        await client.create(WORKLOADS, made, namespace=TEAM)
        if state == "finished":
            ended = {
                "type": "Finished",
                "status": "True",
                "reason": "Succeeded",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            await client.patch(
                WORKLOADS, "w", {"status": {"conditions": [ended]}}, namespace=TEAM, subresource="status"
            )
        if state == "deleted":
            await client.delete(WORKLOADS, "w", namespace=TEAM)
        before = await get(client, WORKLOADS, "w", namespace=TEAM)
        async with running_manager(hub.as_cluster, webhooks=False):
            await submit(client, "mine", workload="w")
            await refused(client, "mine", why)
            after = await get(client, WORKLOADS, "w", namespace=TEAM)
            assert before is not None
            assert after is not None
            assert after["metadata"].get("ownerReferences") is None
            assert after["spec"] == before["spec"]
            assert not is_true(after, "Finished") or state == "finished"


async def test_a_job_with_a_workload_of_its_own_making_runs_as_ever() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_queue(client, TEAM, namespace=TEAM, cpu="10")
        async with running_manager(hub.as_cluster, webhooks=False):
            like = await submit(client, "mine", workload="w")
            await client.create(WORKLOADS, workload_for(like, "w"), namespace=TEAM)

            async def ran() -> list[str]:
                return await started(client, "mine")

            await eventually(ran, what="it runs")
            assert await refusals(client, "mine") == []


async def test_the_webhook_refuses_a_new_job_that_names_another_jobs_workload(hub: Any) -> None:
    async with connections_closed(), hub.client() as client, running_manager(hub):
        await make_queue(client, TEAM, namespace=TEAM, cpu="1")
        await submit(client, "honest")
        admitted = await wait_condition(client, "honest", "Admitted", namespace=TEAM)
        with pytest.raises(ApiError, match="a Workload has one owner"):
            await submit(client, "thief", workload=admitted["metadata"]["name"])
