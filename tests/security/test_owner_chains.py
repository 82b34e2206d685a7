# SPDX-License-Identifier: Apache-2.0
"""Jobs below owners of owners: together they request no more than the topmost queued owner was admitted with.

An administrator writes what the webhook would refuse to a tenant: it stands for a time without webhook.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import JOBS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.security.test_app_owners import owned_by
from tests.support.app_sets import QUEUE, Apps, Object, hub
from tests.support.crds import kinds
from tests.support.managers import eventually, is_true, job_manifest, make_queue, running_manager
from tests.support.operators.samples import job_set, pod_template

__all__ = ["hub", "kube_binaries"]

pytestmark = pytest.mark.anyio

SETTINGS = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}"


@pytest.fixture(scope="module")
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with hub.client() as client:
        await kinds.install(client, kinds.JOB_SETS)
        async with running_manager(hub, settings=SETTINGS):
            yield client


async def an_admitted_set(admin: KubeClient, name: str) -> tuple[Apps, Object]:
    """A namespace with a JobSet that was admitted with 500m, and for which no operator makes Jobs."""
    await make_queue(admin, name, namespace=name, cpu="20")
    apps = Apps(admin, name)
    top = await a_set(apps, "top", labels={QUEUE: name})
    await apps.workloads(lambda found: [is_true(each, "Admitted") for each in found] == [True], what="it is admitted")
    return apps, top


async def a_set(apps: Apps, name: str, *, owner: Object | None = None, labels: dict[str, str] | None = None) -> Object:
    body = job_set(name, pod_template({}))
    metadata = {"namespace": apps.namespace, "labels": labels or {}}
    body["metadata"] |= metadata | {"ownerReferences": owned_by(owner, kinds.JOB_SETS) if owner else []}
    stored: Object = orjson.loads(await apps.client.create(kinds.JOB_SETS, body, namespace=apps.namespace))
    return stored


async def a_job(apps: Apps, name: str, *, owner: Object, cpu: str) -> None:
    body = job_manifest(name, namespace=apps.namespace, queue=apps.namespace, cpu=cpu, suspend=False)
    body["metadata"]["ownerReferences"] = owned_by(owner, kinds.JOB_SETS)
    body["spec"]["template"]["metadata"] = {"annotations": {"multikueue.io/run-for": "forever"}}
    await apps.client.create(JOBS, body, namespace=apps.namespace)


async def running_jobs(apps: Apps, *names: str) -> None:
    """Wait until exactly these Jobs are not suspended."""

    async def probe() -> list[str]:
        return [each["metadata"]["name"] for each in await apps.listed(JOBS) if not each["spec"].get("suspend")]

    await eventually(probe, what=f"{names} run and no others", until=lambda seen: seen == sorted(names))


async def test_jobs_below_several_owners_in_between_share_the_quota_of_the_topmost(admin: KubeClient) -> None:
    apps, top = await an_admitted_set(admin, "wide")
    for number in range(4):
        middle = await a_set(apps, f"middle-{number}", owner=top)
        await a_job(apps, f"job-{number}", owner=middle, cpu="200m")
    await running_jobs(apps, "job-0", "job-1")
    assert "JobSet top, its owner, has less quota than its jobs request: cpu 600m" in await apps.noted(
        "Stopped", about="Job"
    )
    assert len(await apps.listed(WORKLOADS)) == 1


async def test_jobs_of_all_depths_count_together(admin: KubeClient) -> None:
    apps, top = await an_admitted_set(admin, "deep")
    owner = top
    for number in range(4):
        await a_job(apps, f"job-{number}", owner=owner, cpu="300m")
        owner = await a_set(apps, f"middle-{number}", owner=owner)
    await running_jobs(apps, "job-0")


async def test_jobs_below_several_owners_that_fit_are_left_alone(admin: KubeClient) -> None:
    apps, top = await an_admitted_set(admin, "fits")
    for number in range(5):
        middle = await a_set(apps, f"middle-{number}", owner=top)
        await a_job(apps, f"job-{number}", owner=middle, cpu="100m")
    await apps.running(5)
    await running_jobs(apps, *(f"job-{number}" for number in range(5)))


async def test_an_older_job_that_is_resumed_takes_the_place_of_a_younger_one(admin: KubeClient) -> None:
    apps, top = await an_admitted_set(admin, "resumed")
    await a_job(apps, "first", owner=top, cpu="500m")
    await apps.change(JOBS, "first", spec={"suspend": True})
    await running_jobs(apps)
    await a_job(apps, "second", owner=await a_set(apps, "middle", owner=top), cpu="500m")
    await running_jobs(apps, "second")
    await apps.change(JOBS, "first", spec={"suspend": False})
    await running_jobs(apps, "first")


async def test_jobs_below_an_owner_that_loses_its_quota_are_stopped(admin: KubeClient) -> None:
    apps, top = await an_admitted_set(admin, "lost")
    await a_job(apps, "job", owner=await a_set(apps, "middle", owner=top), cpu="100m")
    await apps.running(1)
    (workload,) = await apps.listed(WORKLOADS)
    await apps.change(WORKLOADS, workload["metadata"]["name"], spec={"active": False})
    await running_jobs(apps)


async def test_jobs_below_an_owner_that_is_given_to_another_one_are_counted_there(admin: KubeClient) -> None:
    apps, top = await an_admitted_set(admin, "moved")
    await a_job(apps, "first", owner=top, cpu="500m")
    other = await a_set(apps, "other", labels={QUEUE: "moved"})
    await apps.workloads(lambda found: [is_true(each, "Admitted") for each in found] == [True, True], what="both are")
    middle = await a_set(apps, "middle", owner=other)
    await a_job(apps, "second", owner=middle, cpu="500m")
    await running_jobs(apps, "first", "second")
    await apps.change(kinds.JOB_SETS, "middle", metadata={"ownerReferences": owned_by(top, kinds.JOB_SETS)})
    await running_jobs(apps, "first")
