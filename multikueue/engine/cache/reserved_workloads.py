# SPDX-License-Identifier: Apache-2.0
"""Reserved workloads of one queue, in the order in which they would be preempted.

Owns the per-queue index of preemption candidates: for each flavor resource and priority a run ordered by reservation
time, so that a preemptor reads only as many candidates as it needs, and the total that it could free without reading
any. The order is that of `docs/spec/engine.md §4.2` within one queue, except rule 3.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from heapq import merge
from operator import itemgetter
from typing import Final, NamedTuple

from multikueue.core.keys import Key
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.resources import FlavorResource
from multikueue.engine.topology.capacity import Places
from multikueue.engine.workloads import Workload

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_DEAD: Final = 32
_MANY_RUNS: Final = 64


def microseconds(moment: datetime) -> int:
    """A time as a whole number, exact to the microsecond."""
    delta = moment - _EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


class Reserved:
    """One workload that holds quota.

    `usage` are the cells that it takes from, `places` those of topologies, `keys` all flavor resources that it is
    assigned. `places_before` are those that the API shows while others are being written, else None. `since` orders
    records of one priority: the reservation time and, within one moment, the number of the reservation.
    """

    __slots__ = (
        "admitted",
        "assumed",
        "candidate",
        "evicted",
        "exempt",
        "keys",
        "local_queue",
        "node",
        "places",
        "places_before",
        "pods_ready",
        "priority",
        "reserved_at",
        "since",
        "slots",
        "uid",
        "usage",
        "workload",
    )

    def __init__(
        self,
        workload: Workload,
        node: QuotaNode,
        *,
        usage: tuple[tuple[Cell, int], ...],
        places: Places,
        keys: tuple[FlavorResource, ...],
        priority: int,
        reserved_at: datetime,
        number: int,
        local_queue: Key,
        evicted: bool,
        admitted: bool,
        pods_ready: bool,
        assumed: bool,
    ) -> None:
        self.workload = workload
        self.node = node
        self.uid = workload.uid
        self.usage = usage
        self.places = places
        self.places_before: Places | None = None
        self.keys = keys
        self.priority = priority
        self.reserved_at = reserved_at
        self.since = (microseconds(reserved_at), number)
        self.local_queue = local_queue
        self.evicted = evicted
        self.admitted = admitted
        self.pods_ready = pods_ready
        self.assumed = assumed
        self.exempt = False
        self.slots: list[tuple[PriorityRun, Slot]] = []
        moment, order = self.since
        # Created once: a search may read thousands of them.
        self.candidate = Candidate(priority, (-moment, -order), workload.uid, id(self), self)

    def __repr__(self) -> str:
        return f"Reserved({self.workload.key})"


class Slot(NamedTuple):
    """A position in a run; `number` is unique, so that comparisons never reach the record."""

    since: tuple[int, int]
    uid: str
    number: int
    record: Reserved


class Candidate(NamedTuple):
    """A record with its position in the order of §4.2; the lowest is preempted first."""

    priority: int
    newest_first: tuple[int, int]
    uid: str
    number: int
    record: Reserved


class PriorityRun:
    """Records of one priority, oldest first. Removal leaves a gap, closed when gaps outnumber records."""

    __slots__ = ("amount", "count", "dead", "slots")

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.dead: set[int] = set()
        self.amount = 0
        self.count = 0

    def add(self, slot: Slot) -> None:
        """Insert; appending is the common case, since reservations arrive in order of time."""
        self.count += 1
        if self.slots and slot < self.slots[-1]:
            insort(self.slots, slot)
        else:
            self.slots.append(slot)

    def remove(self, slot: Slot) -> None:
        """Remove one slot."""
        self.count -= 1
        self.dead.add(slot.number)
        if len(self.dead) > _MIN_DEAD and len(self.dead) * 2 > len(self.slots):
            dead = self.dead
            self.slots = [kept for kept in self.slots if kept.number not in dead]
            self.dead = set()

    def newest_first(self) -> Iterator[Reserved]:
        """Records, latest reservation first; among those of one moment, smallest uid first."""
        slots, dead = self.slots, self.dead
        position = len(slots)
        while position:
            since = slots[position - 1].since
            if position > 1 and slots[position - 2].since == since:
                start = bisect_left(slots, since, hi=position, key=itemgetter(0))
            else:
                start = position - 1
            for slot in slots[start:position]:
                if slot.number not in dead:
                    yield slot.record
            position = start


Runs = list[tuple[int, PriorityRun]]


class Candidates:
    """All records of one queue that are assigned one flavor resource, by eviction and priority."""

    __slots__ = ("evicted", "running")

    def __init__(self) -> None:
        self.running: Runs = []
        self.evicted: Runs = []

    def run(self, record: Reserved) -> PriorityRun:
        """The run that a record currently belongs to."""
        runs = self.evicted if record.evicted else self.running
        position = bisect_left(runs, record.priority, key=itemgetter(0))
        if position < len(runs) and runs[position][0] == record.priority:
            return runs[position][1]
        # Empty runs are kept for a while, since their priority is likely to come back.
        if len(runs) > _MANY_RUNS:
            runs[:] = [item for item in runs if item[1].count]
            position = bisect_left(runs, record.priority, key=itemgetter(0))
        run = PriorityRun()
        runs.insert(position, (record.priority, run))
        return run


class ReservedWorkloads:
    """The reserved workloads of one queue."""

    __slots__ = ("_numbers", "admitted", "admitted_count", "by_key", "records")

    def __init__(self) -> None:
        self.records: dict[Key, Reserved] = {}
        self.by_key: dict[FlavorResource, Candidates] = {}
        self.admitted: dict[FlavorResource, int] = {}
        self.admitted_count = 0
        self._numbers = 0

    def add(self, record: Reserved) -> None:
        """Index a record. Its usage in the tree is the caller's."""
        self.records[record.workload.key] = record
        self._index(record)
        if record.admitted:
            self._count_admitted(record, 1)

    def remove(self, record: Reserved) -> None:
        """Remove a record."""
        del self.records[record.workload.key]
        self._unindex(record)
        # They refer to each other; without this only a full garbage collection would free them.
        del record.candidate
        if record.admitted:
            self._count_admitted(record, -1)

    def mark_evicted(self, record: Reserved, *, evicted: bool) -> None:
        """Move a record to the evicted ones, which are preempted first, or back."""
        if record.evicted != evicted:
            self._unindex(record)
            record.evicted = evicted
            record.exempt = record.exempt and not evicted
            self._index(record)

    def exempt(self, record: Reserved, *, exempt: bool) -> None:
        """Exclude a record from all searches for victims, or include it again."""
        if record.exempt != exempt:
            self._unindex(record)
            record.exempt = exempt
            self._index(record)

    def mark_admitted(self, record: Reserved, *, admitted: bool) -> None:
        """Count a record as admitted, or not."""
        if record.admitted != admitted:
            record.admitted = admitted
            self._count_admitted(record, 1 if admitted else -1)

    def _index(self, record: Reserved) -> None:
        if record.exempt:
            return
        self._numbers += 1
        slot = Slot(record.since, record.uid, self._numbers, record)
        amounts = {cell.key: amount for cell, amount in record.usage}
        for key in record.keys:
            candidates = self.by_key.get(key)
            if candidates is None:
                candidates = self.by_key[key] = Candidates()
            run = candidates.run(record)
            run.add(slot)
            run.amount += amounts.get(key, 0)
            record.slots.append((run, slot))

    def _unindex(self, record: Reserved) -> None:
        if record.exempt:
            return
        amounts = {cell.key: amount for cell, amount in record.usage}
        for key, (run, slot) in zip(record.keys, record.slots, strict=True):
            run.remove(slot)
            run.amount -= amounts.get(key, 0)
        record.slots = []

    def _count_admitted(self, record: Reserved, sign: int) -> None:
        self.admitted_count += sign
        for cell, amount in record.usage:
            left = self.admitted.get(cell.key, 0) + sign * amount
            if left:
                self.admitted[cell.key] = left
            else:
                self.admitted.pop(cell.key, None)

    def candidates(
        self,
        keys: tuple[FlavorResource, ...],
        *,
        evicted: bool,
        below: int | None,
        extra: Callable[[Reserved], bool] | None = None,
    ) -> Iterator[Candidate]:
        """Records assigned one of `keys`, in order, with a priority below `below`.

        With `extra`, records of priority `below` for which it is true are included.
        """
        indexes = [self.by_key[key] for key in keys if key in self.by_key]
        if not indexes:
            return iter(())
        if len(indexes) == 1:
            return _ordered(indexes[0], evicted=evicted, below=below, extra=extra)
        streams = [_ordered(index, evicted=evicted, below=below, extra=extra) for index in indexes]
        return _distinct(merge(*streams))

    def has(self, keys: tuple[FlavorResource, ...], *, evicted: bool, below: int | None) -> bool:
        """Whether `candidates` would yield anything."""
        for key in keys:
            index = self.by_key.get(key)
            if index is None:
                continue
            for priority, run in index.evicted if evicted else index.running:
                if below is not None and priority >= below:
                    break
                if run.count:
                    return True
        return False

    def freeable(self, key: FlavorResource, *, below: int | None) -> int:
        """An upper bound of what evicting all records of those priorities, `below` included, would free."""
        index = self.by_key.get(key)
        if index is None:
            return 0
        total = 0
        for runs in (index.running, index.evicted):
            for priority, run in runs:
                if below is not None and priority > below:
                    break
                total += run.amount
        return total


def _ordered(
    index: Candidates,
    *,
    evicted: bool,
    below: int | None,
    extra: Callable[[Reserved], bool] | None,
) -> Iterator[Candidate]:
    for priority, run in index.evicted if evicted else index.running:
        if not run.count:
            continue
        if below is not None and priority >= below:
            if extra is None or priority > below:
                return
            for record in run.newest_first():
                if extra(record):
                    yield record.candidate
            return
        for record in run.newest_first():
            yield record.candidate


def _distinct(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    last: Reserved | None = None
    for candidate in candidates:
        # Equal records have equal keys, so that those from several indexes are adjacent.
        if candidate.record is not last:
            last = candidate.record
            yield candidate
