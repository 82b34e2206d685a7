# SPDX-License-Identifier: Apache-2.0
"""Deployments and StatefulSets of the hub whose pods run on a worker, with the controllers of the hub counting them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from multikueue.api.constants import EPOCH_ANNOTATION, PARTITION_POLICY_ANNOTATION
from multikueue.api.resource import DEPLOYMENTS, PODS, STATEFUL_SETS, WORKLOADS, Resource
from tests.component.kinds.conftest import Clusters
from tests.support.app_sets import Apps, app, runs
from tests.support.both_providers import push_apart
from tests.support.limited_workers import INTERVALS
from tests.support.managers import Object, condition, eventually, is_true
from tests.support.pod_scenes import FRAMEWORKS, PodScene, is_gated, pod_scene, ready
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio

both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
apart = pytest.mark.conformance


@dataclass(frozen=True)
class AppScene:
    """The objects of one namespace on the hub and on the worker."""

    scene: PodScene
    hub: Apps
    worker: Apps

    async def create(self, resource: Resource, *, replicas: int, **given: Any) -> None:
        """One named web, on the hub."""
        await self.hub.create(app(resource, "web", self.scene.scene.name, replicas=replicas, **given))

    async def shown(self, resource: Resource, what: str, holds: Callable[[Object], bool]) -> Object:
        """The object on the hub once its status is so."""
        found = await eventually(
            lambda: self.hub.get(resource, "web"),
            what=f"{resource.kind} {what}",
            until=lambda seen: seen is not None and holds(seen.get("status") or {}),
        )
        assert found is not None
        return found

    async def run_there(self, resource: Resource, count: int, *, besides: Sequence[Object] = ()) -> list[Object]:
        """The remote pods once so many run and no others exist, gated and ready on the hub, which counts them."""
        former = {each["metadata"]["uid"] for each in besides}

        def holds(pods: list[Object]) -> bool:
            return (
                len(pods) == count
                and all(runs(each) and ready(each) for each in pods)
                and former.isdisjoint(each["metadata"]["uid"] for each in pods)
            )

        remote = await self.worker.pods(holds, what=f"{count} pods run on the worker")
        names = [each["metadata"]["name"] for each in remote]
        local = await self.hub.pods(
            lambda pods: [each["metadata"]["name"] for each in pods] == names and all(map(ready, pods)),
            what="the pods of the hub show that they are ready",
        )
        assert all(map(is_gated, local))
        await self.shown(resource, f"has {count} ready pods", lambda seen: seen.get("readyReplicas", 0) == count)
        assert await self.worker.listed(resource) == []
        return remote

    async def none_there(self) -> None:
        """Wait until the worker has no pod."""
        await self.worker.pods(lambda pods: not pods, what="no pod is left on the worker")


@asynccontextmanager
async def app_scene(
    clusters: Clusters,
    title: str,
    *,
    transport: Transport,
    cpu: str = "10",
    lease_seconds: int = INTERVALS.lease_seconds,
) -> AsyncIterator[AppScene]:
    frameworks = (*FRAMEWORKS, "deployment", "statefulset")
    name = f"apps-{title}"
    async with pod_scene(
        clusters.hub,
        clusters.worker,
        name,
        transport=transport,
        cpu=cpu,
        frameworks=frameworks,
        lease_seconds=lease_seconds,
    ) as scene:
        made = AppScene(scene, Apps(scene.hub, scene.namespace), Apps(scene.worker, scene.namespace))
        try:
            yield made
        finally:
            for resource in (DEPLOYMENTS, STATEFUL_SETS):
                await scene.hub.delete_collection(resource, namespace=scene.namespace, propagation="Background")
                await eventually(partial(made.hub.listed, resource), what="they are gone", until=lambda seen: not seen)
            await made.hub.pods(lambda pods: not pods, what="their pods are gone")


def container(image: str) -> Object:
    return {"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}}


@push_apart
async def test_a_deployment_is_available_by_the_pods_that_run_on_the_worker(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "available", transport=transport) as scene:
        await scene.create(DEPLOYMENTS, replicas=2)
        await scene.run_there(DEPLOYMENTS, 2)
        shown = await scene.shown(DEPLOYMENTS, "is available", lambda seen: seen.get("availableReplicas") == 2)
        assert condition(shown, "Available")["status"] == "True"
        await scene.hub.scale(DEPLOYMENTS, "web", 3)
        await scene.run_there(DEPLOYMENTS, 3)
        await scene.hub.scale(DEPLOYMENTS, "web", 1)
        await scene.run_there(DEPLOYMENTS, 1)
        await scene.hub.client.delete(DEPLOYMENTS, "web", namespace=scene.hub.namespace)
        await scene.none_there()
        await scene.hub.workloads(lambda found: not found, what="no quota is held")


@apart
@both_transports
async def test_a_rolling_update_of_a_deployment_replaces_the_pods_on_the_worker(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "rolled", transport=transport) as scene:
        await scene.create(DEPLOYMENTS, replicas=2)
        before = await scene.run_there(DEPLOYMENTS, 2)
        await scene.hub.change(DEPLOYMENTS, "web", spec={"template": {"spec": {"containers": [container("newer")]}}})
        after = await scene.run_there(DEPLOYMENTS, 2, besides=before)
        assert {each["spec"]["containers"][0]["image"] for each in after} == {"newer"}
        await scene.shown(
            DEPLOYMENTS,
            "is updated",
            lambda seen: (seen.get("updatedReplicas"), seen.get("availableReplicas")) == (2, 2),
        )


@apart
@both_transports
async def test_a_pod_of_a_deployment_that_is_deleted_on_the_worker_runs_again(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "killed", transport=transport) as scene:
        await scene.create(DEPLOYMENTS, replicas=2)
        [first, _] = await scene.run_there(DEPLOYMENTS, 2)
        await scene.worker.client.delete(PODS, first["metadata"]["name"], namespace=scene.worker.namespace)
        await scene.run_there(DEPLOYMENTS, 2, besides=[first])


@push_apart
async def test_b4_the_pods_of_a_stateful_set_run_on_one_worker_one_after_the_other_and_it_counts_them_as_ready(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "ordered", transport=transport) as scene:
        await scene.create(STATEFUL_SETS, replicas=3, podManagementPolicy="OrderedReady")
        remote = await scene.run_there(STATEFUL_SETS, 3)
        assert [each["metadata"]["name"] for each in remote] == ["web-0", "web-1", "web-2"]
        for each in remote:
            assert each["metadata"].keys().isdisjoint({"ownerReferences", "finalizers"})
        [workload] = await scene.hub.listed(WORKLOADS)
        assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("main", 3)]
        assert workload["status"]["clusterName"] == scene.scene.scene.name
        assert [each["kind"] for each in workload["metadata"]["ownerReferences"]] == ["StatefulSet"]
        await scene.hub.client.delete(STATEFUL_SETS, "web", namespace=scene.hub.namespace)
        await scene.none_there()
        await scene.hub.workloads(lambda found: not found, what="no quota is held")


@apart
@both_transports
async def test_a_stateful_set_that_is_scaled_to_zero_leaves_the_worker_and_comes_back_with_another_size(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "scaled", transport=transport) as scene:
        await scene.create(STATEFUL_SETS, replicas=2)
        before = await scene.run_there(STATEFUL_SETS, 2)
        await scene.hub.scale(STATEFUL_SETS, "web", 0)
        await scene.none_there()
        await scene.hub.workloads(lambda found: not found, what="no quota is held")
        await scene.shown(STATEFUL_SETS, "has no pods", lambda seen: not seen.get("replicas"))
        await scene.hub.scale(STATEFUL_SETS, "web", 3)
        await scene.run_there(STATEFUL_SETS, 3, besides=before)


@apart
@both_transports
async def test_a_rolling_update_of_a_stateful_set_replaces_its_pods_on_the_worker_within_one_dispatch(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "updated", transport=transport) as scene:
        await scene.create(STATEFUL_SETS, replicas=2)
        before = await scene.run_there(STATEFUL_SETS, 2)
        [workload] = await scene.hub.listed(WORKLOADS)
        await scene.hub.change(STATEFUL_SETS, "web", spec={"template": {"spec": {"containers": [container("newer")]}}})
        after = await scene.run_there(STATEFUL_SETS, 2, besides=before)
        assert {each["spec"]["containers"][0]["image"] for each in after} == {"newer"}
        await scene.shown(
            STATEFUL_SETS,
            "is updated",
            lambda seen: seen.get("currentRevision") == seen.get("updateRevision"),
        )
        [same] = await scene.hub.listed(WORKLOADS)
        assert same["metadata"]["uid"] == workload["metadata"]["uid"]
        assert not is_true(same, "Evicted")


@apart
@both_transports
async def test_a_stateful_set_of_one_pod_is_updated_on_the_worker(clusters: Clusters, transport: Transport) -> None:
    async with app_scene(clusters, "single", transport=transport) as scene:
        await scene.create(STATEFUL_SETS, replicas=1)
        before = await scene.run_there(STATEFUL_SETS, 1)
        await scene.hub.change(STATEFUL_SETS, "web", spec={"template": {"spec": {"containers": [container("newer")]}}})
        after = await scene.run_there(STATEFUL_SETS, 1, besides=before)
        assert after[0]["spec"]["containers"][0]["image"] == "newer"
        await scene.hub.client.delete(PODS, "web-0", namespace=scene.hub.namespace)
        [last] = await scene.run_there(STATEFUL_SETS, 1, besides=after)
        assert last["metadata"]["annotations"][EPOCH_ANNOTATION] == "1", "it was not evicted, and sent again"


@apart
@both_transports
async def test_a_pod_of_a_stateful_set_that_is_deleted_on_the_worker_is_made_again_while_the_others_run(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "lost", transport=transport) as scene:
        await scene.create(STATEFUL_SETS, replicas=2)
        [stays, lost] = await scene.run_there(STATEFUL_SETS, 2)
        await scene.worker.client.delete(PODS, "web-1", namespace=scene.worker.namespace)
        again = await scene.run_there(STATEFUL_SETS, 2, besides=[lost])
        assert again[0]["metadata"]["uid"] == stays["metadata"]["uid"]


@apart
@both_transports
async def test_a_deactivated_stateful_set_leaves_the_worker_and_its_pods_wait_gated(
    clusters: Clusters, transport: Transport
) -> None:
    async with app_scene(clusters, "stopped", transport=transport) as scene:
        await scene.create(STATEFUL_SETS, replicas=2)
        before = await scene.run_there(STATEFUL_SETS, 2)
        [workload] = await scene.hub.listed(WORKLOADS)
        name = workload["metadata"]["name"]
        await scene.hub.client.patch(WORKLOADS, name, {"spec": {"active": False}}, namespace=scene.hub.namespace)
        await scene.none_there()
        await scene.hub.pods(
            lambda pods: bool(pods) and all(is_gated(each) and not ready(each) for each in pods),
            what="its pods are shown as gated",
        )
        await scene.shown(STATEFUL_SETS, "has no ready pods", lambda seen: not seen.get("readyReplicas"))
        await scene.hub.client.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace=scene.hub.namespace)
        await scene.run_there(STATEFUL_SETS, 2, besides=before)


@apart
@both_transports
async def test_a_stateful_set_continues_after_a_restart_of_the_agent(clusters: Clusters, transport: Transport) -> None:
    async with app_scene(clusters, "restarted", transport=transport) as scene:
        await scene.create(STATEFUL_SETS, replicas=2)
        before = await scene.run_there(STATEFUL_SETS, 2)
        await scene.scene.scene.restart()
        await scene.worker.client.delete(PODS, "web-1", namespace=scene.worker.namespace)
        again = await scene.run_there(STATEFUL_SETS, 2, besides=before[1:])
        assert again[0]["metadata"]["uid"] == before[0]["metadata"]["uid"]


@apart
async def test_a_fenced_stateful_set_is_stopped_when_the_lease_expires(clusters: Clusters) -> None:
    async with app_scene(clusters, "fenced", transport=Transport.PULL, lease_seconds=5) as scene:
        body = app(STATEFUL_SETS, "web", scene.scene.scene.name, replicas=2)
        body["metadata"]["annotations"] = {PARTITION_POLICY_ANNOTATION: "fenced"}
        await scene.hub.create(body)
        await scene.run_there(STATEFUL_SETS, 2)
        await scene.scene.scene.link.refuse()
        await scene.none_there()
        await scene.scene.scene.link.start()
        await scene.run_there(STATEFUL_SETS, 2)
