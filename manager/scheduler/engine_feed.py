# SPDX-License-Identifier: Apache-2.0
"""Keeps the engine equal to the caches, object by object, and replaces an engine that failed.

Owns the one `Engine` of the process and the order in which kinds are fed. An object that cannot be read is quarantined
for the reader `scheduler`: queues and flavors count as absent, and so does a Workload, unless it holds quota, which
is still counted. An engine that failed in the middle of a cycle or a change is replaced by a new one, fed from the
caches without the object at which it failed; that object is retried when it changes, and after growing pauses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import anyio.lowlevel

from manager.cache.ended_workloads import has_finished
from manager.context import ManagerContext
from manager.scheduler.cycle_cost import CycleCost
from manager.topology.objects import TopologyObjects, host_of, workload_of
from manager.workload.assigned_hosts import hosts_of
from multikueue.api.constants import POD_SET_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    DEVICE_CLASSES,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from multikueue.core.backoff import Backoff
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.engine import decode
from multikueue.engine.decisions import Cycle
from multikueue.engine.engine import Engine
from multikueue.engine.settings import Settings
from multikueue.kube.cache.subscribers import Change
from multikueue.kube.rest import watch

_log = logging.getLogger(__name__)

READER: Final = "scheduler"
"""The name under which objects are quarantined that the engine cannot use."""

_BATCH: Final = 50  # objects fed in one turn of the event loop: some 20 ms
_MOST_HEADS: Final = 50  # evaluated in a cycle, and the rest of the last tree; 0.6 ms each on a slow machine
_UNDECIDABLE: Final = Backoff(base=60.0, factor=2.0, cap=3600.0)


class Undecidable(MultikueueError):
    """The engine failed at one object; the cause is a bug."""

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(f"the scheduler failed at this {kind} and ignores it until it changes: {cause}")


@dataclass(frozen=True, slots=True)
class _Held:
    """An object at which the engine failed."""

    uid: str
    generation: int
    cause: str
    until: float
    attempts: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one kind is read, and which changes of the engine follow."""

    resource: Resource
    read: Callable[[JsonObject], Any]
    upsert: Callable[[Any, datetime], None]
    delete: Callable[[Key, datetime], None]


class EngineFeed:
    """The engine, and what keeps it up to date with the caches."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        settings: Settings,
        changed: Callable[[Resource, Key, JsonObject | None], None],
        topology: TopologyObjects | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called after each change with the object as it is; None for one that is gone or finished.

        `wake` is called when a node changes, or pods leave one. Without `topology` no workload is placed.
        """
        self._context = context
        self._clock = context.clock
        self._settings = settings
        self._topology = topology
        self._changed = changed
        self._wake = wake
        self._shapes = decode.Shapes()
        self._held: dict[tuple[Resource, Key], _Held] = {}
        self._kinds = self._make_kinds()
        self._workloads = self._kinds[-1]
        self._cost = CycleCost()
        self.engine = self._new_engine()
        self.broken = False
        """Whether the engine failed in the middle of a change: `rebuild` must run before the next cycle."""

    def _new_engine(self) -> Engine:
        engine = Engine(self._settings)
        engine.defer_admissions()
        engine.allow_early_flushes(self._cost.heads_per_second)
        return engine

    def cycle(self, now: datetime, *, repeat: bool) -> Cycle:
        """One cycle of the engine; what it costs decides how soon freed quota is offered again.

        A cycle holds the event loop, so that it evaluates the heads of some trees only where there are many queues.
        """
        began = self._clock.monotonic()
        cycle = self.engine.cycle(now, repeat=repeat, most_heads=_MOST_HEADS)
        self._cost.add(seconds=self._clock.monotonic() - began, heads=len(cycle.decisions))
        self.engine.allow_early_flushes(self._cost.heads_per_second)
        return cycle

    async def attach(self) -> None:
        """Feed the engine from the caches and subscribe to changes; Workloads come last.

        Ten thousand Workloads take seconds, in which the lease of the leader has to be renewed.
        """
        for kind in self._kinds:
            if kind is self._workloads:
                continue  # their places are on nodes
            await self._context.caches.replay(kind.resource, partial(self._feed, kind), reader=READER)
        if self._topology is not None:
            await self._topology.prepare()
            self._topology.nodes.add_handler(self._node_changed)
        await self._context.caches.replay(WORKLOADS, partial(self._feed, self._workloads), reader=READER)
        if self._topology is not None:
            self._topology.pods.add_handler(self._pod_changed)

    async def rebuild(self) -> None:
        """Replace the engine by one that is fed from the caches; no write of a decision may be in flight."""
        self.engine = self._new_engine()
        self.broken = False
        for kind in self._kinds:
            view = self._context.caches.view(kind.resource)
            for number, key in enumerate(view.keys(), 1):
                self._feed_again(kind, key)
                if number % _BATCH == 0:
                    await anyio.lowlevel.checkpoint()
        if self._topology is not None:
            for row in self._topology.nodes.store.list():
                self._node_changed(Change(watch.ADDED, row.key, None, row))
            for row in self._topology.pods.store.list():
                self._pod_changed(Change(watch.ADDED, row.key, None, row))

    def _node_changed(self, change: Change) -> None:
        value = None
        try:
            value = None if change.new is None else decode.node(change.new.object())
        finally:
            if self.engine.set_node(change.key.name, value, self._clock.now()):
                self._wake()

    def _pod_changed(self, change: Change) -> None:
        """What a pod uses of its node, unless its Workload has the place."""
        now, pod = self._clock.now(), None if change.new is None else change.new.object()
        node = "" if pod is None else str(pod["spec"].get("nodeName") or "")
        if pod is None or not node or self._has_place(pod):
            if self.engine.pod_unbound(change.key, now):
                self._wake()
        elif self.engine.pod_bound(change.key, node, decode.pod_requests(pod, self._shapes), now):
            self._wake()

    def _has_place(self, pod: JsonObject) -> bool:
        """Whether its Workload has been given places, and the host of the pod among them."""
        key = workload_of(pod)
        workload = None if key is None else self._context.caches.view(WORKLOADS).object(key)
        if workload is None:
            return False
        name = (pod["metadata"].get("labels") or {}).get(POD_SET_LABEL)
        admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
        assigned = [each for each in admission.get("podSetAssignments") or () if each.get("name") == name]
        if not any(each.get("topologyAssignment") for each in assigned):
            return False
        hosts = hosts_of({"podSetAssignments": assigned})
        return not hosts or self._host(pod["spec"]["nodeName"]) in hosts

    def _host(self, node: str) -> str:
        found = None if self._topology is None else self._topology.nodes.store.object(Key("", node))
        return node if found is None else host_of(found)

    def fail(self, error: Exception) -> None:
        """The engine has failed: keep the Workload out of it that it was deciding about. Raises `error` without one."""
        self.broken = True
        deciding = self.engine.deciding
        if deciding is None:
            raise error
        _log.error("engine failed in a cycle workload=%s", deciding, exc_info=error)
        self.hold(WORKLOADS, deciding, error)

    def hold(self, resource: Resource, key: Key, cause: Exception) -> None:
        """Keep an object at which the engine failed out of it until the object changes or a growing pause is over."""
        self.broken = True
        row = self._context.caches.view(resource).get(key)
        if row is None:
            return
        before = self._held.get((resource, key))
        attempts = 1 if before is None or before.uid != row.uid else before.attempts + 1
        until = self._clock.monotonic() + _UNDECIDABLE.delay(attempts)
        self._held[resource, key] = _Held(row.uid, row.generation, f"{type(cause).__name__}: {cause}", until, attempts)

    def refresh(self, workload: Key) -> None:
        """Feed a Workload again as it is now."""
        self._feed_again(self._workloads, workload)

    def _feed_again(self, kind: _Kind, key: Key) -> None:
        view = self._context.caches.view(kind.resource)
        row = view.get(key)
        if row is not None:
            view.call(READER, partial(self._feed, kind), Change(watch.ADDED, key, None, row))

    def _feed(self, kind: _Kind, change: Change) -> None:
        now = self._clock.now()
        if change.new is None:
            self._held.pop((kind.resource, change.key), None)
            self._change(kind, change.key, lambda: kind.delete(change.key, now))
            self._changed(kind.resource, change.key, None)
            return
        if kind is self._workloads and has_finished(self._context.caches.view(WORKLOADS), change.key):
            # Most of a large hub: it is not even parsed, and counts nowhere.
            self._held.pop((kind.resource, change.key), None)
            self._change(kind, change.key, lambda: self.engine.finish_workload(change.key, now))
            self._changed(kind.resource, change.key, None)
            return
        obj: JsonObject | None = None
        try:
            obj = self._context.caches.view(kind.resource).parse(change.new)
            self._refuse_held(kind, change)
            value = kind.read(obj)
            self._change(kind, change.key, lambda: kind.upsert(value, now))
        except Exception:
            self._change(kind, change.key, lambda: self._remove(kind, change.key, obj, now))
            raise
        finally:
            self._changed(kind.resource, change.key, obj)

    def _change(self, kind: _Kind, key: Key, change: Callable[[], None]) -> None:
        """Change the engine; a failure halfway leaves it inconsistent, and it is rebuilt without the object."""
        try:
            change()
        except Exception as error:
            self.hold(kind.resource, key, error)
            raise

    def _remove(self, kind: _Kind, key: Key, obj: JsonObject | None, now: datetime) -> None:
        """Remove the object: half a queue must admit nothing; but quota that a Workload holds must not be released."""
        held = decode.held_quota(obj) if kind.resource is WORKLOADS and obj is not None else None
        if held is None:
            kind.delete(key, now)
        else:
            self.engine.upsert_workload(held, now)

    def _refuse_held(self, kind: _Kind, change: Change) -> None:
        entry = self._held.get((kind.resource, change.key))
        row = change.row
        if entry is None:
            return
        if (entry.uid, entry.generation) != (row.uid, row.generation):
            del self._held[kind.resource, change.key]
        elif self._clock.monotonic() < entry.until:
            raise Undecidable(kind.resource.kind, entry.cause)

    def _make_kinds(self) -> tuple[_Kind, ...]:
        """Every kind that decides admission, in the order in which they are fed."""
        return (
            _Kind(
                NAMESPACES,
                decode.namespace,
                lambda value, now: self.engine.upsert_namespace(value, now),
                lambda key, now: self.engine.delete_namespace(key.name, now),
            ),
            _Kind(
                LIMIT_RANGES,
                decode.limit_range,
                lambda value, now: self.engine.upsert_limit_range(value, now),
                lambda key, now: self.engine.delete_limit_range(key, now),
            ),
            _Kind(
                RUNTIME_CLASSES,
                decode.runtime_class,
                lambda value, now: self.engine.upsert_runtime_class(value, now),
                lambda key, now: self.engine.delete_runtime_class(key.name, now),
            ),
            _Kind(
                DEVICE_CLASSES,
                decode.device_class,
                lambda value, now: self.engine.upsert_device_class(value, now),
                lambda key, now: self.engine.delete_device_class(key.name, now),
            ),
            _Kind(
                RESOURCE_CLAIM_TEMPLATES,
                decode.claim_template,
                lambda value, now: self.engine.upsert_claim_template(value, now),
                lambda key, now: self.engine.delete_claim_template(key, now),
            ),
            _Kind(
                TOPOLOGIES,
                decode.topology,
                lambda value, now: self.engine.upsert_topology(value, now),
                lambda key, now: self.engine.delete_topology(key.name, now),
            ),
            _Kind(
                RESOURCE_FLAVORS,
                decode.flavor,
                lambda value, now: self.engine.upsert_flavor(value, now),
                lambda key, now: self.engine.delete_flavor(key.name, now),
            ),
            _Kind(
                ADMISSION_CHECKS,
                decode.admission_check,
                lambda value, now: self.engine.upsert_admission_check(value, now),
                lambda key, now: self.engine.delete_admission_check(key.name, now),
            ),
            _Kind(
                COHORTS,
                decode.cohort,
                lambda value, now: self.engine.upsert_cohort(value, now),
                lambda key, now: self.engine.delete_cohort(key.name, now),
            ),
            _Kind(
                CLUSTER_QUEUES,
                decode.cluster_queue,
                lambda value, now: self.engine.upsert_cluster_queue(value, now),
                lambda key, now: self.engine.delete_cluster_queue(key.name, now),
            ),
            _Kind(
                LOCAL_QUEUES,
                decode.local_queue,
                lambda value, now: self.engine.upsert_local_queue(value, now),
                lambda key, now: self.engine.delete_local_queue(key, now),
            ),
            _Kind(
                WORKLOADS,
                lambda obj: decode.workload(obj, self._shapes),
                lambda value, now: self.engine.upsert_workload(value, now),
                lambda key, now: self.engine.delete_workload(key, now),
            ),
        )
