# SPDX-License-Identifier: Apache-2.0
"""The reconcilers of ClusterQueues, LocalQueues, Cohorts, ResourceFlavors and AdmissionChecks.

Owns their status, from the engine's figures: written when something differs, and in turn (`status_turns`) when only
figures changed; the finalizer that keeps each object while it is in use; and the gauges of queues. The content of the
status is computed by `queue_status`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
import orjson

from manager.cache.indexes import CLUSTER_QUEUE_INDEX
from manager.cache.views import View
from manager.context import ManagerContext
from manager.controllers import queue_status
from manager.controllers.queue_metrics import QueueMetrics
from manager.controllers.status_turns import COLLECT_SECONDS, StatusTurns
from manager.measured_queues import COHORTS_GATE
from manager.scheduler.engine_feed import READER
from multikueue.api.constants import RESOURCE_IN_USE_FINALIZER
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterQueueReason, LocalQueueReason
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from multikueue.core.conditions import is_true_in
from multikueue.core.keys import Key
from multikueue.core.merge_patch import merge_patch
from multikueue.engine.decisions import ClusterQueueState, LocalQueueState
from multikueue.engine.engine import Engine
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import NotFound
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.quarantine import Quarantined

_PACED: Final = (CLUSTER_QUEUES, LOCAL_QUEUES)


class QueueReconcilers:
    """One controller for each kind that the engine keeps figures of, or that a finalizer holds."""

    def __init__(self, context: ManagerContext, *, engine: Callable[[], Engine]) -> None:
        self._context = context
        self._engine = engine
        self._turns: StatusTurns[tuple[Resource, Key]] = StatusTurns()
        self._wakes_at = math.inf
        """When turns are given next; `_sooner` ends the wait for it."""
        self._sooner = anyio.Event()
        self._views = {
            resource: context.caches.view(resource)
            for resource in (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, RESOURCE_FLAVORS, TOPOLOGIES, ADMISSION_CHECKS)
        }
        self._metrics = QueueMetrics(
            self._views[CLUSTER_QUEUES],
            self._views[LOCAL_QUEUES],
            context.caches.view(WORKLOADS),
            engine=engine,
            state=self._cluster_queue_state,
            local_state=self._local_queue_state,
            by_local_queue=context.measured.measures,
            with_quota=context.configuration.metrics.enable_cluster_queue_resources,
            with_cohorts=context.configuration.gate(COHORTS_GATE),
            role=lambda: context.metrics.role,
        )
        self._attached = False
        self._shown_inactive: dict[str, set[bool]] = {}
        """Of each ClusterQueue, whether it was inactive when the statuses of its LocalQueues were made."""
        workers = context.configuration.controller.group_kind_concurrency
        self.controllers: dict[Resource, Controller[Key]] = {
            resource: Controller(
                resource.singular,
                reconcile,
                workers=workers.get(f"{resource.kind}.{resource.group}", 1),
                clock=context.clock,
                metrics=context.metrics.controllers,
                quarantine=context.caches.quarantine,
                resource=resource,
            )
            for resource, reconcile in self._reconcilers().items()
        }

    def _reconcilers(self) -> dict[Resource, Callable[[Key], Awaitable[Result | None]]]:
        return {
            CLUSTER_QUEUES: self.reconcile_cluster_queue,
            LOCAL_QUEUES: self.reconcile_local_queue,
            COHORTS: self.reconcile_cohort,
            RESOURCE_FLAVORS: self.reconcile_flavor,
            TOPOLOGIES: self.reconcile_topology,
            ADMISSION_CHECKS: self.reconcile_admission_check,
        }

    def attach(self) -> None:
        """Subscribe to the objects themselves; figures arrive through `touched`."""
        for resource, controller in self.controllers.items():
            self._context.caches.subscribe(resource, partial(self._enqueue, controller, resource))
        self._context.caches.subscribe(CLUSTER_QUEUES, self._cluster_queue_changed)
        self._context.caches.subscribe(RESOURCE_FLAVORS, self._flavor_changed)
        self._attached = True

    def _enqueue(self, controller: Controller[Key], resource: Resource, change: Change) -> None:
        """An object was created, changed or deleted; writing a status is not followed by the next write at once."""
        old, new = change.old, change.new
        if resource in _PACED and old is not None and new is not None and _same_spec(old, new):
            self._figures_changed(resource, change.key)
        else:
            controller.enqueue(change.key)

    def touched(self, resource: Resource, key: Key) -> None:
        """The figures of that object may have changed; a flavor, topology or check affects every ClusterQueue."""
        if resource in _PACED:
            self._figures_changed(resource, key)
            if resource is CLUSTER_QUEUES and self._engine().settings.fair_sharing:
                for row in self._views[COHORTS].rows():
                    self._figures_changed(COHORTS, row.key)
            return
        if resource is COHORTS:
            self.controllers[COHORTS].enqueue(key)
        if resource in (RESOURCE_FLAVORS, TOPOLOGIES, ADMISSION_CHECKS, COHORTS):
            self._touch_all_cluster_queues()

    def _figures_changed(self, resource: Resource, key: Key) -> None:
        now = self._context.clock.monotonic()
        self._turns.changed((resource, key), now=now)
        if now + self._turns.wait(now=now) < self._wakes_at:
            self._sooner.set()

    def _touch_all_cluster_queues(self) -> None:
        # More than figures may have changed, such as whether it is active.
        for row in self._views[CLUSTER_QUEUES].rows():
            self.controllers[CLUSTER_QUEUES].queue.add_after(row.key, COLLECT_SECONDS)

    def _cluster_queue_changed(self, change: Change) -> None:
        """A ClusterQueue that is created, deleted or changed may release what it names, and affects its LocalQueues."""
        if change.old is not None and change.new is not None and change.old.generation == change.new.generation:
            return
        for resource in (RESOURCE_FLAVORS, ADMISSION_CHECKS):
            self._release_again(resource)
        self._touch_local_queues(change.key.name)
        if self._attached and self._engine().settings.fair_sharing:
            # The shares of all queues of a tree follow from the quota of each.
            self._touch_all_cluster_queues()

    def _flavor_changed(self, change: Change) -> None:
        """A flavor that is deleted or changed may release its topology."""
        if change.old is not None and (change.new is None or change.old.generation != change.new.generation):
            self._release_again(TOPOLOGIES)

    def _release_again(self, resource: Resource) -> None:
        for row in self._views[resource].rows():
            if row.deleting:
                self.controllers[resource].enqueue(row.key)

    def _touch_local_queues(self, cluster_queue: str) -> None:
        for key in self._views[LOCAL_QUEUES].indexed(CLUSTER_QUEUE_INDEX, cluster_queue):
            self.controllers[LOCAL_QUEUES].enqueue(key)

    async def run(self) -> None:
        """Let the figures that changed be written in turn, and export the gauges of queues, until cancelled."""
        registry = self._context.metrics.registry
        registry.register(self._metrics)
        try:
            while True:
                now = self._context.clock.monotonic()
                for resource, key in self._turns.due(now=now):
                    self.controllers[resource].enqueue(key)
                wait = self._turns.wait(now=now)
                self._wakes_at, self._sooner = now + wait, anyio.Event()
                with anyio.move_on_after(wait):
                    await self._sooner.wait()
        finally:
            registry.unregister(self._metrics)

    def _cluster_queue_state(self, key: Key) -> ClusterQueueState:
        """The engine's figures; those of a ClusterQueue that it cannot read say why that is inactive."""
        state = self._engine().cluster_queue_state(key.name)
        unusable = self._unusable(CLUSTER_QUEUES, key)
        if unusable is None:
            return state
        message = f"Can't admit new workloads: the ClusterQueue cannot be used: {unusable.message}"
        return replace(state, active=False, reason=ClusterQueueReason.UNKNOWN, message=message)

    def _local_queue_state(self, key: Key) -> LocalQueueState | None:
        if self._unusable(LOCAL_QUEUES, key) is not None:
            return None
        try:
            return self._engine().local_queue_state(key)
        except KeyError:
            return None

    def _unusable(self, resource: Resource, key: Key) -> Quarantined | None:
        return self._context.caches.quarantine.get(READER, resource, key)

    async def reconcile_cluster_queue(self, key: Key) -> Result | None:
        """Status, metrics and finalizer of one ClusterQueue."""
        queue = self._views[CLUSTER_QUEUES].object(key)
        if queue is None:
            self._turns.forget((CLUSTER_QUEUES, key))
            self._shown_inactive.pop(key.name, None)
            self._context.metrics.workloads.forget_cluster_queue(key.name)
            return None
        state = self._cluster_queue_state(key)
        was_active = _active(queue)
        wanted = queue_status.cluster_queue_status(queue, state, now=self._context.clock.now())
        # It may have been inactive for less than the pause between two writes; a LocalQueue may still show that.
        if was_active is not state.active or state.active in self._shown_inactive.get(key.name, ()):
            self._shown_inactive.pop(key.name, None)
            self._touch_local_queues(key.name)
        await self._write_status(CLUSTER_QUEUES, queue, wanted)

        async def reserved() -> bool:
            return state.reserving > 0

        await self._hold(CLUSTER_QUEUES, key, used=reserved)
        return None

    async def reconcile_local_queue(self, key: Key) -> Result | None:
        """Status of one LocalQueue."""
        queue = self._views[LOCAL_QUEUES].object(key)
        if queue is None or self._unusable(LOCAL_QUEUES, key) is not None:
            self._turns.forget((LOCAL_QUEUES, key))
            if queue is None:
                self._context.metrics.workloads.forget_local_queue(key.namespace, key.name)
            return None
        state = self._engine().local_queue_state(key)
        name: str = queue["spec"].get("clusterQueue") or ""
        cluster_queue = self._views[CLUSTER_QUEUES].object(Key("", name))
        if cluster_queue is not None:
            inactive = state.reason is LocalQueueReason.CLUSTER_QUEUE_IS_INACTIVE
            self._shown_inactive.setdefault(name, set()).add(inactive)
        wanted = queue_status.local_queue_status(queue, cluster_queue, state, now=self._context.clock.now())
        await self._write_status(LOCAL_QUEUES, queue, wanted)
        return None

    async def reconcile_cohort(self, key: Key) -> Result | None:
        """Status of one Cohort."""
        cohort = self._views[COHORTS].object(key)
        if cohort is None:
            self._turns.forget((COHORTS, key))
            self._context.metrics.workloads.forget_cohort(key.name)
            return None
        try:
            state = self._engine().cohort_state(key.name)
        except KeyError:
            return None  # it cannot be read; an event reports that
        wanted = queue_status.cohort_status(cohort, state, now=self._context.clock.now())
        await self._write_status(COHORTS, cohort, wanted)
        return None

    async def reconcile_flavor(self, key: Key) -> Result | None:
        """The finalizer of one ResourceFlavor: it stays while a ClusterQueue names it."""
        await self._hold(RESOURCE_FLAVORS, key, used=lambda: self._named(CLUSTER_QUEUES, _flavor_names, key.name))
        return None

    async def reconcile_topology(self, key: Key) -> Result | None:
        """The finalizer of one Topology: it stays while a ResourceFlavor names it."""
        await self._hold(TOPOLOGIES, key, used=lambda: self._named(RESOURCE_FLAVORS, _topology_names, key.name))
        return None

    async def reconcile_admission_check(self, key: Key) -> Result | None:
        """The finalizer of one AdmissionCheck: it stays while a ClusterQueue names it."""
        await self._hold(ADMISSION_CHECKS, key, used=lambda: self._named(CLUSTER_QUEUES, _check_names, key.name))
        return None

    async def _named(self, by: Resource, names: Callable[[JsonObject], set[str]], wanted: str) -> bool:
        """Whether an object of that kind names it."""
        if any(wanted in names(each) for each in self._views[by].objects()):
            return True
        # A released object is gone for good: one that is not in the cache yet must not lose what it names.
        page = await self._context.client.list_all(by)
        return any(wanted in names(orjson.loads(raw)) for raw in page.items)

    async def _write_status(self, resource: Resource, obj: JsonObject, wanted: JsonObject) -> None:
        patch = merge_patch(obj.get("status") or {}, wanted)
        metadata = obj["metadata"]
        figures = (resource, Key(metadata.get("namespace", ""), metadata["name"]))
        if not patch:
            self._turns.unchanged(figures)
            return
        clock = self._context.clock
        began = clock.monotonic()
        try:
            answer = await self._context.client.patch(
                resource,
                metadata["name"],
                {"status": patch},
                namespace=metadata.get("namespace"),
                subresource="status",
                # Conditions are a list and are sent whole: one that another writer has added since must not be lost.
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self._views[resource].on_write(answer)
        now = clock.monotonic()
        self._turns.wrote(figures, now=now, seconds=now - began)

    async def _hold(self, resource: Resource, key: Key, *, used: Callable[[], Awaitable[bool]]) -> None:
        """Add the finalizer if the object lacks it; remove it if the object is being deleted and not in use."""
        view: View = self._views[resource]
        obj = view.object(key)
        if obj is None:
            return
        metadata = obj["metadata"]
        finalizers: list[str] = list(metadata.get("finalizers") or ())
        held, deleting = RESOURCE_IN_USE_FINALIZER in finalizers, "deletionTimestamp" in metadata
        if not deleting and not held:
            finalizers.append(RESOURCE_IN_USE_FINALIZER)
        elif deleting and held and not await used():
            finalizers.remove(RESOURCE_IN_USE_FINALIZER)
        else:
            return
        try:
            answer = await self._context.client.patch(
                resource,
                key.name,
                {"metadata": {"finalizers": finalizers}},
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        if not deleting:
            view.on_write(answer)


def _same_spec(old: Row, new: Row) -> bool:
    return (old.generation, old.deleting) == (new.generation, new.deleting)


def _active(queue: JsonObject) -> bool:
    return is_true_in(queue.get("status"), "Active")


def _topology_names(flavor: JsonObject) -> set[str]:
    return {str((flavor.get("spec") or {}).get("topologyName") or "")}


def _flavor_names(queue: JsonObject) -> set[str]:
    return {flavor for flavor, _ in queue_status.flavor_resources(queue)}


def _check_names(queue: JsonObject) -> set[str]:
    strategy: JsonObject = (queue.get("spec") or {}).get("admissionChecksStrategy") or {}
    return {entry["name"] for entry in strategy.get("admissionChecks") or ()}
