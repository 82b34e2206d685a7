# SPDX-License-Identifier: Apache-2.0
"""LeaderWorkerSets of the hub whose replicas run on a worker; an operator on the hub makes and counts their pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from multikueue.api.constants import LEADER_WORKER_SET_FRAMEWORK
from multikueue.api.resource import LEADER_WORKER_SETS, PODS, WORKLOADS
from tests.component.kinds.conftest import Clusters
from tests.support.app_sets import Apps, runs
from tests.support.both_providers import push_apart
from tests.support.crds import kinds
from tests.support.leader_worker_sets import leader_worker_set
from tests.support.managers import Object, condition, eventually, is_true
from tests.support.operators.operated_kinds import kind_of
from tests.support.operators.operator import operating
from tests.support.operators.templated import TemplatedOperator
from tests.support.pod_scenes import FRAMEWORKS, PodScene, is_gated, pod_scene, ready
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class SetScene:
    """The objects of one namespace on the hub and on the worker."""

    scene: PodScene
    hub: Apps
    worker: Apps

    async def create(self, **given: Any) -> None:
        """One named llm, on the hub."""
        await self.hub.create(leader_worker_set("llm", self.scene.scene.name, **given))

    async def run_there(self, *names: str, besides: Sequence[Object] = ()) -> list[Object]:
        """The remote pods once those run and no others exist, gated and ready on the hub."""
        former = {each["metadata"]["uid"] for each in besides}

        def holds(pods: list[Object]) -> bool:
            return (
                [each["metadata"]["name"] for each in pods] == list(names)
                and all(runs(each) and ready(each) for each in pods)
                and former.isdisjoint(each["metadata"]["uid"] for each in pods)
            )

        remote = await self.worker.pods(holds, what=f"{names} run on the worker")
        local = await self.hub.pods(
            lambda pods: [each["metadata"]["name"] for each in pods] == list(names) and all(map(ready, pods)),
            what="the pods of the hub show that they are ready",
        )
        assert all(map(is_gated, local))
        return remote

    async def counted(self, replicas: int) -> None:
        """Wait until the hub counts so many replicas as ready."""
        await eventually(
            lambda: self.hub.get(LEADER_WORKER_SETS, "llm"),
            what=f"{replicas} replicas are ready",
            until=lambda seen: seen is not None and (seen.get("status") or {}).get("readyReplicas") == replicas,
        )

    async def none_there(self) -> None:
        """Wait until the worker has no pod."""
        await self.worker.pods(lambda pods: not pods, what="no pod is left on the worker")


@asynccontextmanager
async def set_scene(clusters: Clusters, title: str, *, transport: Transport) -> AsyncIterator[SetScene]:
    async with clusters.hub.client() as client:
        await kinds.install(client, LEADER_WORKER_SETS)
        frameworks = (*FRAMEWORKS, LEADER_WORKER_SET_FRAMEWORK)
        async with (
            pod_scene(
                clusters.hub, clusters.worker, f"sets-{title}", transport=transport, frameworks=frameworks
            ) as scene,
            operating(TemplatedOperator(client, kind_of(LEADER_WORKER_SETS))),
        ):
            made = SetScene(scene, Apps(scene.hub, scene.namespace), Apps(scene.worker, scene.namespace))
            try:
                yield made
            finally:
                await scene.hub.delete_collection(
                    LEADER_WORKER_SETS, namespace=scene.namespace, propagation="Background"
                )
                await made.hub.pods(lambda pods: not pods, what="their pods are gone")


@push_apart
async def test_x10_each_replica_runs_on_a_worker_as_one_group_and_the_hub_counts_it_as_ready(
    clusters: Clusters, transport: Transport
) -> None:
    async with set_scene(clusters, "ready", transport=transport) as scene:
        await scene.create(replicas=2, leader="200m")
        remote = await scene.run_there("llm-0", "llm-0-1", "llm-1", "llm-1-1")
        for each in remote:
            assert each["metadata"].keys().isdisjoint({"ownerReferences", "finalizers"})
            assert each["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/name"] == "llm"
        await scene.counted(2)
        workloads = await scene.hub.listed(WORKLOADS)
        assert [each["status"]["clusterName"] for each in workloads] == [scene.scene.scene.name] * 2
        # A third one joins, and the others are not touched; then it leaves.
        await scene.hub.scale(LEADER_WORKER_SETS, "llm", 3)
        more = await scene.run_there("llm-0", "llm-0-1", "llm-1", "llm-1-1", "llm-2", "llm-2-1")
        await scene.hub.scale(LEADER_WORKER_SETS, "llm", 2)
        less = await scene.run_there("llm-0", "llm-0-1", "llm-1", "llm-1-1")
        uids = [each["metadata"]["uid"] for each in remote]
        assert [each["metadata"]["uid"] for each in more[:4]] == uids == [each["metadata"]["uid"] for each in less]
        await scene.hub.client.delete(LEADER_WORKER_SETS, "llm", namespace=scene.hub.namespace)
        await scene.none_there()
        await scene.hub.workloads(lambda found: not found, what="no quota is held")


@push_apart
async def test_a_replica_that_is_deactivated_leaves_the_worker_while_the_other_one_runs(
    clusters: Clusters, transport: Transport
) -> None:
    async with set_scene(clusters, "stopped", transport=transport) as scene:
        await scene.create(replicas=2)
        before = await scene.run_there("llm-0", "llm-0-1", "llm-1", "llm-1-1")
        [_, second] = sorted(await scene.hub.listed(WORKLOADS), key=lambda each: str(each["metadata"]["name"]))
        name = second["metadata"]["name"]
        assert name.startswith("leaderworkerset-llm-1-")
        await scene.hub.client.patch(WORKLOADS, name, {"spec": {"active": False}}, namespace=scene.hub.namespace)
        left = await scene.worker.pods(
            lambda pods: [each["metadata"]["name"] for each in pods] == ["llm-0", "llm-0-1"], what="one is left"
        )
        assert [each["metadata"]["uid"] for each in left] == [each["metadata"]["uid"] for each in before[:2]]
        await scene.counted(1)
        await scene.hub.client.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace=scene.hub.namespace)
        await scene.run_there("llm-0", "llm-0-1", "llm-1", "llm-1-1", besides=before[2:])


@push_apart
async def test_a_remote_pod_that_is_deleted_is_made_again_while_its_leader_runs(
    clusters: Clusters, transport: Transport
) -> None:
    async with set_scene(clusters, "lost", transport=transport) as scene:
        await scene.create()
        [stays, lost] = await scene.run_there("llm-0", "llm-0-1")
        await scene.worker.client.delete(PODS, "llm-0-1", namespace=scene.worker.namespace)
        again = await scene.run_there("llm-0", "llm-0-1", besides=[lost])
        assert again[0]["metadata"]["uid"] == stays["metadata"]["uid"]


async def test_a_replica_of_more_pods_than_are_sent_is_rejected_with_the_number(clusters: Clusters) -> None:
    async with set_scene(clusters, "large", transport=Transport.PULL) as scene:
        await scene.create(size=300, leader="1m", worker="1m")
        [workload] = await scene.hub.workloads(
            lambda found: len(found) == 1 and bool(condition(found[0], "Evicted")), what="its check rejects it"
        )
        assert not is_true(workload, "Admitted")
        assert "the group has 300 pods, and at most 256" in str(workload["status"])
        await scene.none_there()
