# SPDX-License-Identifier: Apache-2.0
"""A Workload that a user made is its Job's when it holds quota for the pods that the Job runs, and only then."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.constants import PREBUILT_WORKLOAD_LABEL
from multikueue.api.resource import EVENTS, JOBS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    eventually,
    get,
    is_true,
    job_manifest,
    make_queue,
    running_manager,
)
from tests.support.tenant_hubs import hub as hub

pytestmark = pytest.mark.anyio


def asking(cpu: str, *, name: str = "c") -> Object:
    return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}}}


def sparse(name: str, *, team: str, cpu: str = "1", **metadata: Any) -> Object:
    """A Workload that names nothing but its container, as a user writes it by hand."""
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [asking(cpu)]}}}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": name, "namespace": team, **metadata},
        "spec": {"queueName": team, "podSets": [pod_set]},
    }


async def submit(client: KubeClient, name: str, *, team: str, workload: str, **pod: Any) -> Object:
    labels = {PREBUILT_WORKLOAD_LABEL: workload}
    manifest = job_manifest(name, namespace=team, queue=team, labels=labels, suspend=True)
    manifest["spec"]["template"]["spec"] |= pod
    stored: Object = orjson.loads(await client.create(JOBS, manifest, namespace=team))
    return stored


async def warnings(client: KubeClient, job: str, reason: str, *, team: str) -> list[str]:
    page = await client.list_all(EVENTS, namespace=team)
    found = [orjson.loads(raw) for raw in page.items]
    return [event["note"] for event in found if (event["reason"], event["regarding"]["name"]) == (reason, job)]


async def outcome(client: KubeClient, job: str, *, team: str) -> str:
    """That the Job runs, or why its Workload was refused."""

    async def probe() -> str:
        found = await get(client, JOBS, job, namespace=team)
        assert found is not None
        told = await warnings(client, job, "WorkloadRefused", team=team)
        return "; ".join(told) if found["spec"]["suspend"] else "it runs"

    return await eventually(probe, what=f"{job} runs or is refused")


async def test_a_workload_that_names_only_its_containers_is_its_jobs(hub: Cluster) -> None:
    team = "sparse"
    async with connections_closed(), hub.client() as client, running_manager(hub, webhooks=False):
        await make_queue(client, team, namespace=team, cpu="10")
        await client.create(WORKLOADS, sparse("w", team=team), namespace=team)
        stored = await submit(client, "mine", team=team, workload="w")
        template = stored["spec"]["template"]
        assert template["spec"]["dnsPolicy"], "an API server fills in what the Workload does not say"
        assert await outcome(client, "mine", team=team) == "it runs"
        # It is evicted, runs again, and keeps what only the Job says.
        await client.patch(WORKLOADS, "w", {"spec": {"active": False}}, namespace=team)
        await eventually(
            lambda: get(client, WORKLOADS, "w", namespace=team),
            what="it holds no quota",
            until=lambda seen: is_true(seen, "Evicted") and not is_true(seen, "QuotaReserved"),
        )
        stopped = await get(client, JOBS, "mine", namespace=team)
        assert stopped is not None
        assert stopped["spec"]["template"]["spec"] == template["spec"]
        await client.patch(WORKLOADS, "w", {"spec": {"active": True}}, namespace=team)
        assert await outcome(client, "mine", team=team) == "it runs"


HOSTILE: dict[str, tuple[Object, str]] = {
    "understates requests": (
        {"containers": [asking("9")]},
        "containers[0].resources.requests[cpu]: Job has 9, Workload has 1",
    ),
    "hides an init container": (
        {"initContainers": [asking("9", name="i")]},
        'initContainers: Job has ["i"], Workload has nothing',
    ),
    "hides a container": (
        {"containers": [asking("1"), asking("9", name="d")]},
        'containers: Job has ["c", "d"], Workload has ["c"]',
    ),
    "selects other nodes": (
        {"nodeSelector": {"pool": "dear"}},
        "nodeSelector[pool]: Job has dear, Workload has nothing",
    ),
    "tolerates other taints": (
        {"tolerations": [{"key": "dear", "operator": "Exists"}]},
        'tolerations: Job has [{"key": "dear", "operator": "Exists"}], Workload has nothing',
    ),
    "has overhead": (
        {"overhead": {"cpu": "9"}, "runtimeClassName": "heavy"},
        "overhead[cpu]: Job has 9, Workload has nothing",
    ),
    "claims devices": (
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]},
        'resourceClaims: Job has [{"name": "gpu", "resourceClaimName": "g"}], Workload has nothing',
    ),
}


async def test_a_workload_that_holds_less_than_its_job_takes_is_refused_and_the_field_is_named(hub: Cluster) -> None:
    team = "thieves"
    async with connections_closed(), hub.client() as client, running_manager(hub, webhooks=False):
        await make_queue(client, team, namespace=team, cpu="20")
        for number, (case, (pod, want)) in enumerate(HOSTILE.items()):
            job, workload = f"thief-{number}", f"thin-{number}"
            await client.create(WORKLOADS, sparse(workload, team=team), namespace=team)
            await submit(client, job, team=team, workload=workload, **pod)
            assert f"podSets[0].template.spec.{want}" in await outcome(client, job, team=team), case
            kept = await get(client, WORKLOADS, workload, namespace=team)
            assert kept is not None
            assert "ownerReferences" not in kept["metadata"], case


async def test_a_workload_that_no_longer_matches_its_job_ends_and_an_event_names_the_field(hub: Cluster) -> None:
    team = "drift"
    async with connections_closed(), hub.client() as client:
        await make_queue(client, team, namespace=team, cpu="4")
        stored = await submit(client, "mine", team=team, workload="w")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mine", "uid": stored["metadata"]["uid"]}
        made = sparse("w", team=team, cpu="2", ownerReferences=[{**owner, "controller": True}])
        await client.create(WORKLOADS, made, namespace=team)
        async with running_manager(hub, webhooks=False):
            found = await eventually(
                lambda: get(client, WORKLOADS, "w", namespace=team),
                what="it ends",
                until=lambda seen: is_true(seen, "Finished"),
            )
            field = "podSets[0].template.spec.containers[0].resources.requests[cpu]: Job has 1, Workload has 2"
            message = f"The prebuilt workload is out of sync with its user job: {field}"
            finished = condition(found, "Finished")
            assert (finished["reason"], finished["message"]) == ("OutOfSync", message)
            told = await eventually(
                lambda: warnings(client, "mine", "OutOfSync", team=team), what="an event is recorded", until=bool
            )
            assert told == [message]
            job = await get(client, JOBS, "mine", namespace=team)
            assert job is not None
            assert job["spec"]["suspend"]
