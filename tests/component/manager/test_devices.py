# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods claim devices, which count as a resource of the quota; with only the roles of deploy/rbac."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CLUSTER_ROLE_BINDINGS,
    DEVICE_CLASSES,
    JOBS,
    RESOURCE_CLAIM_TEMPLATES,
)
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import kube_binaries
from tests.support.app_sets import MANAGER, grant_roles
from tests.support.both_providers import running_cluster
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    ensure,
    eventually,
    get,
    job_manifest,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.anyio

API: Final = "resource.k8s.io/v1"
GPU: Final = "gpu.example.com"
BACKED: Final = "example.com/gpu"
SETTINGS: Final = f"resources: {{deviceClassMappings: [{{name: gpus, deviceClassNames: [{GPU}]}}]}}"
ROLE: Final = "manager-devices.yaml"
SERVERS = [
    pytest.param("embedded", id="embedded"),
    pytest.param("binaries", id="binaries", marks=pytest.mark.binaries),
]


@pytest.fixture(scope="module", params=SERVERS)
async def hub(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """An API server with our kinds and its controllers; pods are not scheduled."""
    async with running_cluster(request, tmp_path_factory, "devices", controllers=True) as cluster:
        yield cluster


@pytest.fixture
async def admin(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator; no manager runs."""
    async with connections_closed(), hub.client() as client:
        await grant_roles(client, "manager.yaml")
        yield client


@pytest.fixture
async def client(hub: Cluster, admin: KubeClient) -> AsyncIterator[KubeClient]:
    """The administrator, beside a manager that counts devices and has the roles for that."""
    await grant_roles(admin, ROLE)
    await ensure(admin, DEVICE_CLASSES, of_devices("DeviceClass", GPU, {"extendedResourceName": BACKED}))
    async with running_manager(hub, settings=SETTINGS, user=MANAGER):
        yield admin


def of_devices(kind: str, name: str, spec: Object) -> Object:
    """An object of the API of devices."""
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


async def template(client: KubeClient, name: str, *, team: str, count: int = 1, **exactly: Any) -> None:
    """A claim of that many devices."""
    number = {} if exactly.get("allocationMode") == "All" else {"count": count}
    wanted = {"deviceClassName": GPU, "allocationMode": "ExactCount", **number, **exactly}
    request = {"name": "r", "exactly": wanted}
    body = of_devices("ResourceClaimTemplate", name, {"spec": {"devices": {"requests": [request]}}})
    await client.create(RESOURCE_CLAIM_TEMPLATES, body, namespace=team)


async def replace_template(client: KubeClient, name: str, *, team: str, count: int) -> None:
    """What a tenant can do: another template of that name."""
    await client.delete(RESOURCE_CLAIM_TEMPLATES, name, namespace=team)
    await template(client, name, team=team, count=count)


async def devices_queue(client: KubeClient, team: str, *, gpus: str = "4") -> None:
    """A queue of ten cpus and so many devices."""
    await make_queue(client, team, namespace=team)
    amounts = [{"name": "cpu", "nominalQuota": "10"}, {"name": "gpus", "nominalQuota": gpus}]
    flavors = [{"name": "default", "resources": amounts}]
    groups = [{"coveredResources": ["cpu", "gpus"], "flavors": flavors}]
    await client.patch(CLUSTER_QUEUES, team, {"spec": {"resourceGroups": groups}})


async def submit(
    client: KubeClient, name: str, *templates: str, team: str, pods: int = 1, requests: Object | None = None
) -> None:
    """A Job whose pods claim devices by these templates."""
    job = job_manifest(name, namespace=team, queue=team, parallelism=pods)
    spec = job["spec"]["template"]["spec"]
    spec["resourceClaims"] = [
        {"name": f"x{number}", "resourceClaimTemplateName": each} for number, each in enumerate(templates)
    ]
    resources = spec["containers"][0]["resources"]
    resources["claims"] = [{"name": each["name"]} for each in spec["resourceClaims"]]
    resources["requests"] |= requests or {}
    if requests:
        resources["limits"] = requests
    await client.create(JOBS, job, namespace=team)


def usage(workload: Object) -> Object:
    """What is held for its only pod set."""
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    return dict(assigned["resourceUsage"])


async def admitted(client: KubeClient, name: str, *, team: str) -> Object:
    """What is held for a Job, once it is admitted."""
    return usage(await wait_condition(client, name, "Admitted", namespace=team))


def evictions(workload: Object | None) -> list[tuple[str, int]]:
    """The reasons of its evictions, and how many there were."""
    assert workload is not None
    return [(each["reason"], each["count"]) for each in workload["status"]["schedulingStats"]["evictions"]]


async def waits(client: KubeClient, name: str, message: str, *, team: str) -> str:
    """The reason of a Job that is not admitted, once its Workload says that."""
    found = await eventually(
        lambda: workload_of(client, name, namespace=team),
        what=f"{team}/{name} waits: {message}",
        until=lambda seen: message in condition(seen, "QuotaReserved").get("message", ""),
    )
    shown = condition(found, "QuotaReserved")
    assert shown["status"] == "False"
    return str(shown["reason"])


async def test_the_devices_of_all_pods_count_and_a_job_that_claims_more_waits(client: KubeClient) -> None:
    await devices_queue(client, "counted", gpus="4")
    await template(client, "one", team="counted")
    await template(client, "two", team="counted", count=2)
    await submit(client, "first", "one", "two", team="counted")
    assert await admitted(client, "first", team="counted") == {"cpu": "1", "gpus": "3"}
    await submit(client, "second", "one", team="counted", pods=2)
    reason = await waits(client, "second", "insufficient unused quota for gpus in flavor default", team="counted")
    assert reason == "WaitingForQuota"
    await client.delete(JOBS, "first", namespace="counted", propagation="Background")
    assert await admitted(client, "second", team="counted") == {"cpu": "2", "gpus": "2"}


async def test_a_job_whose_template_is_missing_starts_once_it_is_there(client: KubeClient) -> None:
    await devices_queue(client, "missing")
    await submit(client, "j", "later", team="missing")
    reason = await waits(client, "j", 'ResourceClaimTemplate "later" not found', team="missing")
    assert reason == "Misconfigured"
    await make_job(client, "plain", namespace="missing", queue="missing")
    await wait_condition(client, "plain", "Admitted", namespace="missing")
    await template(client, "later", team="missing", count=3)
    assert await admitted(client, "j", team="missing") == {"cpu": "1", "gpus": "3"}


async def test_all_devices_of_a_class_are_no_number_until_the_template_is_made_anew(client: KubeClient) -> None:
    await devices_queue(client, "all")
    await template(client, "t", team="all", allocationMode="All")
    await submit(client, "j", "t", team="all")
    assert await waits(client, "j", 'allocationMode "All" cannot be counted', team="all") == "Misconfigured"
    await replace_template(client, "t", team="all", count=2)
    assert await admitted(client, "j", team="all") == {"cpu": "1", "gpus": "2"}


async def test_a_template_that_is_replaced_by_a_larger_one_evicts_and_the_job_waits_for_more(
    client: KubeClient,
) -> None:
    await devices_queue(client, "replaced", gpus="4")
    await template(client, "t", team="replaced", count=1)
    await submit(client, "j", "t", team="replaced", pods=2)
    await admitted(client, "j", team="replaced")
    await replace_template(client, "t", team="replaced", count=1)
    await replace_template(client, "t", team="replaced", count=2)

    def holds_all(seen: Object | None) -> bool:
        held = ((seen or {}).get("status") or {}).get("admission")
        return seen is not None and bool(held) and usage(seen) == {"cpu": "2", "gpus": "4"}

    found = await eventually(
        lambda: workload_of(client, "j", namespace="replaced"), what="it has quota for all devices", until=holds_all
    )
    assert evictions(found) == [("DeviceClaimsChanged", 1)]
    await admitted(client, "j", team="replaced")
    await replace_template(client, "t", team="replaced", count=3)
    await waits(client, "j", "gpus", team="replaced")
    found = await wait_condition(client, "j", "Evicted", namespace="replaced", reason="DeviceClaimsChanged")
    assert condition(found, "Evicted")["message"] == (
        'ResourceClaimTemplate "t" was replaced since the workload was admitted: it claims 3 of DeviceClass'
        f' "{GPU}", 2 before'
    )
    assert evictions(found) == [("DeviceClaimsChanged", 2)]


async def test_a_template_that_is_deleted_or_made_anew_as_it_was_evicts_nothing(client: KubeClient) -> None:
    await devices_queue(client, "anew")
    await template(client, "t", team="anew", count=2)
    await template(client, "large", team="anew", count=2)
    await submit(client, "j", "t", team="anew")
    await submit(client, "other", "large", team="anew")
    await admitted(client, "j", team="anew")
    await admitted(client, "other", team="anew")
    await replace_template(client, "t", team="anew", count=2)
    await client.delete(RESOURCE_CLAIM_TEMPLATES, "t", namespace="anew")
    await replace_template(client, "large", team="anew", count=4)
    await wait_condition(client, "other", "Evicted", namespace="anew", reason="DeviceClaimsChanged")
    found = await workload_of(client, "j", namespace="anew")
    assert condition(found, "Admitted")["status"] == "True"
    assert not condition(found, "Evicted")


async def test_a_resource_that_a_class_backs_counts_as_the_devices_of_the_class(client: KubeClient) -> None:
    await devices_queue(client, "backed", gpus="3")
    await template(client, "t", team="backed", count=1)
    await submit(client, "j", "t", team="backed", requests={BACKED: "2"})
    assert await admitted(client, "j", team="backed") == {"cpu": "1", "gpus": "3"}


async def test_a_template_that_was_replaced_while_no_manager_ran_evicts_too(hub: Cluster, admin: KubeClient) -> None:
    await grant_roles(admin, ROLE)
    await devices_queue(admin, "unseen")
    await template(admin, "t", team="unseen", count=1)
    async with running_manager(hub, settings=SETTINGS, user=MANAGER):
        await submit(admin, "j", "t", team="unseen")
        await admitted(admin, "j", team="unseen")
    await anyio.sleep(1.1)  # times are whole seconds
    await replace_template(admin, "t", team="unseen", count=9)
    async with running_manager(hub, settings=SETTINGS, user=MANAGER):
        await wait_condition(admin, "j", "Evicted", namespace="unseen", reason="DeviceClaimsChanged")
        await waits(admin, "j", "gpus", team="unseen")


async def test_a_manager_that_starts_without_its_role_evicts_nothing_when_it_gets_it(
    hub: Cluster, admin: KubeClient
) -> None:
    await grant_roles(admin, ROLE)
    await devices_queue(admin, "late")
    await template(admin, "t", team="late", count=2)
    async with running_manager(hub, settings=SETTINGS, user=MANAGER):
        await submit(admin, "j", "t", team="late")
        await admitted(admin, "j", team="late")
    await admin.delete(CLUSTER_ROLE_BINDINGS, "kueue-manager-devices-rolebinding")
    async with running_manager(hub, settings=SETTINGS, user=MANAGER):
        await submit(admin, "next", "t", team="late")
        await waits(admin, "next", 'ResourceClaimTemplate "t" not found', team="late")
        await grant_roles(admin, ROLE)
        await admitted(admin, "next", team="late")
        found = await workload_of(admin, "j", namespace="late")
        assert not condition(found, "Evicted")
        await replace_template(admin, "t", team="late", count=3)
        await wait_condition(admin, "j", "Evicted", namespace="late", reason="DeviceClaimsChanged")


async def test_a_manager_that_may_not_read_devices_leads_and_counts_them_once_it_may(
    hub: Cluster, admin: KubeClient
) -> None:
    if await get(admin, CLUSTER_ROLE_BINDINGS, "kueue-manager-devices-rolebinding") is not None:
        await admin.delete(CLUSTER_ROLE_BINDINGS, "kueue-manager-devices-rolebinding")
    await devices_queue(admin, "blind")
    await template(admin, "t", team="blind", count=2)
    async with running_manager(hub, settings=SETTINGS, user=MANAGER, leader_election=True):
        await make_job(admin, "plain", namespace="blind", queue="blind")
        await submit(admin, "j", "t", team="blind")
        await wait_condition(admin, "plain", "Admitted", namespace="blind")
        await waits(admin, "j", 'ResourceClaimTemplate "t" not found', team="blind")
        await grant_roles(admin, ROLE)
        assert await admitted(admin, "j", team="blind") == {"cpu": "1", "gpus": "2"}


async def test_a_manager_without_mappings_needs_no_role_for_devices(hub: Cluster, admin: KubeClient) -> None:
    if await get(admin, CLUSTER_ROLE_BINDINGS, "kueue-manager-devices-rolebinding") is not None:
        await admin.delete(CLUSTER_ROLE_BINDINGS, "kueue-manager-devices-rolebinding")
    await devices_queue(admin, "unmapped")
    await template(admin, "t", team="unmapped")
    async with running_manager(hub, user=MANAGER):
        await submit(admin, "j", "t", team="unmapped")
        await waits(
            admin, "j", "resources.deviceClassMappings of the manager's Configuration is empty", team="unmapped"
        )
        await make_job(admin, "plain", namespace="unmapped", queue="unmapped")
        await wait_condition(admin, "plain", "Admitted", namespace="unmapped")
