# SPDX-License-Identifier: Apache-2.0
"""All replicas of a LeaderWorkerSet run on one of two worker clusters (docs/jobs/leaderworkerset.md, ADR 0022)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from multikueue.api import configuration_file
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.cli.inspect.hub_facts import HubFacts, listed
from multikueue.core.clock import SystemClock
from multikueue.dispatch.explanation import DispatchState, explain_dispatch
from multikueue.kube.errors import ApiError, Conflict, Details, InternalError, KubeError, TooManyRequests, Unreachable
from multikueue.kube.rest.client import KubeClient
from tests.component.kinds.conftest import Clusters
from tests.support.both_providers import push_apart
from tests.support.managers import Object
from tests.support.replica_scenes import SETTINGS, ReplicaScene, replica_scene
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def two_workers(clusters: Clusters, title: str, transport: Transport) -> AsyncIterator[ReplicaScene]:
    async with replica_scene(clusters.hub, (clusters.worker, clusters.plain), title, transport=transport) as scene:
        yield scene


async def explained(scene: ReplicaScene, workload: Object) -> dict[str, tuple[DispatchState, str]]:
    """What `mkctl explain` shows of each cluster."""
    objects = await listed(scene.hub.client, configuration_file.load(SETTINGS))
    now = SystemClock().now()
    facts = HubFacts(objects, now).of(workload)
    assert facts is not None
    found = explain_dispatch(facts, now)
    assert found is not None
    return {each.cluster: (each.state, each.reason) for each in found.clusters}


@push_apart
async def test_x11_all_replicas_run_on_the_same_worker_and_those_that_join_as_well(
    clusters: Clusters, transport: Transport
) -> None:
    async with two_workers(clusters, "same", transport) as scene:
        await scene.create(replicas=4)
        cluster = await scene.placed(4)
        await scene.scale(6)
        assert await scene.placed(6) == cluster


@push_apart
async def test_a_replica_waits_for_the_worker_of_the_others_and_says_so(
    clusters: Clusters, transport: Transport
) -> None:
    async with two_workers(clusters, "waits", transport) as scene:
        await scene.create(replicas=2)
        cluster = await scene.placed(2)
        [other] = scene.workers.keys() - {cluster}
        await scene.set_availability(cluster, cordoned=True)
        await scene.scale(3)
        reason = f'{other}: replica 0 of LeaderWorkerSet "llm" is on {cluster}, and all run on one cluster'
        await scene.waits(2, f"{cluster}: is cordoned and takes no new work")
        waiting = await scene.waits(2, reason)
        assert (await explained(scene, waiting))[other] == (DispatchState.UNSUITABLE, reason.removeprefix(f"{other}: "))
        await scene.set_availability(cluster, cordoned=False)
        assert await scene.placed(3) == cluster


@push_apart
async def test_replicas_that_all_leave_their_worker_go_to_another_one_together(
    clusters: Clusters, transport: Transport
) -> None:
    async with two_workers(clusters, "moves", transport) as scene:
        await scene.create(replicas=3)
        cluster = await scene.placed(3)
        await scene.set_availability(cluster, cordoned=True, drain=True, drainDeadline="2026-01-01T00:00:00Z")
        await scene.placed(3, besides=cluster)
        await scene.set_availability(cluster, cordoned=False, drain=False, drainDeadline=None)


@push_apart
async def test_a_restarted_manager_sends_a_replica_that_joins_to_the_worker_of_the_others(
    clusters: Clusters, transport: Transport
) -> None:
    async with two_workers(clusters, "restart", transport) as scene:
        await scene.create(replicas=2)
        cluster = await scene.placed(2)
        await scene.set_availability(cluster, cordoned=True)
        await scene.scale(3)
        await scene.waits(2, "is cordoned")
        await scene.made(3)
        # While no manager runs, so that the new one decides first, about what the former one has left.
        await scene.restart(lambda: scene.set_availability(cluster, cordoned=False))
        assert await scene.placed(3) == cluster
        await scene.scale(4)
        assert await scene.placed(4) == cluster


@push_apart
async def test_a_manager_that_restarts_before_any_is_sent_sends_all_to_one_worker(
    clusters: Clusters, transport: Transport
) -> None:
    async with two_workers(clusters, "early", transport) as scene:
        for name in scene.workers:
            await scene.set_availability(name, cordoned=True)
        await scene.create(replicas=3)
        await scene.waits(0, "is cordoned")
        await scene.made(3)

        async def open_both() -> None:
            for name in scene.workers:
                await scene.set_availability(name, cordoned=False)

        await scene.restart(open_both)
        await scene.placed(3)


@push_apart
async def test_two_sets_of_one_name_prefix_are_not_bound_to_each_other(
    clusters: Clusters, transport: Transport
) -> None:
    async with two_workers(clusters, "apart", transport) as scene:
        first, second = scene.workers
        await scene.set_availability(second, cordoned=True)
        await scene.create(replicas=2)
        assert await scene.placed(2) == first
        await scene.set_availability(second, cordoned=False)
        await scene.set_availability(first, cordoned=True)
        await scene.create("llm-0")
        await scene.workers[second].pods(lambda pods: len(pods) == 2, what="the other set runs on the other worker")
        found = await scene.hub.listed(WORKLOADS)
        assert sorted(each["status"]["clusterName"] for each in found) == [first, first, second]
        await scene.set_availability(first, cordoned=False)


def answer(kind: type[ApiError], status: int) -> ApiError:
    return kind(request="PATCH workloads", status=status, reason="", message="injected", details=Details())


@pytest.mark.parametrize(
    ("failure", "arrives"),
    [
        pytest.param(answer(Conflict, 409), False, id="409"),
        pytest.param(answer(TooManyRequests, 429), False, id="429"),
        pytest.param(answer(InternalError, 500), False, id="500"),
        pytest.param(Unreachable("injected"), False, id="no answer"),
        pytest.param(Unreachable("injected"), True, id="no answer to a write that was done"),
    ],
)
async def test_replicas_go_to_one_worker_although_writes_of_their_cluster_fail(
    clusters: Clusters, failure: KubeError, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    real = KubeClient.apply

    async def apply(client: KubeClient, resource: Resource, name: str, body: Any, **more: Any) -> bytes:
        chooses = resource == WORKLOADS and isinstance(body, dict) and (body.get("status") or {}).get("clusterName")
        if not chooses or len(failed) == 3:
            return await real(client, resource, name, body, **more)
        failed.append(name)
        if arrives:
            await real(client, resource, name, body, **more)
        raise failure

    async with two_workers(clusters, f"fails-{type(failure).__name__}-{arrives}", Transport.PULL) as scene:
        monkeypatch.setattr(KubeClient, "apply", apply)
        await scene.create(replicas=4)
        await scene.placed(4)
    assert len(failed) == 3
