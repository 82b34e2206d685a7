# SPDX-License-Identifier: Apache-2.0
"""The reconcilers of ClusterQueues, LocalQueues, Cohorts, ResourceFlavors and AdmissionChecks.

Owns their status, as the engine's figures say, written at most once a second for each, less often while it changes all
the time, and only when something differs; and the finalizer that keeps each of them while it is in use. What the status
shows is `queue_status`'.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import orjson

from manager.caches import CLUSTER_QUEUE_INDEX
from manager.context import ManagerContext
from manager.reconcilers import queue_status
from manager.reconcilers.pace import Pace
from manager.views import View
from multikueue.api.constants import RESOURCE_IN_USE_FINALIZER
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    Resource,
)
from multikueue.core.keys import Key
from multikueue.engine.decisions import ClusterQueueState
from multikueue.engine.engine import Engine
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import NotFound
from multikueue.kube.informer import Change
from multikueue.kube.patch import merge_diff

UPDATE_SECONDS: Final = 1.0
"""Figures change with every admission; nobody reads them faster than this."""
LONGEST_SECONDS: Final = 4.0
"""A busy queue's figures are stale as soon as they are written, and a write costs as much as one of a Job's."""


class QueueReconcilers:
    """One controller for each of the kinds that the engine keeps figures of, or that are held by a finalizer."""

    def __init__(self, context: ManagerContext, *, engine: Callable[[], Engine]) -> None:
        self._context = context
        self._engine = engine
        self._pace: Pace[tuple[Resource, Key]] = Pace(
            shortest=UPDATE_SECONDS, longest=LONGEST_SECONDS, clock=context.clock
        )
        self._views = {
            resource: context.caches.view(resource)
            for resource in (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, RESOURCE_FLAVORS, ADMISSION_CHECKS)
        }
        workers = context.configuration.controller.group_kind_concurrency
        self.controllers: dict[Resource, Controller[Key]] = {
            resource: Controller(
                resource.singular,
                reconcile,
                workers=workers.get(f"{resource.kind}.{resource.group}", 1),
                clock=context.clock,
                metrics=context.metrics.controllers,
            )
            for resource, reconcile in self._reconcilers().items()
        }

    def _reconcilers(self) -> dict[Resource, Callable[[Key], Awaitable[Result | None]]]:
        return {
            CLUSTER_QUEUES: self.reconcile_cluster_queue,
            LOCAL_QUEUES: self.reconcile_local_queue,
            COHORTS: self.reconcile_cohort,
            RESOURCE_FLAVORS: self.reconcile_flavor,
            ADMISSION_CHECKS: self.reconcile_admission_check,
        }

    def attach(self) -> None:
        """Follow the objects themselves; figures come through `touched`."""
        for resource, controller in self.controllers.items():
            self._context.caches.subscribe(resource, partial(_enqueue, controller))
        self._context.caches.subscribe(CLUSTER_QUEUES, self._cluster_queue_changed)

    def touched(self, resource: Resource, key: Key) -> None:
        """The engine may say something else about that object by now; of a flavor or check, about any queue."""
        if resource in (CLUSTER_QUEUES, LOCAL_QUEUES):
            self.controllers[resource].queue.add_after(key, self._pace.pause((resource, key)))
            if resource is CLUSTER_QUEUES and self._engine().settings.fair_sharing:
                self._touch_all(COHORTS)
            return
        if resource in (RESOURCE_FLAVORS, ADMISSION_CHECKS, COHORTS):
            self._touch_all(CLUSTER_QUEUES)

    def _touch_all(self, resource: Resource) -> None:
        for row in self._views[resource].rows():
            self.controllers[resource].queue.add_after(row.key, self._pace.pause((resource, row.key)))

    def _cluster_queue_changed(self, change: Change) -> None:
        """A ClusterQueue that comes, goes or changes may free what it names, and changes what its queues show."""
        if change.old is not None and change.new is not None and change.old.generation == change.new.generation:
            return
        for resource in (RESOURCE_FLAVORS, ADMISSION_CHECKS):
            for row in self._views[resource].rows():
                if row.deleting:
                    self.controllers[resource].enqueue(row.key)
        self._touch_local_queues(change.key.name)

    def _touch_local_queues(self, cluster_queue: str) -> None:
        for key in self._views[LOCAL_QUEUES].indexed(CLUSTER_QUEUE_INDEX, cluster_queue):
            self.controllers[LOCAL_QUEUES].enqueue(key)

    async def reconcile_cluster_queue(self, key: Key) -> Result | None:
        """Status, metrics and finalizer of one ClusterQueue."""
        queue = self._views[CLUSTER_QUEUES].object(key)
        if queue is None:
            self._pace.forget((CLUSTER_QUEUES, key))
            return None
        state = self._engine().cluster_queue_state(key.name)
        self._measure(queue, state)
        was_active = _active(queue)
        wanted = queue_status.cluster_queue_status(queue, state, now=self._context.clock.now())
        await self._write_status(CLUSTER_QUEUES, queue, wanted)
        if was_active is not state.active:
            self._touch_local_queues(key.name)

        async def reserved() -> bool:
            return state.reserving > 0

        await self._hold(CLUSTER_QUEUES, key, used=reserved)
        return None

    async def reconcile_local_queue(self, key: Key) -> Result | None:
        """Status of one LocalQueue."""
        queue = self._views[LOCAL_QUEUES].object(key)
        if queue is None:
            self._pace.forget((LOCAL_QUEUES, key))
            return None
        state = self._engine().local_queue_state(key)
        cluster_queue = self._views[CLUSTER_QUEUES].object(Key("", queue["spec"].get("clusterQueue") or ""))
        wanted = queue_status.local_queue_status(queue, cluster_queue, state, now=self._context.clock.now())
        await self._write_status(LOCAL_QUEUES, queue, wanted)
        metrics = self._context.metrics
        labels = (key.name, key.namespace, metrics.role)
        metrics.local_reserving.labels(*labels).set(state.reserving)
        metrics.local_admitted_active.labels(*labels).set(state.admitted)
        metrics.local_pending.labels(key.name, key.namespace, "active", metrics.role).set(state.pending)
        for value in ("True", "False"):
            shown = state.active is (value == "True")
            metrics.local_queue_status.labels(key.name, key.namespace, value, metrics.role).set(shown)
        return None

    async def reconcile_cohort(self, key: Key) -> Result | None:
        """Status of one Cohort."""
        cohort = self._views[COHORTS].object(key)
        if cohort is None:
            self._pace.forget((COHORTS, key))
            return None
        wanted = queue_status.cohort_status(cohort, self._engine().cohort_state(key.name))
        await self._write_status(COHORTS, cohort, wanted)
        return None

    async def reconcile_flavor(self, key: Key) -> Result | None:
        """The finalizer of one ResourceFlavor: it stays while a ClusterQueue names it."""
        await self._hold(RESOURCE_FLAVORS, key, used=lambda: self._named_by_queues(_flavor_names, key.name))
        return None

    async def reconcile_admission_check(self, key: Key) -> Result | None:
        """The finalizer of one AdmissionCheck: it stays while a ClusterQueue names it."""
        await self._hold(ADMISSION_CHECKS, key, used=lambda: self._named_by_queues(_check_names, key.name))
        return None

    async def _named_by_queues(self, names: Callable[[JsonObject], set[str]], wanted: str) -> bool:
        if any(wanted in names(queue) for queue in self._views[CLUSTER_QUEUES].objects()):
            return True
        # What is let go is gone for good: a queue that the cache has not heard of yet must not lose what it names.
        page = await self._context.client.list_all(CLUSTER_QUEUES)
        return any(wanted in names(orjson.loads(raw)) for raw in page.items)

    async def _write_status(self, resource: Resource, obj: JsonObject, wanted: JsonObject) -> None:
        patch = merge_diff(obj.get("status") or {}, wanted)
        if patch is None:
            return
        metadata = obj["metadata"]
        try:
            answer = await self._context.client.patch(
                resource,
                metadata["name"],
                {"status": patch},
                namespace=metadata.get("namespace"),
                subresource="status",
                # Conditions are a list and are sent whole: one that somebody else added since must not be lost.
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self._views[resource].observe(answer)
        self._pace.wrote((resource, Key(metadata.get("namespace", ""), metadata["name"])))

    async def _hold(self, resource: Resource, key: Key, *, used: Callable[[], Awaitable[bool]]) -> None:
        """Add the finalizer to what lives and lacks it; take it from what is being deleted and is not used."""
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
            view.observe(answer)

    def _measure(self, queue: JsonObject, state: ClusterQueueState) -> None:
        metrics = self._context.metrics
        name = state.name
        metrics.pending.labels(name, "active", metrics.role).set(state.pending - state.inadmissible)
        metrics.pending.labels(name, "inadmissible", metrics.role).set(state.inadmissible)
        metrics.reserving.labels(name, metrics.role).set(state.reserving)
        metrics.admitted_active.labels(name, metrics.role).set(state.admitted)
        terminating = "deletionTimestamp" in queue["metadata"]
        shown = "terminating" if terminating else "active" if state.active else "pending"
        for status in ("pending", "active", "terminating"):
            metrics.cluster_queue_status.labels(name, status, metrics.role).set(status == shown)


def _enqueue(controller: Controller[Key], change: Change) -> None:
    controller.enqueue(change.key)


def _active(queue: JsonObject) -> bool:
    entries = (queue.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Active" and entry["status"] == "True" for entry in entries)


def _flavor_names(queue: JsonObject) -> set[str]:
    return {flavor for flavor, _ in queue_status.flavor_resources(queue)}


def _check_names(queue: JsonObject) -> set[str]:
    strategy: JsonObject = (queue.get("spec") or {}).get("admissionChecksStrategy") or {}
    return {entry["name"] for entry in strategy.get("admissionChecks") or ()}
