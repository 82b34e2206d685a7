# SPDX-License-Identifier: Apache-2.0
"""The objects that cycles read, and the effects of their changes.

Owns the events: each is applied at once, starts the flush windows of the trees that it affects (`docs/spec/engine.md
§1.7`), and moves workloads between waiting and holding quota (§7.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import datetime
from heapq import heappop, heappush

from multikueue.api.constants import AdmissionMode
from multikueue.core.keys import Key
from multikueue.engine import states
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.counted_objects import CountedObjects
from multikueue.engine.cache.offered import OfferedQuota
from multikueue.engine.cache.referenced_objects import ReferencedObjects
from multikueue.engine.cache.replaced_slices import ReplacedSlices
from multikueue.engine.cache.reservations import Reservations
from multikueue.engine.cache.reserved_workloads import Reserved
from multikueue.engine.cache.tree import Forest, QuotaNode
from multikueue.engine.cache.withheld import WithheldQuota
from multikueue.engine.queue.flushes import FlushRequests
from multikueue.engine.queue.second_pass import SecondPassQueue
from multikueue.engine.queue.usage_order import UsageOrder
from multikueue.engine.queue.waiting import WaitingWorkloads
from multikueue.engine.requests import RequestCounter
from multikueue.engine.resources import Requests
from multikueue.engine.settings import Settings
from multikueue.engine.topology.capacity import Node, TopologyCapacity
from multikueue.engine.values import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    Flavor,
    LocalQueue,
    Namespace,
    TopologyLevels,
)
from multikueue.engine.workloads import Workload


class Cache(CountedObjects):
    """All state that cycles read."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.forest = Forest()
        self.cluster_queues: dict[str, CachedClusterQueue] = {}
        self.referenced = ReferencedObjects()
        counter, capacity = RequestCounter(settings), TopologyCapacity()
        super().__init__(
            counter,
            capacity=capacity,
            reservations=Reservations(settings, capacity, self.referenced.flavors, counter),
            waiting=WaitingWorkloads(
                settings=settings, referenced=self.referenced, counter=counter, cluster_queue=self.cluster_queue
            ),
            flushes=FlushRequests(
                window_seconds=settings.flush_window_seconds,
                gather_seconds=settings.flush_gather_seconds,
                early_seconds=settings.flush_early_seconds,
                heads_of=self._heads_after_flush,
            ),
        )
        self.second_pass = SecondPassQueue()
        self.workloads: dict[Key, Workload] = {}
        """Those that have not finished."""
        self.finished: set[Key] = set()
        """Most of a large hub: only that they are there is kept."""
        self.replaced_slices = ReplacedSlices(self.reservations.records, self.workloads)
        self.cohorts: dict[str, Cohort] = {}
        self.withheld = WithheldQuota()
        self.offered = OfferedQuota()
        self._exemptions: list[tuple[datetime, Key]] = []
        sharing = settings.admission_fair_sharing
        enabled = sharing is not None and settings.gates.admission_fair_sharing
        self.usage_order = UsageOrder(sharing) if sharing is not None and enabled else None

    def cluster_queue(self, name: str) -> CachedClusterQueue:
        """The cached queue of that name; created on first use, before its object exists."""
        cluster_queue = self.cluster_queues.get(name)
        if cluster_queue is None:
            cluster_queue = self.cluster_queues[name] = CachedClusterQueue(name, self.forest.queue(name))
        return cluster_queue

    # Queues and cohorts.

    def upsert_cluster_queue(self, value: ClusterQueue, now: datetime) -> None:
        """A ClusterQueue was created or changed."""
        cluster_queue = self.cluster_queue(value.name)
        if cluster_queue.value == value:
            return
        self.configured += 1
        former = cluster_queue.value
        if former is None or (former.cohort, former.resource_groups, former.weight) != (
            value.cohort,
            value.resource_groups,
            value.weight,
        ):
            self._forget_freed()
            self.forest.set_queue(value.name, cohort=value.cohort, groups=value.resource_groups, weight=value.weight)
        cluster_queue.resolve(value)
        usage_based = value.admission_mode == AdmissionMode.USAGE_BASED
        order = self.usage_order
        cluster_queue.queue.configure(
            strategy=value.strategy,
            usage_of=order.usage if order is not None and usage_based else None,
            is_pending=self.waiting.pending.__contains__,
        )
        self.referenced.forget_selections()
        self.flushes.request(cluster_queue.node, now)
        self._review([cluster_queue], now)

    def delete_cluster_queue(self, name: str, now: datetime) -> None:
        """A ClusterQueue was deleted; workloads that wait or hold quota in it stay."""
        cluster_queue = self.cluster_queues.get(name)
        if cluster_queue is None or cluster_queue.value is None:
            return
        self.configured += 1
        self._forget_freed()
        self.forest.set_queue(name, cohort="", groups=(), weight=1.0)
        cluster_queue.resolve(None)
        cluster_queue.active = False
        self.referenced.forget_selections()
        self._forget_unused(cluster_queue)

    def upsert_cohort(self, value: Cohort, now: datetime) -> None:
        """A Cohort was created or changed."""
        if self.cohorts.get(value.name) == value:
            return
        self.configured += 1
        self.cohorts[value.name] = value
        self._forget_freed()
        self.forest.set_cohort(value.name, parent=value.parent, groups=value.resource_groups, weight=value.weight)
        self.flushes.request(self.forest.cohorts[value.name], now)

    def delete_cohort(self, name: str, now: datetime) -> None:
        """A Cohort object was deleted; queues may still name it."""
        if self.cohorts.pop(name, None) is None:
            return
        self.configured += 1
        self._forget_freed()
        self.forest.remove_cohort(name)
        if name in self.forest.cohorts:
            self.flushes.request(self.forest.cohorts[name], now)

    def moved_cohorts(self) -> frozenset[str]:
        """The Cohort objects that were cut off from their tree or rejoined it since the last call."""
        moved, self.forest.moved = self.forest.moved, set()
        return frozenset(moved & self.cohorts.keys())

    def upsert_local_queue(self, value: LocalQueue, now: datetime) -> None:
        """A LocalQueue was created or changed."""
        if self.usage_order is not None:
            self.usage_order.of(value.key).weight = value.weight
            if self.usage_order.resume(value.key, value.consumed, value.sampled_at):
                self.configured += 1
        if self.waiting.local_queues.get(value.key) == value:
            return
        self.configured += 1
        self.waiting.set_local_queue(value, now)

    def delete_local_queue(self, key: Key, now: datetime) -> None:
        """A LocalQueue was deleted."""
        self.configured += 1
        if self.usage_order is not None:
            self.usage_order.forget(key)
        self.waiting.remove_local_queue(key, now)

    # Objects that queues refer to.

    def upsert_flavor(self, value: Flavor, now: datetime) -> None:
        """A ResourceFlavor was created or changed."""
        if self.referenced.flavors.get(value.name) == value:
            return
        self.configured += 1
        existed = value.name in self.referenced.flavors
        self.referenced.set_flavor(value.name, value)
        self.capacity.forget_leaves()
        users = self._users_of({value.name})
        if existed:
            self._request(users, now)
        self._review(users, now)

    def delete_flavor(self, name: str, now: datetime) -> None:
        """A ResourceFlavor was deleted."""
        self.configured += 1
        self.referenced.set_flavor(name, None)
        self.capacity.forget_leaves()
        self._review(self._users_of({name}), now)

    def upsert_topology(self, value: TopologyLevels, now: datetime) -> None:
        """A Topology was created or changed."""
        known = self.referenced.topologies.get(value.name)
        if known == value:
            return
        self.configured += 1
        self.referenced.topologies[value.name] = value
        self.capacity.forget_leaves()
        users = self._users_of_topology(value.name)
        if known is not None:
            self._request(users, now)
        self._review(users, now)

    def delete_topology(self, name: str, now: datetime) -> None:
        """A Topology was deleted."""
        self.configured += 1
        self.referenced.topologies.pop(name, None)
        self.capacity.forget_leaves()
        self._review(self._users_of_topology(name), now)

    def set_node(self, name: str, value: Node | None, now: datetime) -> bool:
        """A Node was created or changed, or is gone; whether that changes any place."""
        changed = self.capacity.set_node(name, value)
        if changed:
            self._topologies_changed(now)
        return changed

    def pod_bound(self, pod: Key, node: str, requests: Requests, now: datetime) -> bool:
        """A pod that no topology has placed uses a node; whether that frees a place, since it was larger before."""
        return self._set_pod(pod, node, requests, now)

    def pod_unbound(self, pod: Key, now: datetime) -> bool:
        """It has ended, or was deleted; whether that frees a place."""
        return self._set_pod(pod, "", None, now)

    def upsert_admission_check(self, value: AdmissionCheck, now: datetime) -> None:
        """An AdmissionCheck was created or changed."""
        if self.referenced.checks.get(value.name) == value:
            return
        self.configured += 1
        self.referenced.checks[value.name] = value
        self._review(self._users_of_check(value.name), now)

    def delete_admission_check(self, name: str, now: datetime) -> None:
        """An AdmissionCheck was deleted."""
        self.configured += 1
        self.referenced.checks.pop(name, None)
        self._review(self._users_of_check(name), now)

    def upsert_namespace(self, value: Namespace, now: datetime) -> None:
        """A Namespace was created or its labels changed."""
        if self.referenced.namespaces.get(value.name) == value:
            return
        self.configured += 1
        if not any(cluster_queue.queue.flushable for cluster_queue in self.cluster_queues.values()):
            # As at the start: no queue holds anything that a flush could move, however many queues there are.
            self.referenced.set_namespace(value.name, value)
            return
        matched = {
            name
            for name, cluster_queue in self.cluster_queues.items()
            if self.referenced.selects(cluster_queue, value.name)
        }
        self.referenced.set_namespace(value.name, value)
        self._request(
            (
                cluster_queue
                for name, cluster_queue in self.cluster_queues.items()
                if name not in matched and self.referenced.selects(cluster_queue, value.name)
            ),
            now,
        )

    def delete_namespace(self, name: str, now: datetime) -> None:
        """A Namespace was deleted."""
        self.configured += 1
        self.referenced.set_namespace(name, None)

    # Workloads.

    def upsert_workload(self, value: Workload, now: datetime) -> None:
        """A Workload was created or changed; its status decides whether it waits or holds quota."""
        record = self.reservations.records.get(value.key)
        waits = not value.reserved and value.active and not value.deleting and not value.finished
        if record is not None and record.assumed and waits:
            # Older than the reservation, which is still being written.
            return
        if value.finished:
            self.finish_workload(value.key, now)
            return
        self.workloads[value.key] = value
        self.claimants.set(value)
        self.finished.discard(value.key)
        self.second_pass.offer(value, now)
        if value.reserved and value.admission is not None:
            self.waiting.withdraw(value.key)
            if value.replaces and self.settings.gates.elastic_jobs:
                self._take_over(value, now)
            if not self.replaced_slices.has(value):
                self._hold(self.cluster_queue(value.admission.cluster_queue), record, value, now)
            return
        if record is not None:
            self._release(record, now)
        self.replaced_slices.end(value.key)
        if not value.active:
            self.waiting.withdraw(value.key)
        else:
            self.waiting.offer(value, now)

    def finish_workload(self, key: Key, now: datetime) -> None:
        """A Workload has finished; the rest of it is not needed."""
        record = self.reservations.records.get(key)
        if record is not None and not record.workload.evicted:
            self.cluster_queues[record.node.name].note_end((now - record.reserved_at).total_seconds())
        self.delete_workload(key, now)
        self.finished.add(key)

    def delete_workload(self, key: Key, now: datetime) -> None:
        """A Workload was deleted."""
        self.workloads.pop(key, None)
        self.claimants.remove(key)
        self.finished.discard(key)
        self.second_pass.forget(key)
        record = self.reservations.records.get(key)
        if record is not None:
            self._release(record, now)
            self._withhold(record)
        self.replaced_slices.end(key)
        self.waiting.withdraw(key)

    def eviction_failed(self, key: Key, now: datetime, *, exempt_until: datetime | None = None) -> None:
        """An eviction could not be written: the victim keeps running and may be chosen again.

        With `exempt_until`, preemptors look for other victims until then. A change of the workload's reservation ends
        the exemption earlier.
        """
        record = self.reservations.records.get(key)
        # While a reservation is being written, the object may still show that the workload was evicted before.
        if record is None or (record.workload.evicted and not record.assumed):
            return
        cluster_queue = self.cluster_queues[record.node.name]
        self.reservations.mark_evicted(cluster_queue, record, evicted=False)
        if exempt_until is None:
            # Others were decided about without it: it may be their victim, and its new slice may take its quota over.
            self.flushes.request(cluster_queue.node, now)
        else:
            self.reservations.exempt(cluster_queue, record, exempt=True)
            heappush(self._exemptions, (exempt_until, key))
        if record.places:
            # Its preemptor kept these and others for itself, from all trees, and may need none of them any more.
            self._topologies_changed(now)

    @property
    def next_exemption_end(self) -> datetime | None:
        """When the next victim whose eviction was rejected may be chosen again."""
        return self._exemptions[0][0] if self._exemptions else None

    def _end_exemptions(self, now: datetime) -> None:
        """Let exempted victims be chosen again, and flush the trees in which they hold quota."""
        while self._exemptions and self._exemptions[0][0] <= now:
            _, key = heappop(self._exemptions)
            record = self.reservations.records.get(key)
            if record is not None and record.exempt:
                cluster_queue = self.cluster_queues[record.node.name]
                self.reservations.exempt(cluster_queue, record, exempt=False)
                self.flushes.request(cluster_queue.node, now)

    def _heads_after_flush(self, root: QuotaNode) -> int:
        """At least one for each queue: of equal workloads one is evaluated, and kept apart from the others."""
        queues = (self.cluster_queues[node.name].queue for node in root.all_queues())
        return sum(max(1, len(queue.inadmissible)) for queue in queues)

    def _hold(self, cluster_queue: CachedClusterQueue, record: Reserved | None, value: Workload, now: datetime) -> None:
        if record is not None and record.node is not cluster_queue.node:
            self._free(record, now)
            record = None
        self.claimants.find_admitted(value, self.counter.holds_claims)
        if record is None:
            self.reservations.observe(cluster_queue, value, now=now)
        elif self.reservations.update(cluster_queue, record, value, now=now):
            self.flushes.request(cluster_queue.node, now)
            if self.reservations.records[value.key].places != record.places:
                self._topologies_changed(now)
        # Whether it counted as admitted before says nothing: without checks it does from the cycle on.
        if self.usage_order is not None and value.admitted:
            local_queue = Key(value.key.namespace, value.queue_name)
            if self.usage_order.settle_penalty(local_queue, value.key):
                self.reservations.changed.add(cluster_queue.node)

    def _release(self, record: Reserved, now: datetime) -> None:
        """Free the quota of a reservation; the slice that it replaced holds its own again if the API still says so."""
        self._free(record, now)
        for key in self.replaced_slices.restored_by(record.workload.key):
            older = self.workloads.get(key) if key not in self.reservations.records else None
            if older is not None and older.reserved and older.admission is not None:
                self._hold(self.cluster_queue(older.admission.cluster_queue), None, older, now)

    def _free(self, record: Reserved, now: datetime) -> None:
        """Free the quota of a reservation that ends, or that another takes the place of."""
        cluster_queue = self.cluster_queues[record.node.name]
        self.reservations.remove(cluster_queue, record)
        self.claimants.release(record.workload.key)
        if self.usage_order is not None:
            self.usage_order.remove_penalty(record.local_queue, record.workload.key)
        self.flushes.request(cluster_queue.node, now)
        if record.places:
            self._topologies_changed(now)
        self._forget_unused(cluster_queue)

    def _withhold(self, record: Reserved) -> None:
        """Keep what an ended workload used for the next flush of its tree, if workloads wait for that.

        What a victim used is free at once: its preemptor is a head.
        """
        node = record.node
        if not self.withheld.enabled or record.evicted or node.cut_off or not node.exists:
            return
        queues = [self.cluster_queues[queue.name].queue for queue in node.root().all_queues()]
        if any(queue.has_inadmissible for queue in queues):
            run = self.cluster_queues[node.name].mean_run
            self.withheld.add(node, record.usage, mean_run=run if run is not None else 0.0)
        elif any(queue.head() is not None for queue in queues):
            self.withheld.offer(node.root())

    def _forget_freed(self) -> None:
        """The trees are others now: what was freed is free for all."""
        self.withheld.clear()
        self.offered.clear()

    def _take_over(self, value: Workload, now: datetime) -> None:
        """The API shows the reservation of a slice: the slice that it replaces holds no quota from now on."""
        key = value.replaced_key
        if key == value.key or key in self.finished:
            return
        self.replaced_slices.add(key, value.key)
        record = self.reservations.records.get(key)
        if record is not None and record.workload.job_uid == value.job_uid:
            self._free(record, now)

    # Effects.

    def _review(self, concerned: Iterable[CachedClusterQueue], now: datetime) -> None:
        """Recompute which queues are active; flush the trees of those that became active."""
        for cluster_queue in concerned:
            if cluster_queue.value is None:
                continue
            active = states.activity(cluster_queue.value, self.referenced).active
            if active and not cluster_queue.active:
                self.flushes.request(cluster_queue.node, now)
                self.waiting.ready.add(cluster_queue.name)
            cluster_queue.active = active

    def _topologies_changed(self, now: datetime) -> None:
        """Places may be free that queues of any tree wait for."""
        self.configured += 1
        flavors = {flavor.name for flavor in self.referenced.flavors.values() if flavor.topology}
        self._request(self._users_of(flavors), now)

    def _set_pod(self, pod: Key, node: str, requests: Requests | None, now: datetime) -> bool:
        freed = self.capacity.set_pod(pod, node, requests)
        if freed:
            self._topologies_changed(now)
        return freed

    def _users_of_topology(self, name: str) -> list[CachedClusterQueue]:
        return self._users_of({flavor.name for flavor in self.referenced.flavors.values() if flavor.topology == name})

    def _users_of(self, flavors: Set[str]) -> list[CachedClusterQueue]:
        return [cached for cached in self.cluster_queues.values() if not flavors.isdisjoint(cached.flavors)]

    def _users_of_check(self, name: str) -> list[CachedClusterQueue]:
        queues = self.cluster_queues.values()
        return [each for each in queues if each.value and any(rule.name == name for rule in each.value.checks)]

    def _forget_unused(self, cluster_queue: CachedClusterQueue) -> None:
        if not cluster_queue.in_use:
            self.cluster_queues.pop(cluster_queue.name, None)
            self.forest.remove_queue(cluster_queue.name)
            self.waiting.ready.discard(cluster_queue.name)
