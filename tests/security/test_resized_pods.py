# SPDX-License-Identifier: Apache-2.0
"""A pod that uses quota does not outgrow it through `pods/resize`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.resource import JOBS, PODS
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.security.test_app_owners import a_pod
from tests.support.app_sets import QUEUE, Apps, K, Object, hub, runs
from tests.support.managers import job_manifest, make_queue, running_manager
from tests.support.tenant_hubs import EDITS_JOBS, tenant

__all__ = ["hub", "kube_binaries"]

pytestmark = pytest.mark.anyio

SETTINGS = "integrations: {frameworks: [batch/job, pod]}"
VERBS = ["get", "list", "create", "patch", "update", "delete"]
RESIZES = ({"apiGroups": [""], "resources": ["pods", "pods/resize"], "verbs": VERBS},)
FOREVER = {"multikueue.io/run-for": "forever"}


@pytest.fixture(scope="module")
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with hub.client() as client:
        async with running_manager(hub, settings=SETTINGS, dispatch=DispatchController):
            yield client


@pytest.fixture(scope="module")
async def kim(hub: Cluster, admin: KubeClient) -> AsyncIterator[KubeClient]:
    """A tenant who may resize pods."""
    async with tenant(hub, admin, "kim", rules=(*EDITS_JOBS, *RESIZES)) as client:
        yield client


async def resize(client: KubeClient, pod: Object, cpu: str) -> Object:
    """The pod with that request of CPU."""
    containers = [
        {**each, "resources": {**each["resources"], "requests": {"cpu": cpu}}} for each in pod["spec"]["containers"]
    ]
    metadata = pod["metadata"]
    change = {"spec": {"containers": containers}}
    found = await client.patch(PODS, metadata["name"], change, namespace=metadata["namespace"], subresource="resize")
    stored: Object = orjson.loads(found)
    return stored


def cpu_of(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


async def a_pod_of_a_job(admin: KubeClient, kim: KubeClient, name: str, *, queue: str | None) -> Object:
    """The running pod of a Job of that tenant, which requests a whole CPU."""
    await make_queue(admin, name, namespace=name, cpu="2")
    body = job_manifest("owner", namespace=name, queue=queue, cpu="1", suspend=False if queue is None else None)
    body["spec"]["template"]["metadata"] = {"annotations": FOREVER}
    await kim.create(JOBS, body, namespace=name)
    return (await Apps(admin, name).running(1))[0]


async def test_a_pod_of_a_queued_job_shrinks_and_grows_to_its_quota_and_no_further(
    admin: KubeClient, kim: KubeClient
) -> None:
    pod = await a_pod_of_a_job(admin, kim, "of-job", queue="of-job")
    refusal = r'cpu 8 instead of 1: the pod uses the quota of Job "owner"'
    with pytest.raises(Forbidden, match=refusal):
        await resize(kim, pod, "8")
    small = await resize(kim, pod, "500m")
    assert cpu_of(small) == "500m"
    with pytest.raises(Forbidden, match=r"cpu 1500m instead of 500m"):
        await resize(kim, small, "1500m")
    assert cpu_of(await resize(kim, small, "1")) == "1"


async def test_an_administrator_does_not_grow_it_either(admin: KubeClient, kim: KubeClient) -> None:
    pod = await a_pod_of_a_job(admin, kim, "by-admin", queue="by-admin")
    with pytest.raises(Forbidden, match=r'the quota of Job "owner", which is not increased by a resize'):
        await resize(admin, pod, "8")


async def test_a_queued_pod_grows_no_further_than_its_workload(admin: KubeClient, kim: KubeClient) -> None:
    await make_queue(admin, "of-pod", namespace="of-pod", cpu="2")
    body = a_pod("alone", cpu="1", labels={QUEUE: "of-pod"}, annotations=FOREVER)
    await kim.create(PODS, body, namespace="of-pod")
    (pod,) = await Apps(admin, "of-pod").running(1)
    with pytest.raises(Forbidden, match=r"cpu 8 instead of 1: the pod uses the quota of its Workload"):
        await resize(kim, pod, "8")
    small = await resize(kim, pod, "500m")
    assert cpu_of(await resize(kim, small, "1")) == "1"
    assert runs((await Apps(admin, "of-pod").listed(PODS))[0])


async def test_pods_of_a_group_only_shrink(admin: KubeClient, kim: KubeClient) -> None:
    await make_queue(admin, "of-group", namespace="of-group", cpu="4")
    labels, annotations = {QUEUE: "of-group", K + "pod-group-name": "g"}, {K + "pod-group-total-count": "2", **FOREVER}
    for name, cpu in (("small", "500m"), ("large", "1")):
        body = a_pod(name, cpu=cpu, labels=labels, annotations=annotations)
        await kim.create(PODS, body, namespace="of-group")
    _, small = await Apps(admin, "of-group").running(2)
    with pytest.raises(Forbidden, match=r"cpu 1 instead of 500m"):
        await resize(kim, small, "1")
    assert cpu_of(await resize(kim, small, "100m")) == "100m"


async def test_a_pod_that_is_not_queued_is_resized_as_ever(admin: KubeClient, kim: KubeClient) -> None:
    pod = await a_pod_of_a_job(admin, kim, "no-queue", queue=None)
    assert cpu_of(await resize(kim, pod, "2")) == "2"
