# SPDX-License-Identifier: Apache-2.0
"""Which workloads hold quota (`docs/spec/engine.md §2.1` and §2.4).

Owns the record of each reserved workload, its usage in the tree, and the usage of local queues. A reservation that this
engine made keeps its exact time if the API returns the same one in whole seconds; places keep what they were counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import TRUE
from multikueue.core.keys import Key
from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.reserved_workloads import Reserved
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.queue.pending import effective_priority
from multikueue.engine.requests import RequestCounter, reserved_usage
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import Settings
from multikueue.engine.topology.capacity import Places, TopologyCapacity
from multikueue.engine.topology.reserved_places import as_held, reserved_places
from multikueue.engine.values import Flavor
from multikueue.engine.workloads import Workload


class Holdings:
    """What the reserved workloads of one local queue use."""

    __slots__ = ("admitted", "admitted_count", "count", "reserved")

    def __init__(self) -> None:
        self.reserved: dict[FlavorResource, int] = {}
        self.admitted: dict[FlavorResource, int] = {}
        self.count = 0
        self.admitted_count = 0

    def change(self, record: Reserved, sign: int) -> None:
        """Add or subtract a record."""
        self.count += sign
        _shift(self.reserved, record, sign)
        if record.admitted:
            self.change_admitted(record, sign)

    def change_admitted(self, record: Reserved, sign: int) -> None:
        """Add or subtract an admitted record."""
        self.admitted_count += sign
        _shift(self.admitted, record, sign)


def _shift(usage: dict[FlavorResource, int], record: Reserved, sign: int) -> None:
    for cell, amount in record.usage:
        left = usage.get(cell.key, 0) + sign * amount
        if left:
            usage[cell.key] = left
        else:
            usage.pop(cell.key, None)


class Reservations:
    """All records, by workload."""

    def __init__(
        self, settings: Settings, capacity: TopologyCapacity, flavors: Mapping[str, Flavor], counter: RequestCounter
    ) -> None:
        self._settings = settings
        self._counter = counter
        self._capacity = capacity
        self._flavors = flavors
        self.records: dict[Key, Reserved] = {}
        self.holdings: dict[Key, Holdings] = {}
        self.not_ready = 0
        self.changed: set[QuotaNode] = set()
        """The queues in which something that decisions depend on has changed; the engine empties it."""
        self._number = 0

    def assume(
        self,
        cluster_queue: CachedClusterQueue,
        workload: Workload,
        usage: Mapping[FlavorResource, int],
        places: Places,
        *,
        now: datetime,
        admitted: bool,
    ) -> Reserved:
        """Record a reservation that was just decided; the tree and the topologies already have its usage."""
        self._number += 1
        record = self._record(
            cluster_queue,
            workload,
            usage,
            places,
            reserved_at=now,
            number=self._number,
            admitted=admitted,
            assumed=True,
        )
        self._insert(cluster_queue, record)
        return record

    def observe(self, cluster_queue: CachedClusterQueue, workload: Workload, *, now: datetime) -> Reserved:
        """Record a reservation read from the API."""
        condition = workload.condition(WorkloadCondition.QUOTA_RESERVED)
        since = condition.last_transition_time if condition is not None and condition.status == TRUE else now
        usage = reserved_usage(workload, reclaimable=self._settings.gates.reclaimable_pods)
        record = self._record(
            cluster_queue,
            workload,
            usage,
            self._places(workload),
            reserved_at=since,
            number=0,
            admitted=workload.admitted,
            assumed=False,
        )
        quota.add_all(record.usage)
        self._capacity.add(record.places)
        self._insert(cluster_queue, record)
        return record

    def remove(self, cluster_queue: CachedClusterQueue, record: Reserved) -> None:
        """Remove a record and release its quota and its places."""
        quota.remove_all(record.usage)
        self._capacity.remove(record.places)
        cluster_queue.reserved.remove(record)
        cluster_queue.node.generation += 1
        self.changed.add(cluster_queue.node)
        del self.records[record.workload.key]
        holdings = self.holdings[record.local_queue]
        holdings.change(record, -1)
        if not holdings.count:
            del self.holdings[record.local_queue]
        self._count_not_ready(record, -1)

    def update(self, cluster_queue: CachedClusterQueue, record: Reserved, workload: Workload, *, now: datetime) -> bool:
        """Adopt a newer object of a reserved workload; True if it uses less or its order changed."""
        settings = self._settings
        usage = reserved_usage(workload, reclaimable=settings.gates.reclaimable_pods)
        places, before = self._places(workload), record.places_before
        if before is not None and as_held(places, before) == before:
            places = record.places  # older than the places of a second pass, which are still being written
        else:
            record.places_before = None
            if places and (not workload.pod_sets or workload.pod_sets == record.workload.pod_sets):
                places = as_held(places, record.places)
        held = {cell.key: amount for cell, amount in record.usage}
        priority = effective_priority(workload, settings)
        condition = workload.condition(WorkloadCondition.QUOTA_RESERVED)
        since = condition.last_transition_time if condition is not None else now
        same_moment = since.replace(microsecond=0) == record.reserved_at.replace(microsecond=0)
        same_queue = record.local_queue == _local_queue(workload)
        same_places = places == record.places
        if usage != held or priority != record.priority or not same_moment or not same_queue or not same_places:
            less = any(usage.get(key, 0) < amount for key, amount in held.items()) or priority != record.priority
            less = less or not same_places
            self.remove(cluster_queue, record)
            self._readd(
                cluster_queue,
                record,
                workload,
                usage,
                places,
                reserved_at=record.reserved_at if same_moment else since,
            )
            return less
        record.workload = workload
        record.assumed = False
        # An eviction that this engine decided counts until the API shows it or the reservation ends.
        self.mark_evicted(cluster_queue, record, evicted=record.evicted or workload.evicted)
        self._admit(cluster_queue, record, admitted=workload.admitted, pods_ready=_pods_ready(workload))
        return False

    def mark_evicted(self, cluster_queue: CachedClusterQueue, record: Reserved, *, evicted: bool) -> None:
        """An eviction was decided, or its write failed."""
        if record.evicted != evicted:
            cluster_queue.reserved.mark_evicted(record, evicted=evicted)
            self.changed.add(cluster_queue.node)

    def exempt(self, cluster_queue: CachedClusterQueue, record: Reserved, *, exempt: bool) -> None:
        """Exclude a workload from all searches for victims, or include it again."""
        cluster_queue.reserved.exempt(record, exempt=exempt)
        self.changed.add(cluster_queue.node)

    def _places(self, workload: Workload) -> Places:
        """Those that it would be given now."""
        if workload.admission is None or all(each.topology is None for each in workload.admission.pod_sets):
            return ()
        return reserved_places(self._counter.as_created(workload), self._flavors)

    def _readd(
        self,
        cluster_queue: CachedClusterQueue,
        old: Reserved,
        workload: Workload,
        usage: Mapping[FlavorResource, int],
        places: Places,
        *,
        reserved_at: datetime,
    ) -> None:
        number = old.since[1] if reserved_at == old.reserved_at else 0
        record = self._record(
            cluster_queue,
            workload,
            usage,
            places,
            reserved_at=reserved_at,
            number=number,
            admitted=workload.admitted,
            assumed=False,
        )
        record.evicted = record.evicted or old.evicted
        record.places_before = old.places_before
        quota.add_all(record.usage)
        self._capacity.add(record.places)
        self._insert(cluster_queue, record)

    def _record(
        self,
        cluster_queue: CachedClusterQueue,
        workload: Workload,
        usage: Mapping[FlavorResource, int],
        places: Places,
        *,
        reserved_at: datetime,
        number: int,
        admitted: bool,
        assumed: bool,
    ) -> Reserved:
        node = cluster_queue.node
        return Reserved(
            workload,
            node,
            usage=tuple((node.cell(key), amount) for key, amount in usage.items()),
            places=places,
            keys=tuple(usage),
            priority=effective_priority(workload, self._settings),
            reserved_at=reserved_at,
            number=number,
            local_queue=_local_queue(workload),
            evicted=not assumed and workload.evicted,
            admitted=admitted,
            pods_ready=not assumed and _pods_ready(workload),
            assumed=assumed,
        )

    def _insert(self, cluster_queue: CachedClusterQueue, record: Reserved) -> None:
        self.records[record.workload.key] = record
        cluster_queue.reserved.add(record)
        self.changed.add(cluster_queue.node)
        holdings = self.holdings.get(record.local_queue)
        if holdings is None:
            holdings = self.holdings[record.local_queue] = Holdings()
        holdings.change(record, 1)
        self._count_not_ready(record, 1)

    def _admit(self, cluster_queue: CachedClusterQueue, record: Reserved, *, admitted: bool, pods_ready: bool) -> None:
        if record.admitted == admitted and record.pods_ready == pods_ready:
            return
        self._count_not_ready(record, -1)
        if record.admitted != admitted:
            self.holdings[record.local_queue].change_admitted(record, 1 if admitted else -1)
            cluster_queue.reserved.mark_admitted(record, admitted=admitted)
        record.pods_ready = pods_ready
        self._count_not_ready(record, 1)
        self.changed.add(cluster_queue.node)

    def _count_not_ready(self, record: Reserved, sign: int) -> None:
        if not record.pods_ready:  # checks may be pending: Kueue counts it as admitted here
            self.not_ready += sign


def _local_queue(workload: Workload) -> Key:
    return Key(workload.key.namespace, workload.queue_name)


def _pods_ready(workload: Workload) -> bool:
    return workload.is_true(WorkloadCondition.PODS_READY)
