# SPDX-License-Identifier: Apache-2.0
"""When the statuses of queues are written: soon after the last change, whatever became of a write. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import anyio
import orjson
import pytest

from manager.cache.ended_workloads import ENDED_INDEX
from manager.cache.indexes import CLUSTER_QUEUE_INDEX
from manager.cache.views import View
from manager.context import ManagerContext
from manager.controllers.queues import QueueReconcilers
from manager.measured_queues import MeasuredQueues
from manager.metrics import ManagerMetrics
from manager.workload.series import QueuePlace
from multikueue.api.configuration import Configuration
from multikueue.api.constants import RESOURCE_IN_USE_FINALIZER
from multikueue.api.reasons import ClusterQueueReason, LocalQueueReason
from multikueue.api.resource import ADMISSION_CHECKS, CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, Resource
from multikueue.core.keys import Key
from multikueue.engine.decisions import ClusterQueueState, CohortState, LocalQueueState
from multikueue.engine.engine import Engine
from multikueue.kube.cache.store import Store
from multikueue.kube.errors import ApiError, Conflict, Details, InternalError, TooManyRequests
from multikueue.kube.runtime.quarantine import Quarantine
from tests.simulation.world.virtual_time import SimClock, VirtualLoop

Object = dict[str, Any]
Script = Callable[["Hub"], Awaitable[None]]

AT_REST = 2.0
QUEUE, OTHER, LOCAL, COHORT = Key("", "cq"), Key("", "other"), Key("team", "lq"), Key("", "tree")


class Hub:
    """An API server with two ClusterQueues of a Cohort and a LocalQueue, and an engine whose figures the test sets."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.clock = SimClock(loop)
        self.stored: dict[tuple[Resource, Key], Object] = {}
        self.metrics = ManagerMetrics()
        self.failures: list[type[ApiError]] = []
        self.writes = 0
        self._views: dict[Resource, View] = {}
        self._version = 0
        ready = ClusterQueueReason.READY
        self.queues = {
            key.name: ClusterQueueState(name=key.name, active=True, reason=ready, message="") for key in (QUEUE, OTHER)
        }
        self.local = LocalQueueState(key=LOCAL, active=True, reason=LocalQueueReason.READY, message="")
        self.share = 0
        caches = SimpleNamespace(
            view=self.view,
            subscribe=lambda resource, handler: self.view(resource).subscribe(handler),
            quarantine=Quarantine(clock=self.clock),
        )
        context = SimpleNamespace(
            caches=caches,
            clock=self.clock,
            client=SimpleNamespace(patch=self._patch),
            configuration=Configuration(),
            metrics=self.metrics,
            measured=MeasuredQueues(Configuration(), self.view),
        )
        engine = SimpleNamespace(
            settings=SimpleNamespace(fair_sharing=True),
            cluster_queue_state=lambda name: self.queues[name],
            local_queue_state=lambda key: self.local,
            cohort_state=lambda name: CohortState(name=name, weighted_share=self.share),
            queue_figures=list,
            cohort_figures=list,
        )
        self.reconcilers = QueueReconcilers(cast(ManagerContext, context), engine=lambda: cast(Engine, engine))
        finalizers = [RESOURCE_IN_USE_FINALIZER]
        for key in (QUEUE, OTHER):
            self.put(CLUSTER_QUEUES, key, {"cohortName": "tree"}, finalizers=finalizers)
        self.put(LOCAL_QUEUES, LOCAL, {"clusterQueue": "cq"})
        self.put(COHORTS, COHORT, {})

    def view(self, resource: Resource) -> View:
        if resource not in self._views:
            store = Store({CLUSTER_QUEUE_INDEX: points_to, ENDED_INDEX: lambda obj: ()})
            self._views[resource] = View(resource, clock=self.clock, store=store)
        return self._views[resource]

    def put(self, resource: Resource, key: Key, spec: Object, **metadata: Any) -> None:
        """Somebody writes the object."""
        old = self.stored.get((resource, key), {"metadata": {"generation": 0}})
        named = {"name": key.name, "namespace": key.namespace, "uid": key.name}
        metadata = {**old["metadata"], **named, **metadata, "generation": old["metadata"]["generation"] + 1}
        self._store(resource, key, {**old, "metadata": metadata, "spec": spec})

    def status(self, resource: Resource, key: Key) -> Object:
        """Its status."""
        found: Object = self.stored[resource, key].get("status") or {}
        return found

    def show(self, **figures: Any) -> None:
        """The engine has other figures of the first queue from now on."""
        self.queues["cq"] = replace(self.queues["cq"], **figures)
        self.reconcilers.touched(CLUSTER_QUEUES, QUEUE)

    def _store(self, resource: Resource, key: Key, obj: Object) -> bytes:
        self._version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self.stored[resource, key] = obj
        raw = orjson.dumps(obj)
        self.view(resource).on_write(raw)
        return raw

    async def _patch(
        self, resource: Resource, name: str, body: Object, *, namespace: str | None = None, **_: object
    ) -> bytes:
        await asyncio.sleep(0.05)
        if self.failures:
            raise failure(self.failures.pop(0))
        self.writes += 1
        key = Key(namespace or "", name)
        old = self.stored[resource, key]
        return self._store(resource, key, {**old, "status": {**(old.get("status") or {}), **body["status"]}})


def points_to(obj: Object) -> list[str]:
    return [obj["spec"]["clusterQueue"]] if "clusterQueue" in obj["spec"] else []


def pending_gauge(hub: Hub) -> float | None:
    labels = {"cluster_queue": "cq", "status": "active", "replica_role": "standalone"}
    return hub.metrics.registry.get_sample_value("kueue_pending_workloads", labels)


def failure(kind: type[ApiError]) -> ApiError:
    return kind(request="PATCH", status=kind.code or 0, reason="", message="as chosen", details=Details())


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    try:
        yield loop
    finally:
        loop.close()


def play(script: Script) -> None:
    """Run the controllers beside the script; no real time passes."""
    with virtual_loop() as loop:

        async def run() -> None:
            hub = Hub(loop)
            hub.reconcilers.attach()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hub.reconcilers.run)
                for controller in hub.reconcilers.controllers.values():
                    tasks.start_soon(controller.run)
                await asyncio.sleep(10.0)
                await script(hub)
                tasks.cancel_scope.cancel()

        loop.run_until_complete(run())


def test_the_last_of_many_changes_is_shown_at_rest() -> None:
    async def script(hub: Hub) -> None:
        for admitted in range(1, 61):
            hub.show(admitted=admitted, weighted_share=admitted)
            await asyncio.sleep(0.3)
        await asyncio.sleep(AT_REST - 0.3)
        status = hub.status(CLUSTER_QUEUES, QUEUE)
        assert (status["admittedWorkloads"], status["fairSharing"]) == (60, {"weightedShare": 60})

    play(script)


def test_the_event_of_a_status_that_was_written_does_not_write_the_next_one_at_once() -> None:
    async def script(hub: Hub) -> None:
        before = hub.writes
        for admitted in range(1, 601):
            hub.show(admitted=admitted)
            await asyncio.sleep(0.05)
        assert hub.writes - before <= 30, "one each 1.5 s, and one each second at the start"

    play(script)


@pytest.mark.parametrize("kind", [Conflict, TooManyRequests, InternalError], ids=lambda kind: f"after {kind.code}")
def test_the_last_state_is_written_after_a_write_that_failed(kind: type[ApiError]) -> None:
    async def script(hub: Hub) -> None:
        hub.failures = [kind, kind]
        hub.show(reserving=4)
        await asyncio.sleep(1.0)
        hub.show(reserving=4, admitted=4)
        await asyncio.sleep(AT_REST)
        assert not hub.failures
        assert hub.status(CLUSTER_QUEUES, QUEUE)["admittedWorkloads"] == 4

    play(script)


def test_a_local_queue_does_not_stay_inactive_when_its_queue_was_so_for_a_moment_only() -> None:
    async def script(hub: Hub) -> None:
        hub.local = replace(hub.local, active=False, reason=LocalQueueReason.CLUSTER_QUEUE_IS_INACTIVE)
        hub.put(LOCAL_QUEUES, LOCAL, {"clusterQueue": "cq"})
        hub.reconcilers.touched(ADMISSION_CHECKS, Key("", "mk"))
        await asyncio.sleep(0.3)
        assert hub.status(LOCAL_QUEUES, LOCAL)["conditions"][0]["status"] == "False"
        hub.local = replace(hub.local, active=True, reason=LocalQueueReason.READY)
        hub.reconcilers.touched(ADMISSION_CHECKS, Key("", "mk"))
        await asyncio.sleep(AT_REST)
        assert hub.status(LOCAL_QUEUES, LOCAL)["conditions"][0]["status"] == "True"

    play(script)


def test_the_shares_of_all_queues_of_a_tree_follow_the_quota_of_one() -> None:
    async def script(hub: Hub) -> None:
        hub.queues["other"] = replace(hub.queues["other"], weighted_share=250)
        hub.share = 125
        hub.put(CLUSTER_QUEUES, QUEUE, {"cohortName": "tree", "resourceGroups": []})
        hub.reconcilers.touched(CLUSTER_QUEUES, QUEUE)
        await asyncio.sleep(AT_REST)
        assert hub.status(CLUSTER_QUEUES, OTHER)["fairSharing"] == {"weightedShare": 250}
        assert hub.status(COHORTS, COHORT)["fairSharing"] == {"weightedShare": 125}

    play(script)


def test_figures_at_rest_are_not_written_again() -> None:
    async def script(hub: Hub) -> None:
        hub.show(admitted=4)
        await asyncio.sleep(AT_REST)
        before = hub.writes
        hub.reconcilers.touched(CLUSTER_QUEUES, QUEUE)
        await asyncio.sleep(60.0)
        assert hub.writes == before

    play(script)


def test_gauges_are_exact_while_the_status_waits_for_its_turn() -> None:
    async def script(hub: Hub) -> None:
        hub.show(pending=7)
        assert pending_gauge(hub) == 7
        assert hub.status(CLUSTER_QUEUES, QUEUE)["pendingWorkloads"] == 0

    play(script)


def test_gauges_end_with_the_leadership() -> None:
    seen: list[Hub] = []

    async def script(hub: Hub) -> None:
        seen.append(hub)
        assert pending_gauge(hub) == 0

    play(script)
    assert pending_gauge(seen[0]) is None


def test_the_series_of_workloads_end_with_their_queue() -> None:
    place = QueuePlace(cluster_queue="cq", namespace="team", local_queue="lq", by_local_queue=True)
    of_queue = {"cluster_queue": "cq"}, "kueue_admitted_workloads_total"
    of_local_queue = {"name": "lq", "namespace": "team"}, "kueue_local_queue_admitted_workloads_total"

    async def script(hub: Hub) -> None:
        for counter in hub.metrics.workloads.admitted.of(place, "", role="standalone"):
            counter.inc()

        def counted(of: tuple[dict[str, str], str]) -> float | None:
            labels = of[0] | {"priority_class": "", "replica_role": "standalone"}
            return hub.metrics.registry.get_sample_value(of[1], labels)

        for resource, key, series in ((LOCAL_QUEUES, LOCAL, of_local_queue), (CLUSTER_QUEUES, QUEUE, of_queue)):
            assert counted(series) == 1
            hub.view(resource).on_not_found(key)
            await asyncio.sleep(10.0)
            assert counted(series) is None

    play(script)
