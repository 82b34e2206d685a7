# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods claim devices: the hub counts them, and they go to a worker that has their claim template."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from multikueue.api.resource import CLUSTER_QUEUES, DEVICE_CLASSES, JOBS, RESOURCE_CLAIM_TEMPLATES
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import Object, ensure, job_manifest, wait_condition
from tests.support.scenes import Scene, Stage, scene, settings

pytestmark = pytest.mark.anyio

CLASS: Final = "gpu.example.com"
GPUS: Final = "example.com/gpus"
TEMPLATE: Final = "two-gpus"
MAPPINGS: Final = f"resources: {{deviceClassMappings: [{{name: {GPUS}, deviceClassNames: [{CLASS}]}}]}}\n"


def of_devices(resource: object, name: str, spec: Object) -> Object:
    """An object of the API of devices."""
    kind = "DeviceClass" if resource is DEVICE_CLASSES else "ResourceClaimTemplate"
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def make_template(client: KubeClient, namespace: str) -> None:
    """Two devices of the class."""
    request = {"name": "gpus", "exactly": {"deviceClassName": CLASS, "count": 2}}
    body = of_devices(RESOURCE_CLAIM_TEMPLATES, TEMPLATE, {"spec": {"devices": {"requests": [request]}}})
    await client.create(RESOURCE_CLAIM_TEMPLATES, body, namespace=namespace)


@asynccontextmanager
async def counted(stage: Stage, title: str) -> AsyncIterator[Scene]:
    """A hub that counts devices in a queue with five of them, and has the template."""
    async with scene(stage, title, configuration=settings() + MAPPINGS) as made:
        await ensure(made.client, DEVICE_CLASSES, of_devices(DEVICE_CLASSES, CLASS, {}))
        amounts = [{"name": "cpu", "nominalQuota": "9"}, {"name": GPUS, "nominalQuota": "5"}]
        groups = [{"coveredResources": ["cpu", GPUS], "flavors": [{"name": "default", "resources": amounts}]}]
        await made.client.patch(CLUSTER_QUEUES, made.name, {"spec": {"resourceGroups": groups}})
        await make_template(made.client, made.namespace)
        yield made


async def submit(made: Scene, job: str = "j", *, pods: int = 1) -> str:
    """A Job whose pods claim two devices each; the name of its Workload once it holds quota."""
    await create(made, job, pods=pods)
    workload = await wait_condition(made.client, job, "QuotaReserved", namespace=made.namespace)
    return str(workload["metadata"]["name"])


async def create(made: Scene, job: str, *, pods: int) -> None:
    """A Job whose pods claim two devices each."""
    body = job_manifest(job, namespace=made.namespace, queue=made.name, suspend=True)
    body["spec"] |= {"parallelism": pods, "completions": pods}
    pod = body["spec"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": TEMPLATE}]
    pod["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    await made.client.create(JOBS, body, namespace=made.namespace)


@pytest.mark.also_on_binaries
async def test_a1_y1_y4_a_job_that_claims_devices_runs_and_those_of_all_its_pods_are_counted(stage: Stage) -> None:
    async with counted(stage, "devices") as made:
        for site in (made.w1, made.w2):
            await make_template(site.client, made.namespace)
        workload = await submit(made, pods=2)
        (assigned,) = (await made.status())["admission"]["podSetAssignments"]
        assert assigned["resourceUsage"] == {"cpu": "2", GPUS: "4"}
        await made.w1.admits(workload)
        remote = await made.w1.starts("j")
        assert remote["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == TEMPLATE
        await create(made, "next", pods=1)
        waiting = await wait_condition(made.client, "next", "QuotaReserved", namespace=made.namespace, status="False")
        (said,) = [each for each in waiting["status"]["conditions"] if each["type"] == "QuotaReserved"]
        assert f"insufficient unused quota for {GPUS} in flavor default, 1 more needed" in said["message"]
        await made.w1.ends("j")
        await made.finished()
        await wait_condition(made.client, "next", "QuotaReserved", namespace=made.namespace)


async def test_a2_y2_a_job_whose_claim_template_no_worker_has_waits_until_one_has_it(stage: Stage) -> None:
    async with counted(stage, "no-template") as made:
        workload = await submit(made)
        lacks = f'not found in namespace "{made.namespace}": ResourceClaimTemplate "{TEMPLATE}"'
        for site in (made.w1, made.w2):
            await made.check("Pending", message=f"{site.name}: {lacks}")
            assert await site.clone(workload) is None
        await make_template(made.w2.client, made.namespace)
        await made.w2.admits(workload)
        await made.w2.starts("j")
        await made.job_says("ready", 1)


async def test_y3_a_job_goes_to_the_worker_that_has_its_claim_template(stage: Stage) -> None:
    async with counted(stage, "one-template") as made:
        await make_template(made.w2.client, made.namespace)
        workload = await submit(made)
        await made.w2.admits(workload)
        await made.w2.starts("j")
        await made.job_says("ready", 1)
        assert (await made.status())["clusterName"] == made.w2.name
        assert await made.w1.clone(workload) is None
