# SPDX-License-Identifier: Apache-2.0
"""The world around the cycles: what exists, and what its changes set in motion.

Owns the events: each is taken in at once, starts the flush windows of the trees that it concerns
(`docs/spec/engine.md §1.7`), and moves workloads between waiting and holding quota (§7.11).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from multikueue.api.constants import AdmissionMode
from multikueue.core.keys import Key
from multikueue.engine import states
from multikueue.engine.flushes import FlushRequests
from multikueue.engine.knowledge import Knowledge
from multikueue.engine.live import LiveQueue
from multikueue.engine.requests import RequestCounter
from multikueue.engine.reservations import Reservations
from multikueue.engine.second_pass import SecondPassQueue
from multikueue.engine.settings import Settings
from multikueue.engine.standing import Reserved
from multikueue.engine.topology import Topology
from multikueue.engine.tree import Forest
from multikueue.engine.usage_order import UsageOrder
from multikueue.engine.values import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    Flavor,
    LimitRange,
    LocalQueue,
    Namespace,
    RuntimeClass,
)
from multikueue.engine.waiting import Waiting
from multikueue.engine.workloads import Workload


class World:
    """Everything that cycles look at."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.forest = Forest()
        self.lives: dict[str, LiveQueue] = {}
        self.knowledge = Knowledge()
        self.counter = RequestCounter(settings)
        self.reservations = Reservations(settings)
        self.waiting = Waiting(settings=settings, knowledge=self.knowledge, counter=self.counter, live=self.live)
        self.flushes = FlushRequests(
            window_seconds=settings.flush_window_seconds, gather_seconds=settings.flush_gather_seconds
        )
        self.second_pass = SecondPassQueue()
        self.active: dict[str, bool] = {}
        self.workloads: dict[Key, Workload] = {}
        self.cohorts: dict[str, Cohort] = {}
        sharing = settings.admission_fair_sharing
        enabled = sharing is not None and settings.gates.admission_fair_sharing
        self.usage_order = UsageOrder(sharing) if sharing is not None and enabled else None

    def live(self, name: str) -> LiveQueue:
        """The state of a queue, from its first mention on."""
        live = self.lives.get(name)
        if live is None:
            live = self.lives[name] = LiveQueue(name, self.forest.queue(name))
        return live

    # Queues and cohorts.

    def upsert_cluster_queue(self, value: ClusterQueue, now: datetime) -> None:
        """A ClusterQueue came or changed."""
        live = self.live(value.name)
        if live.value == value:
            return
        former = live.value
        if former is None or (former.cohort, former.resource_groups, former.weight) != (
            value.cohort,
            value.resource_groups,
            value.weight,
        ):
            self.forest.set_queue(value.name, cohort=value.cohort, groups=value.resource_groups, weight=value.weight)
        live.resolve(value)
        live.queue.strategy = value.strategy
        usage_based = value.admission_mode == AdmissionMode.USAGE_BASED
        order = self.usage_order
        live.queue.usage_of = order.usage if order is not None and usage_based else None
        self.knowledge.forget_selections()
        self.flushes.request(live.node, now)
        self._review([live], now)

    def delete_cluster_queue(self, name: str, now: datetime) -> None:
        """A ClusterQueue is gone; what waits or runs in it stays where it is."""
        live = self.lives.get(name)
        if live is None or live.value is None:
            return
        self.forest.set_queue(name, cohort="", groups=(), weight=1.0)
        live.resolve(None)
        self.active.pop(name, None)
        self.knowledge.forget_selections()
        self._forget_unused(live)

    def upsert_cohort(self, value: Cohort, now: datetime) -> None:
        """A Cohort came or changed."""
        if self.cohorts.get(value.name) == value:
            return
        self.cohorts[value.name] = value
        self.forest.set_cohort(value.name, parent=value.parent, groups=value.resource_groups, weight=value.weight)
        self.flushes.request(self.forest.cohorts[value.name], now)

    def delete_cohort(self, name: str, now: datetime) -> None:
        """A Cohort object is gone; queues may still name it."""
        if self.cohorts.pop(name, None) is None:
            return
        self.forest.remove_cohort(name)
        if name in self.forest.cohorts:
            self.flushes.request(self.forest.cohorts[name], now)

    def upsert_local_queue(self, value: LocalQueue, now: datetime) -> None:
        """A LocalQueue came or changed."""
        if self.usage_order is not None:
            self.usage_order.of(value.key).weight = value.weight
            self.usage_order.resume(value.key, value.consumed, value.sampled_at)
        former = self.waiting.local_queues.get(value.key)
        if former == value:
            return
        self.waiting.set_local_queue(value, now)

    def delete_local_queue(self, key: Key, now: datetime) -> None:
        """A LocalQueue is gone."""
        if self.usage_order is not None:
            self.usage_order.forget(key)
        self.waiting.remove_local_queue(key, now)

    # What queues refer to.

    def upsert_flavor(self, value: Flavor, now: datetime) -> None:
        """A ResourceFlavor came or changed."""
        if self.knowledge.flavors.get(value.name) == value:
            return
        existed = value.name in self.knowledge.flavors
        self.knowledge.set_flavor(value.name, value)
        users = [live for live in self.lives.values() if value.name in live.flavors]
        if existed:
            self._request(users, now)
        self._review(users, now)

    def delete_flavor(self, name: str, now: datetime) -> None:
        """A ResourceFlavor is gone."""
        self.knowledge.set_flavor(name, None)
        self._review([live for live in self.lives.values() if name in live.flavors], now)

    def upsert_topology(self, value: Topology, now: datetime) -> None:
        """A Topology came or changed."""
        self.knowledge.topologies[value.name] = value
        self._review(self.lives.values(), now)

    def delete_topology(self, name: str, now: datetime) -> None:
        """A Topology is gone."""
        self.knowledge.topologies.pop(name, None)
        self._review(self.lives.values(), now)

    def upsert_admission_check(self, value: AdmissionCheck, now: datetime) -> None:
        """An AdmissionCheck came or changed."""
        self.knowledge.checks[value.name] = value
        self._review(self._users_of_check(value.name), now)

    def delete_admission_check(self, name: str, now: datetime) -> None:
        """An AdmissionCheck is gone."""
        self.knowledge.checks.pop(name, None)
        self._review(self._users_of_check(name), now)

    def upsert_namespace(self, value: Namespace, now: datetime) -> None:
        """A Namespace came or its labels changed."""
        if self.knowledge.namespaces.get(value.name) == value:
            return
        if not any(live.queue.remembers for live in self.lives.values()):
            # As at the start: nothing is parked that could be taken back, however many queues there are.
            self.knowledge.set_namespace(value.name, value)
            return
        matched = {name for name, live in self.lives.items() if self.knowledge.selects(live, value.name)}
        self.knowledge.set_namespace(value.name, value)
        self._request(
            (
                live
                for name, live in self.lives.items()
                if name not in matched and self.knowledge.selects(live, value.name)
            ),
            now,
        )

    def delete_namespace(self, name: str, now: datetime) -> None:
        """A Namespace is gone."""
        self.knowledge.set_namespace(name, None)

    def upsert_limit_range(self, value: LimitRange, now: datetime) -> None:
        """A LimitRange came or changed."""
        self._limit(value.key, value, now)

    def delete_limit_range(self, key: Key, now: datetime) -> None:
        """A LimitRange is gone."""
        self._limit(key, None, now)

    def upsert_runtime_class(self, value: RuntimeClass, now: datetime) -> None:
        """A RuntimeClass came or changed."""
        self._runtime_class(value.name, value, now)

    def delete_runtime_class(self, name: str, now: datetime) -> None:
        """A RuntimeClass is gone."""
        self._runtime_class(name, None, now)

    # Workloads.

    def upsert_workload(self, value: Workload, now: datetime) -> None:
        """A Workload came or changed; its state decides where it belongs."""
        record = self.reservations.records.get(value.key)
        if record is not None and record.assumed and not value.reserved and value.active and not value.finished:
            # An object from before the reservation, whose writing is not over.
            return
        self.workloads[value.key] = value
        self.second_pass.offer(value, now)
        if value.reserved and value.admission is not None:
            self.waiting.withdraw(value.key)
            self._hold(self.live(value.admission.cluster_queue), record, value, now)
            return
        if record is not None:
            self._release(record, now)
        if value.finished or not value.active:
            self.waiting.withdraw(value.key)
        else:
            self.waiting.offer(value, now)

    def delete_workload(self, key: Key, now: datetime) -> None:
        """A Workload is gone."""
        self.workloads.pop(key, None)
        self.second_pass.forget(key)
        record = self.reservations.records.get(key)
        if record is not None:
            self._release(record, now)
        self.waiting.withdraw(key)

    def eviction_failed(self, key: Key, now: datetime) -> None:
        """A victim could not be told to go: it is as it was, and may be chosen again."""
        record = self.reservations.records.get(key)
        if record is not None and not record.workload.evicted:
            self.reservations.mark_evicted(self.lives[record.node.name], record, evicted=False)

    def _hold(self, live: LiveQueue, record: Reserved | None, value: Workload, now: datetime) -> None:
        if record is not None and record.node is not live.node:
            self._release(record, now)
            record = None
        was_admitted = record is not None and record.admitted
        if record is None:
            self.reservations.observe(live, value, now=now)
        elif self.reservations.update(live, record, value, now=now):
            self.flushes.request(live.node, now)
        if self.usage_order is not None and value.admitted and not was_admitted:
            self.usage_order.settle(Key(value.key.namespace, value.queue_name), value.key)

    def _release(self, record: Reserved, now: datetime) -> None:
        """Quota comes free."""
        live = self.lives[record.node.name]
        self.reservations.remove(live, record)
        if self.usage_order is not None:
            self.usage_order.absolve(record.local_queue, record.workload.key)
        self.flushes.request(live.node, now)
        self._forget_unused(live)

    # Consequences.

    def _review(self, concerned: Iterable[LiveQueue], now: datetime) -> None:
        """See which queues are active now; those that became so have their trees flushed."""
        for live in concerned:
            if live.value is None:
                continue
            active = states.activity(live.value, self.knowledge).active
            if active and not self.active.get(live.name, False):
                self.flushes.request(live.node, now)
                self.waiting.ready.add(live.name)
            self.active[live.name] = active

    def _request(self, concerned: Iterable[LiveQueue], now: datetime) -> None:
        for live in concerned:
            self.flushes.request(live.node, now)

    def _users_of_check(self, name: str) -> list[LiveQueue]:
        return [
            live
            for live in self.lives.values()
            if live.value is not None and any(rule.name == name for rule in live.value.checks)
        ]

    def _limit(self, key: Key, value: LimitRange | None, now: datetime) -> None:
        self.counter.set_limit_range(key.namespace, key.name, value)
        self.waiting.recount(lambda workload: workload.key.namespace == key.namespace, now)

    def _runtime_class(self, name: str, value: RuntimeClass | None, now: datetime) -> None:
        self.counter.set_runtime_class(name, value)
        self.waiting.recount(
            lambda workload: any(pod_set.shape.runtime_class == name for pod_set in workload.pod_sets), now
        )

    def _forget_unused(self, live: LiveQueue) -> None:
        if not live.in_use:
            self.lives.pop(live.name, None)
            self.forest.remove_queue(live.name)
            self.waiting.ready.discard(live.name)
