# SPDX-License-Identifier: Apache-2.0
"""Pods and pod groups on an embedded hub with virtual nodes: gated, admitted, run, replaced, preempted, let go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import orjson
import pytest

from devcluster.cluster import Cluster
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from manager.cache import caches, followed_kind
from multikueue.api.constants import RUN_FOR_ANNOTATION
from multikueue.api.crds import manifests
from multikueue.api.resource import CLUSTER_QUEUES, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, WORKLOADS, Resource
from multikueue.core.clock import SystemClock
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import condition, connections_closed, eventually, get, is_true, make_queue, running_manager
from tests.support.virtual_pods import virtual_pods_apart

pytestmark = pytest.mark.anyio

K = "kueue.x-k8s.io/"
SETTINGS = "integrations: {frameworks: [batch/job, pod]}"
Object = dict[str, Any]


@pytest.fixture(scope="module")
async def hub(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("pods")
    async with EmbeddedProvider(folder=folder) as provider:
        spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests())
        cluster = await provider.create("pods", folder=folder / "hub", spec=spec)
        async with cluster, virtual_pods_apart(cluster):
            yield cluster


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    async with connections_closed(), hub.client() as client, running_manager(hub, settings=SETTINGS):
        yield client


def pod(name: str, queue: str | None, *, cpu: str = "1", run_for: str = "1h", **annotations: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {K + "queue-name": queue} if queue else {},
            "annotations": {RUN_FOR_ANNOTATION: run_for, **annotations},
        },
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def member(name: str, queue: str, group: str, *, total: int, **given: Any) -> Object:
    made = pod(name, queue, **given)
    made["metadata"]["labels"][K + "pod-group-name"] = group
    made["metadata"]["annotations"][K + "pod-group-total-count"] = str(total)
    return made


async def create(client: KubeClient, body: Object, *, namespace: str) -> Object:
    stored: Object = orjson.loads(await client.create(PODS, body, namespace=namespace))
    return stored


async def phase(client: KubeClient, name: str, wanted: str, *, namespace: str) -> Object:
    found = await eventually(
        lambda: get(client, PODS, name, namespace=namespace),
        what=f"pod {name} is {wanted}",
        until=lambda seen: seen is not None and seen["status"].get("phase") == wanted,
    )
    assert found is not None
    return found


async def gone(client: KubeClient, name: str, *, namespace: str) -> None:
    await eventually(
        lambda: get(client, PODS, name, namespace=namespace),
        what=f"pod {name} is gone",
        until=lambda seen: seen is None,
    )


async def group_workload(client: KubeClient, name: str, kind: str, *, namespace: str) -> Object:
    found = await eventually(
        lambda: get(client, WORKLOADS, name, namespace=namespace),
        what=f"Workload {name} is {kind}",
        until=lambda seen: is_true(seen, kind),
    )
    assert found is not None
    return found


async def workload_of_pod(client: KubeClient, name: str, kind: str, *, namespace: str) -> Object:
    async def probe() -> Object | None:
        page = await client.list_all(WORKLOADS, namespace=namespace)
        found = [orjson.loads(raw) for raw in page.items]
        return next((each for each in found if each["metadata"]["name"].startswith(f"pod-{name}-")), None)

    found = await eventually(
        probe, what=f"the Workload of pod {name} is {kind}", until=lambda seen: is_true(seen, kind)
    )
    assert found is not None
    return found


async def test_a_pod_is_gated_until_it_is_admitted_and_then_runs_to_its_end(client: KubeClient) -> None:
    await make_queue(client, "one", namespace="one", cpu="1")
    stored = await create(client, pod("a", "one"), namespace="one")
    assert stored["spec"]["schedulingGates"] == [{"name": K + "admission"}, {"name": K + "topology"}]
    assert stored["metadata"]["labels"][K + "managed"] == "true"
    assert K + "managed" in stored["metadata"]["finalizers"]
    running = await phase(client, "a", "Running", namespace="one")
    assert not running["spec"].get("schedulingGates")
    assert running["metadata"]["labels"][K + "podset"] == "main"

    await create(client, pod("b", "one", run_for="50ms"), namespace="one")
    await eventually(
        lambda: get(client, CLUSTER_QUEUES, "one"),
        what="the second pod waits",
        until=lambda seen: seen is not None and seen["status"].get("pendingWorkloads") == 1,
    )
    waiting = await get(client, PODS, "b", namespace="one")
    assert waiting is not None
    assert "nodeName" not in waiting["spec"], "a gated pod is not scheduled"
    await client.delete(PODS, "a", namespace="one")
    await gone(client, "a", namespace="one")
    ended = await workload_of_pod(client, "b", "Finished", namespace="one")
    assert condition(ended, "Finished")["reason"] == "Succeeded"
    await eventually(
        lambda: get(client, PODS, "b", namespace="one"),
        what="the finalizer is removed",
        until=lambda seen: seen is not None and not seen["metadata"].get("finalizers"),
    )


async def test_a_group_is_admitted_as_one_workload_and_pods_in_excess_are_deleted(client: KubeClient) -> None:
    await make_queue(client, "group", namespace="group", cpu="4")
    await create(client, member("g-1", "group", "g", total=2, run_for="2s"), namespace="group")
    await create(client, member("g-2", "group", "g", total=2, cpu="2", run_for="2s"), namespace="group")
    workload = await group_workload(client, "g", "Admitted", namespace="group")
    assert sorted(each["count"] for each in workload["spec"]["podSets"]) == [1, 1], "a pod set for each role"
    assert sorted(owner["name"] for owner in workload["metadata"]["ownerReferences"]) == ["g-1", "g-2"]
    await create(client, member("g-3", "group", "g", total=2), namespace="group")
    await gone(client, "g-3", namespace="group")
    workload = await group_workload(client, "g", "Finished", namespace="group")
    assert condition(workload, "Finished")["message"] == "Pods succeeded: 2/2."


async def test_a_failed_pod_of_a_group_is_replaced(client: KubeClient) -> None:
    await make_queue(client, "retry", namespace="retry", cpu="4")
    await create(client, member("r-1", "retry", "r", total=2), namespace="retry")
    failing = member("r-2", "retry", "r", total=2, run_for="50ms")
    failing["metadata"]["annotations"]["multikueue.io/exit-code"] = "1"
    await create(client, failing, namespace="retry")
    await group_workload(client, "r", "WaitingForReplacementPods", namespace="retry")
    await create(client, member("r-3", "retry", "r", total=2), namespace="retry")
    await phase(client, "r-3", "Running", namespace="retry")
    await eventually(
        lambda: get(client, PODS, "r-2", namespace="retry"),
        what="the failed pod is let go",
        until=lambda seen: seen is not None and not seen["metadata"].get("finalizers"),
    )


async def test_a_preempted_pod_is_deleted_with_the_reason_in_its_status(client: KubeClient) -> None:
    await make_queue(client, "stopped", namespace="stopped", cpu="1")
    await create(client, pod("p", "stopped"), namespace="stopped")
    await phase(client, "p", "Running", namespace="stopped")
    workload = await workload_of_pod(client, "p", "Admitted", namespace="stopped")
    await client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, namespace="stopped")
    await gone(client, "p", namespace="stopped")


async def test_pods_without_a_queue_are_left_alone(client: KubeClient) -> None:
    await make_queue(client, "plain", namespace="plain", cpu="1")
    stored = await create(client, pod("p", None), namespace="plain")
    assert "schedulingGates" not in stored["spec"]
    queued = await create(client, pod("q", "plain"), namespace="kube-system")
    assert "schedulingGates" not in queued["spec"], "a system namespace"


async def test_the_label_of_the_namespace_gives_a_pod_its_queue(client: KubeClient) -> None:
    await make_queue(client, "labelled", namespace="labelled", cpu="1")
    await client.patch(NAMESPACES, "labelled", {"metadata": {"labels": {K + "default-queue": "labelled"}}})

    async def queue() -> str | None:
        body = pod("p", None)
        stored = orjson.loads(await client.create(PODS, body, namespace="labelled", dry_run=True))
        found: str | None = stored["metadata"].get("labels", {}).get(K + "queue-name")
        return found

    assert await eventually(queue, what="the label is known") == "labelled"


async def test_half_a_group_is_refused(client: KubeClient) -> None:
    await make_queue(client, "half", namespace="half", cpu="1")
    body = pod("p", "half")
    body["metadata"]["labels"][K + "pod-group-name"] = "g"
    with pytest.raises(Forbidden, match="both the group's name and its total count have to be set"):
        await create(client, body, namespace="half")


async def test_a_framework_waits_for_its_crd_and_starts_when_that_is_installed(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_kind, "_MISSING_SECONDS", 0.05)
    flows = Resource("example.com", "v1", "Flow", "flows")
    reported: list[tuple[str, bool]] = []
    kind = followed_kind.FollowedKind(resource=flows, framework="example.com/flow")
    followed = caches.Caches(client, (kind,), clock=SystemClock())
    followed.report_frameworks(lambda which, waits: reported.append((which.framework, waits)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(followed.run)
        await followed.synced()
        assert followed.waiting_for == (), "the manager is ready without it"
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
        names = {"plural": "flows", "singular": "flow", "kind": "Flow", "listKind": "FlowList"}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "flows.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        }
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)

        async def started() -> bool:
            return ("example.com/flow", False) in reported

        await eventually(started, what="the framework starts")
        tasks.cancel_scope.cancel()
    assert reported == [("example.com/flow", True), ("example.com/flow", False)]
