# SPDX-License-Identifier: Apache-2.0
"""Pods and pod groups on a worker that has queues of its own: a second manager runs there, as Kueue would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import orjson
import pytest

from multikueue.api.constants import ORIGIN_LABEL, POD_GROUP_TOTAL_COUNT_ANNOTATION, PREBUILT_WORKLOAD_LABEL
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    CUSTOM_RESOURCE_DEFINITIONS,
    LOCAL_QUEUES,
    PODS,
    STATEFUL_SETS,
    WORKLOADS,
)
from tests.component.kinds.conftest import Clusters
from tests.support.app_sets import Apps, app
from tests.support.managers import Object, condition, ensure, eventually, get, is_true, make_queue, running_manager
from tests.support.pod_scenes import FRAMEWORKS, PodScene, is_gated, phase, pod_scene, ready
from tests.support.sites import Transport
from tests.support.workers import check_of

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]

both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
ENGINE = "integrations: {frameworks: [batch/job, pod]}"


def _is_another(uid: str, seen: Object) -> bool:
    return ready(seen) and seen["metadata"]["uid"] != uid


@pytest.fixture(scope="module", autouse=True)
async def _kinds_of_kueue_on_the_worker(clusters: Clusters) -> None:
    async with clusters.worker.client() as client:
        for body in manifests():
            await ensure(client, CUSTOM_RESOURCE_DEFINITIONS, body)
            await eventually(
                partial(get, client, CUSTOM_RESOURCE_DEFINITIONS, body["metadata"]["name"]),
                what="the kind is served",
                until=lambda seen: is_true(seen, "Established"),
            )


@asynccontextmanager
async def queued_scene(
    clusters: Clusters,
    title: str,
    *,
    transport: Transport,
    cpu: str = "1",
    frameworks: tuple[str, ...] = FRAMEWORKS,
) -> AsyncIterator[PodScene]:
    """A scene whose worker has an engine and a queue with that quota."""
    async with (
        running_manager(clusters.worker, identity="engine", settings=ENGINE),
        pod_scene(
            clusters.hub, clusters.worker, f"queued-{title}", transport=transport, frameworks=frameworks
        ) as scene,
    ):
        queue = scene.scene.name
        await make_queue(scene.worker, queue, namespace=scene.namespace, cpu=cpu, flavor="there")
        try:
            yield scene
        finally:
            for resource, at in ((LOCAL_QUEUES, scene.namespace), (CLUSTER_QUEUES, None)):
                await scene.worker.delete(resource, queue, namespace=at)


async def evicted_by_the_engine(scene: PodScene, name: str) -> Object:
    """The Workload of that name on the hub once the queue of the worker was drained; the queue is open again."""
    queue = scene.scene.name
    await scene.worker.patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    workload = await scene.workload(name, "evicted", lambda seen: bool(seen["status"].get("schedulingStats")))
    await scene.worker.patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": "None"}})
    return workload


async def clone(scene: PodScene, name: str) -> Object | None:
    """The Workload of the pod or group of that name on the worker."""
    page = await scene.worker.list_all(WORKLOADS, namespace=scene.namespace)
    found = [orjson.loads(raw) for raw in page.items]
    return next(
        (each for each in found if each["metadata"]["name"] == name or f"-{name}-" in each["metadata"]["name"]), None
    )


@both_transports
async def test_a_pod_runs_when_the_queue_of_the_worker_admits_it(clusters: Clusters, transport: Transport) -> None:
    async with queued_scene(clusters, "one", transport=transport) as scene:
        await scene.submit(scene.manifest("one", run_for="2s"))
        remote = await scene.runs("one")
        assert not is_gated(remote)
        seen = await clone(scene, "one")
        assert seen is not None
        assert is_true(seen, "Admitted")
        assert seen["metadata"]["labels"][ORIGIN_LABEL] == "multikueue"
        assert remote["metadata"]["labels"][PREBUILT_WORKLOAD_LABEL] == seen["metadata"]["name"]
        assert [each["name"] for each in seen["metadata"]["ownerReferences"]] == ["one"]
        await scene.shown("one", "succeeded", phase("Succeeded"))
        await scene.finished("one")
        await scene.gone(scene.worker, "one")
        await eventually(lambda: clone(scene, "one"), what="the clone is removed", until=lambda seen: seen is None)


@both_transports
async def test_a_group_runs_when_the_queue_of_the_worker_admits_it_as_a_whole(
    clusters: Clusters, transport: Transport
) -> None:
    async with queued_scene(clusters, "group", transport=transport) as scene:
        await scene.group("g", pods=3, run_for="2s")
        for index in range(3):
            assert not is_gated(await scene.runs(f"g-{index}"))
        seen = await clone(scene, "g")
        assert seen is not None
        assert is_true(seen, "Admitted")
        assert [each["count"] for each in seen["status"]["admission"]["podSetAssignments"]] == [3]
        workload = await scene.finished("g")
        assert condition(workload, "Finished")["message"] == "Pods succeeded: 3/3."
        await eventually(lambda: scene.names(scene.worker), what="no pod is left", until=lambda seen: not seen)
        await eventually(lambda: clone(scene, "g"), what="the clone is removed", until=lambda seen: seen is None)


@both_transports
async def test_a_group_waits_until_all_of_it_fits_into_the_queue_of_the_worker(
    clusters: Clusters, transport: Transport
) -> None:
    async with queued_scene(clusters, "waits", transport=transport, cpu="300m") as scene:
        await scene.group("first", pods=2)
        for index in range(2):
            await scene.runs(f"first-{index}")
        await scene.group("second", pods=2)
        await scene.workload("second", "waiting", lambda seen: is_true(seen, "QuotaReserved"))
        assert await scene.names(scene.worker) == ["first-0", "first-1"]
        for index in range(2):
            await scene.hub.delete(PODS, f"first-{index}", namespace=scene.namespace)
        for index in range(2):
            await scene.runs(f"second-{index}")


@both_transports
async def test_an_eviction_by_the_engine_of_the_worker_sends_the_group_again(
    clusters: Clusters, transport: Transport
) -> None:
    async with queued_scene(clusters, "evicted", transport=transport) as scene:
        await scene.group("g", pods=2)
        before = [await scene.runs(f"g-{index}") for index in range(2)]
        workload = await evicted_by_the_engine(scene, "g")
        assert "Workload evicted on worker cluster" in condition(workload, "Evicted")["message"]
        for index, old in enumerate(before):
            again = await scene.remote(
                f"g-{index}",
                "runs again",
                partial(_is_another, old["metadata"]["uid"]),
            )
            assert not is_gated(again)
        for index in range(2):
            assert is_gated(await scene.shown(f"g-{index}", "ready", ready))


@both_transports
async def test_the_rest_of_a_group_that_was_evicted_runs_without_the_pods_that_had_succeeded(
    clusters: Clusters, transport: Transport
) -> None:
    async with queued_scene(clusters, "rest", transport=transport) as scene:
        await scene.submit(
            scene.manifest("g-0", group="g", total=2, run_for="2s"),
            scene.manifest("g-1", group="g", total=2, run_for="20s"),
        )
        await scene.shown("g-0", "succeeded", phase("Succeeded"))
        before = await scene.runs("g-1")
        await evicted_by_the_engine(scene, "g")
        again = await scene.remote(
            "g-1",
            "runs again",
            lambda seen: ready(seen) and seen["metadata"]["uid"] != before["metadata"]["uid"],
        )
        assert again["metadata"]["annotations"][POD_GROUP_TOTAL_COUNT_ANNOTATION] == "1"
        seen = await clone(scene, "g")
        assert seen is not None
        assert [each["count"] for each in seen["status"]["admission"]["podSetAssignments"]] == [1]
        assert await scene.names(scene.worker) == ["g-1"]
        workload = await scene.finished("g")
        assert condition(workload, "Finished")["message"] == "Pods succeeded: 2/2."
        await eventually(lambda: clone(scene, "g"), what="the clone is removed", until=lambda seen: seen is None)


@both_transports
async def test_a_pod_of_a_group_is_replaced_within_the_admission_of_the_worker(
    clusters: Clusters, transport: Transport
) -> None:
    async with queued_scene(clusters, "replaced", transport=transport) as scene:
        await scene.submit(
            scene.manifest("g-0", group="g", total=2),
            scene.manifest("g-1", group="g", total=2, run_for="2s", exit_code=1),
        )
        stays = await scene.runs("g-0")
        await scene.shown("g-1", "failed", phase("Failed"))
        await scene.workload("g", "waiting for a pod", lambda seen: is_true(seen, "WaitingForReplacementPods"))
        await scene.submit(scene.manifest("g-2", group="g", total=2))
        assert not is_gated(await scene.runs("g-2"))
        assert (await scene.runs("g-0"))["metadata"]["uid"] == stays["metadata"]["uid"]
        assert not is_true(await clone(scene, "g"), "Evicted")


@both_transports
async def test_a_stateful_set_is_not_sent_and_its_check_says_why(clusters: Clusters, transport: Transport) -> None:
    frameworks = (*FRAMEWORKS, "statefulset")
    async with queued_scene(clusters, "set", transport=transport, frameworks=frameworks) as scene:
        apps = Apps(scene.hub, scene.namespace)
        await apps.create(app(STATEFUL_SETS, "web", scene.scene.name, replicas=2))

        reason = "has queues of its own, which cannot admit pods that are created one after another"

        def waits(workloads: list[Object]) -> bool:
            return any(reason in check_of(each, scene.scene.name).get("message", "") for each in workloads)

        [workload] = await apps.workloads(waits, what="the StatefulSet waits for another worker")
        assert not is_true(workload, "Evicted")
        assert await scene.names(scene.worker) == []
        await scene.hub.delete_collection(STATEFUL_SETS, namespace=scene.namespace, propagation="Background")
        await apps.pods(lambda pods: not pods, what="its pods are gone")
