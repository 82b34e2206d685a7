# SPDX-License-Identifier: Apache-2.0
"""Who holds quota (`docs/spec/engine.md §2.1` and §2.4).

Owns the usage cache: the record of each reserved workload, its usage in the tree, and what local queues hold. A record
that this engine made keeps its exact moment when the API gives the same one back in whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import TRUE
from multikueue.core.keys import Key
from multikueue.engine import quota
from multikueue.engine.live import LiveQueue
from multikueue.engine.pending import effective_priority
from multikueue.engine.requests import reserved_usage
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import Settings
from multikueue.engine.standing import Reserved
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
        """Count a record in or out."""
        self.count += sign
        _shift(self.reserved, record, sign)
        if record.admitted:
            self.change_admitted(record, sign)

    def change_admitted(self, record: Reserved, sign: int) -> None:
        """Count a record in or out of the admitted."""
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

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.records: dict[Key, Reserved] = {}
        self.holdings: dict[Key, Holdings] = {}
        self.not_ready = 0
        self._number = 0

    def assume(
        self, live: LiveQueue, workload: Workload, usage: Mapping[FlavorResource, int], *, now: datetime, admitted: bool
    ) -> Reserved:
        """Record a reservation that was just decided. The tree has its usage already."""
        self._number += 1
        record = self._record(
            live, workload, usage, reserved_at=now, number=self._number, admitted=admitted, assumed=True
        )
        self._insert(live, record)
        return record

    def observe(self, live: LiveQueue, workload: Workload, *, now: datetime) -> Reserved:
        """Record a reservation that the API tells of."""
        condition = workload.condition(WorkloadCondition.QUOTA_RESERVED)
        since = condition.last_transition_time if condition is not None and condition.status == TRUE else now
        usage = reserved_usage(workload, reclaimable=self._settings.gates.reclaimable_pods)
        record = self._record(
            live, workload, usage, reserved_at=since, number=0, admitted=workload.admitted, assumed=False
        )
        quota.take_all(record.usage)
        self._insert(live, record)
        return record

    def remove(self, live: LiveQueue, record: Reserved) -> None:
        """Give the quota of a record back."""
        quota.give_all(record.usage)
        live.standing.remove(record)
        live.node.generation += 1
        del self.records[record.workload.key]
        holdings = self.holdings[record.local_queue]
        holdings.change(record, -1)
        if not holdings.count:
            del self.holdings[record.local_queue]
        self._count_not_ready(record, -1)

    def update(self, live: LiveQueue, record: Reserved, workload: Workload, *, now: datetime) -> bool:
        """Take over a newer object of a reserved workload; whether it uses less, or ranks otherwise."""
        settings = self._settings
        usage = reserved_usage(workload, reclaimable=settings.gates.reclaimable_pods)
        held = {cell.key: amount for cell, amount in record.usage}
        priority = effective_priority(workload, settings)
        condition = workload.condition(WorkloadCondition.QUOTA_RESERVED)
        since = condition.last_transition_time if condition is not None else now
        same_moment = since.replace(microsecond=0) == record.reserved_at.replace(microsecond=0)
        same_queue = record.local_queue == _local_queue(workload)
        if usage != held or priority != record.priority or not same_moment or not same_queue:
            less = any(usage.get(key, 0) < amount for key, amount in held.items()) or priority != record.priority
            self.remove(live, record)
            self._readd(live, record, workload, usage, reserved_at=record.reserved_at if same_moment else since)
            return less
        record.workload = workload
        record.assumed = False
        # An eviction that this engine decided stays in force until the API shows it, or the reservation ends.
        live.standing.mark_evicted(record, evicted=record.evicted or workload.evicted)
        self._admit(live, record, admitted=workload.admitted, pods_ready=_pods_ready(workload))
        return False

    def mark_evicted(self, live: LiveQueue, record: Reserved, *, evicted: bool) -> None:
        """An eviction was decided, or its writing failed."""
        live.standing.mark_evicted(record, evicted=evicted)

    def _readd(
        self,
        live: LiveQueue,
        old: Reserved,
        workload: Workload,
        usage: Mapping[FlavorResource, int],
        *,
        reserved_at: datetime,
    ) -> None:
        number = old.since[1] if reserved_at == old.reserved_at else 0
        record = self._record(
            live, workload, usage, reserved_at=reserved_at, number=number, admitted=workload.admitted, assumed=False
        )
        record.evicted = record.evicted or old.evicted
        quota.take_all(record.usage)
        self._insert(live, record)

    def _record(
        self,
        live: LiveQueue,
        workload: Workload,
        usage: Mapping[FlavorResource, int],
        *,
        reserved_at: datetime,
        number: int,
        admitted: bool,
        assumed: bool,
    ) -> Reserved:
        node = live.node
        return Reserved(
            workload,
            node,
            usage=tuple((node.cell(key), amount) for key, amount in usage.items()),
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

    def _insert(self, live: LiveQueue, record: Reserved) -> None:
        self.records[record.workload.key] = record
        live.standing.add(record)
        holdings = self.holdings.get(record.local_queue)
        if holdings is None:
            holdings = self.holdings[record.local_queue] = Holdings()
        holdings.change(record, 1)
        self._count_not_ready(record, 1)

    def _admit(self, live: LiveQueue, record: Reserved, *, admitted: bool, pods_ready: bool) -> None:
        if record.admitted == admitted and record.pods_ready == pods_ready:
            return
        self._count_not_ready(record, -1)
        if record.admitted != admitted:
            self.holdings[record.local_queue].change_admitted(record, 1 if admitted else -1)
            live.standing.mark_admitted(record, admitted=admitted)
        record.pods_ready = pods_ready
        self._count_not_ready(record, 1)

    def _count_not_ready(self, record: Reserved, sign: int) -> None:
        if record.admitted and not record.pods_ready:
            self.not_ready += sign


def _local_queue(workload: Workload) -> Key:
    return Key(workload.key.namespace, workload.queue_name)


def _pods_ready(workload: Workload) -> bool:
    return workload.is_true(WorkloadCondition.PODS_READY)
