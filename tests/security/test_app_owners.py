# SPDX-License-Identifier: Apache-2.0
"""Tenants who write owners, labels and annotations of pods by hand so that these run without quota."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.embedded.provider import EmbeddedProvider
from multikueue.api.resource import JOBS, PODS, STATEFUL_SETS, WORKLOADS, Resource
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.app_sets import QUEUE, Apps, K, Object, app, app_client, app_hub, is_gated, runs
from tests.support.managers import condition, eventually, is_true, job_manifest, make_queue

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def hub(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("owners")
    async with app_hub(EmbeddedProvider(folder=folder), folder) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with app_client(hub) as client:
        yield client


async def place(client: KubeClient, name: str, *, cpu: str = "1") -> Apps:
    """A namespace with a queue of its name."""
    await make_queue(client, name, namespace=name, cpu=cpu)
    return Apps(client, name)


def owned_by(owner: Object, resource: Resource) -> list[Object]:
    """The owner reference that a tenant writes."""
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]


def a_pod(name: str, *, cpu: str = "100m", owners: list[Object] | None = None, **metadata: Object) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "ownerReferences": owners or [], **metadata},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }


async def half_a_set(apps: Apps) -> Object:
    """A StatefulSet of two pods, which has quota for both and whose controller makes the second one in an hour."""
    body = app(
        STATEFUL_SETS, "web", apps.namespace, replicas=2, podManagementPolicy="OrderedReady", minReadySeconds=3600
    )
    stored = await apps.create(body)
    await apps.running(1)
    return stored


async def test_a_pod_in_the_name_of_a_stateful_set_never_starts_when_it_has_no_place_in_it(client: KubeClient) -> None:
    apps = await place(client, "named")
    owner = await half_a_set(apps)
    stored = await apps.create(a_pod("more", owners=owned_by(owner, STATEFUL_SETS), labels={"app": "web"}))
    assert is_gated(stored), "the webhook does not trust the owner that a pod names"

    def settled(pods: list[Object]) -> bool:
        others = [pod for pod in pods if pod["metadata"]["name"] != "web-0"]
        return len(pods) - len(others) == 1 and all(released(pod) for pod in others)

    def released(pod: Object) -> bool:
        return not pod["metadata"].get("ownerReferences")

    # The manager deletes it, unless the controller of StatefulSets was quicker to take the owner from it.
    pods = await apps.pods(settled, what="it is deleted, or has lost its owner")
    if len(pods) == 1:
        assert "whose pods are web-0, web-1" in await apps.noted("ExcessPodDeleted", about="StatefulSet")
    else:
        assert "It is not queued and uses no quota" in await apps.noted("QueueNameMissing", about="Pod")
        assert [is_gated(pod) for pod in await apps.listed(PODS) if pod["metadata"]["name"] == "more"] == [True]


async def test_a_larger_pod_in_the_place_of_one_of_a_stateful_set_never_starts(client: KubeClient) -> None:
    apps = await place(client, "larger")
    owner = await half_a_set(apps)
    body = a_pod("web-1", cpu="900m", owners=owned_by(owner, STATEFUL_SETS), labels={"app": "web"})
    await apps.create(body)
    text = await apps.noted("PodNotStarted", about="StatefulSet")
    assert "pod web-1 stays gated: it requests more than the pod template" in text
    await apps.change(PODS, "web-1", spec={"schedulingGates": None})
    await apps.pods(lambda pods: [pod["metadata"]["name"] for pod in pods] == ["web-0"], what="it is deleted")


async def test_a_pod_of_a_stateful_set_that_does_not_exist_is_gated(client: KubeClient) -> None:
    apps = await place(client, "ghost")
    ghost = {"metadata": {"name": "ghost", "uid": "4d1c32f6-0c1f-4a55-bb0a-9f1a8cb2e7b0"}}
    body = a_pod("ghost-0", owners=owned_by(ghost, STATEFUL_SETS))
    stored = orjson.loads(await client.create(PODS, body, namespace="ghost", dry_run=True))
    assert is_gated(stored)
    assert await apps.listed(PODS) == []


async def test_a_job_in_the_name_of_an_admitted_stateful_set_is_queued(client: KubeClient) -> None:
    apps = await place(client, "job-of-set", cpu="200m")
    owner = await half_a_set(apps)
    await queued_apart(apps, owner, STATEFUL_SETS)


async def test_a_job_in_the_name_of_an_admitted_job_is_queued(client: KubeClient) -> None:
    apps = await place(client, "job-of-job", cpu="1")
    body = job_manifest("first", namespace="job-of-job", queue="job-of-job", cpu="1")
    owner = orjson.loads(await client.create(JOBS, body, namespace="job-of-job"))
    await apps.workloads(lambda found: bool(found) and is_true(found[0], "Admitted"), what="the first is admitted")
    await queued_apart(apps, owner, JOBS)


async def queued_apart(apps: Apps, owner: Object, resource: Resource) -> None:
    """A Job that names that owner is suspended, and waits for quota of its own."""
    body = job_manifest("second", namespace=apps.namespace, queue=apps.namespace, cpu="2")
    body["metadata"]["ownerReferences"] = owned_by(owner, resource)
    stored = orjson.loads(await apps.client.create(JOBS, body, namespace=apps.namespace))
    assert stored["spec"]["suspend"] is True
    await apps.workloads(
        lambda found: any(
            each["metadata"]["name"].startswith("job-second-") and condition(each, "QuotaReserved")["status"] == "False"
            for each in found
            if condition(each, "QuotaReserved")
        ),
        what="it waits for quota",
    )
    seen = await apps.get(JOBS, "second")
    assert seen is not None
    assert seen["spec"]["suspend"] is True


async def test_a_pod_does_not_leave_the_manager_by_its_label(client: KubeClient) -> None:
    apps = await place(client, "label")
    await apps.create(a_pod("p", labels={QUEUE: "label"}))
    await apps.running(1)
    with pytest.raises(Forbidden, match="managed label cannot be removed"):
        await apps.change(PODS, "p", metadata={"labels": {K + "managed": None}})


async def test_a_group_that_was_admitted_by_its_first_pod_runs_no_larger_ones(client: KubeClient) -> None:
    apps = await place(client, "group")
    labels = {QUEUE: "group", K + "pod-group-name": "g"}
    annotations = {K + "pod-group-total-count": "3", K + "pod-group-fast-admission": "true"}
    await apps.create(a_pod("small", labels=labels, annotations=annotations))
    await apps.running(1)
    await apps.create(a_pod("large", cpu="900m", labels=labels, annotations=annotations))
    await apps.pods(lambda pods: [pod["metadata"]["name"] for pod in pods] == ["small"], what="it is deleted")
    await apps.create(a_pod("other", labels=labels, annotations=annotations))
    await apps.running(2)


async def test_a_stateful_set_of_a_million_pods_is_one_workload_that_waits(client: KubeClient) -> None:
    apps = await place(client, "million")
    await apps.create(app(STATEFUL_SETS, "huge", "million", replicas=1_000_000, podManagementPolicy="OrderedReady"))
    await apps.create(app(STATEFUL_SETS, "small", "million", replicas=1))
    await apps.running(1, gated=1)
    found = await apps.workloads(lambda found: len(found) == 2, what="each has a Workload")
    huge = next(each for each in found if each["metadata"]["name"].startswith("statefulset-huge-"))
    assert huge["spec"]["podSets"][0]["count"] == 1_000_000
    waiting = await eventually(
        lambda: apps.get(WORKLOADS, huge["metadata"]["name"]),
        what="the reason is shown",
        until=lambda seen: "insufficient quota for cpu" in condition(seen, "QuotaReserved").get("message", ""),
    )
    assert not is_true(waiting, "QuotaReserved")
    assert not any(runs(pod) and pod["metadata"]["name"].startswith("huge-") for pod in await apps.listed(PODS))
