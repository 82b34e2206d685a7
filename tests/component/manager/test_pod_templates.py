# SPDX-License-Identifier: Apache-2.0
"""Every Job that an API server takes gets a Workload, whatever its pod template contains."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings

from devcluster.cluster import Cluster
from multikueue.api.resource import CLUSTER_QUEUES, EVENTS, JOBS, WORKLOADS
from multikueue.jobs.framework.workloads import name_for
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.errors import BadRequest, Invalid
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import (
    Object,
    connections_closed,
    connections_settled,
    eventually,
    get,
    is_true,
    job_manifest,
    make_queue,
    running_manager,
    wait_condition,
)
from tests.support.pod_templates import pod_templates
from tests.support.tenant_hubs import hub as hub

pytestmark = pytest.mark.anyio

HELD = "held"
CHECKS = list(HealthCheck)
QUICK = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=CHECKS)
LONG = settings(max_examples=200, deadline=None, suppress_health_check=CHECKS)
_numbers = itertools.count()


@pytest.fixture(scope="module")
async def managed(hub: Cluster) -> AsyncIterator[KubeClient]:
    """A hub with its manager, without webhooks, and a queue of which nothing is admitted."""
    async with connections_closed(), hub.client() as client, running_manager(hub, webhooks=False):
        await make_queue(client, HELD, namespace=HELD)
        await client.patch(CLUSTER_QUEUES, HELD, {"spec": {"stopPolicy": "Hold"}})
        await connections_settled()
        yield client


async def events(client: KubeClient, job: str, *, namespace: str) -> list[str]:
    page = await client.list_all(EVENTS, namespace=namespace)
    found = [orjson.loads(raw) for raw in page.items]
    return [
        each["note"] for each in found if (each["reason"], each["regarding"]["name"]) == ("ErrWorkloadCompose", job)
    ]


async def gets_its_workload(client: KubeClient, template: Object) -> None:
    name = f"j{next(_numbers)}"
    manifest = job_manifest(name, namespace=HELD, queue=HELD, suspend=True)
    manifest["spec"]["template"] = template
    try:
        job: Object = orjson.loads(await client.create(JOBS, manifest, namespace=HELD))
    except (Invalid, BadRequest):
        assume(False)

    async def found_or_events() -> Object | list[str]:
        found = await get(client, WORKLOADS, name_for(job, BATCH_JOB), namespace=HELD)
        return found or await events(client, name, namespace=HELD)

    found = await eventually(found_or_events, what=f"a Workload of {name}, or why there is none")
    assert isinstance(found, dict), f"it has no Workload: {found}"
    assert BATCH_JOB.matches(job, found), "the Workload would be recreated for ever"
    assert BATCH_JOB.differences(job, found) == ()
    after = await client.get_object(JOBS, name, namespace=HELD)
    assert after["spec"]["template"] == job["spec"]["template"]
    await client.delete(JOBS, name, namespace=HELD)


@given(pod_templates())
@QUICK
async def test_a_job_that_an_api_server_takes_gets_a_workload(managed: KubeClient, template: Object) -> None:
    await gets_its_workload(managed, template)


@pytest.mark.conformance
@pytest.mark.timeout(900)
@given(pod_templates())
@LONG
async def test_many_more_jobs_that_an_api_server_takes_get_workloads(managed: KubeClient, template: Object) -> None:
    await gets_its_workload(managed, template)


TWICE: Object = {
    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}, {"name": "A", "value": "2"}],
    "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80}],
}


async def test_a_job_with_a_variable_twice_runs_is_evicted_and_runs_again_as_written(
    managed: KubeClient,
) -> None:
    client, team = managed, "twice"
    await make_queue(client, team, namespace=team, cpu="4")
    manifest = job_manifest("j", namespace=team, queue=team, suspend=True)
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0] |= TWICE
    pod["imagePullSecrets"] = [{"name": "a"}, {"name": "a"}]
    stored: Object = orjson.loads(await client.create(JOBS, manifest, namespace=team))

    async def runs() -> bool:
        found = await get(client, JOBS, "j", namespace=team)
        assert found is not None
        assert found["spec"]["template"]["spec"] == stored["spec"]["template"]["spec"]
        return not found["spec"]["suspend"]

    workload = await wait_condition(client, "j", "Admitted", namespace=team)
    kept = workload["spec"]["podSets"][0]["template"]["spec"]
    assert kept["containers"][0]["env"] == [{"name": "B", "value": "1"}, {"name": "A", "value": "2"}]
    assert [port["protocol"] for port in kept["containers"][0]["ports"]] == ["UDP", "TCP"]
    assert kept["imagePullSecrets"] == [{"name": "a"}]
    await eventually(runs, what="it runs")
    await client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, namespace=team)
    await eventually(
        lambda: get(client, WORKLOADS, workload["metadata"]["name"], namespace=team),
        what="it holds no quota",
        until=lambda seen: is_true(seen, "Evicted") and not is_true(seen, "QuotaReserved"),
    )
    assert not await runs()
    await client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": True}}, namespace=team)
    await eventually(runs, what="it runs again")
    assert await events(client, "j", namespace=team) == []


async def test_a_job_whose_workload_is_refused_gets_an_event_with_the_field_and_growing_pauses(
    managed: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    client, team = managed, "refused"
    caplog.set_level(logging.WARNING, logger="manager.controllers.jobs")
    await make_queue(client, team, namespace=team, cpu="4")
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "9"}
    manifest = job_manifest("j", namespace=team, queue=team, suspend=True, annotations=annotations)
    await client.create(JOBS, manifest, namespace=team)

    def pauses() -> list[float]:
        return [float(each) for each in re.findall(rf"key={team}/j retry_after=([\d.]+) ", caplog.text)]

    async def tried() -> bool:
        await anyio.lowlevel.checkpoint()
        return len(pauses()) >= 3

    await eventually(tried, what="it was tried three times")
    first, second, third = pauses()[:3]
    assert 1 <= first < second < third
    (message,) = await events(client, "j", namespace=team)
    assert "spec.podSets[0]" in message
    assert "minCount should be positive and less or equal to count" in message
    # What the user mends is tried at once.
    patch: dict[str, Any] = {"metadata": {"annotations": dict.fromkeys(annotations)}}
    await client.patch(JOBS, "j", patch, namespace=team)
    await wait_condition(client, "j", "Admitted", namespace=team)
