# SPDX-License-Identifier: Apache-2.0
"""The pending workloads of one ClusterQueue (`docs/spec/engine.md §1`).

Owns heap order, parking, the inflight workload, the sticky preemptor and parked hashes. Workloads that are equal to the
engine and of one local queue share a `Lane`, so that parking all equals, and taking them back, is one step however many
there are. A pending workload is in exactly one of heap, parking and flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from multikueue.api.constants import QueueingStrategy
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine.decisions import RequeueReason
from multikueue.engine.pending import Pending, Place

Order = tuple[int, datetime, str, int]


class LaneKey(NamedTuple):
    """What the workloads of a lane have in common; `apart` ones were tried and stay out of their equals' parking."""

    hash: str
    local_queue: Key
    apart: bool = False


_IMMEDIATE: Final = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PENDING_MIGRATION,
        RequeueReason.PREEMPTION_FAILED,
    }
)
_PARKS_EQUALS: Final = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})
_RECORDS_PREEMPTOR: Final = frozenset({RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION})


class Preemptor(NamedTuple):
    """The workload that last had others preempted; a sticky one goes before all others."""

    key: Key
    generation: int | None
    sticky: bool


class Lane:
    """Equal workloads of one local queue.

    `top` is the lane's entry in the queue's heap of lanes. `told` is why its members were last told that they are not
    looked at, and `untold` those that came since: parking a lane again costs what is new in it.
    """

    __slots__ = ("heap", "key", "parked", "size", "told", "top", "untold")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.heap: list[tuple[Order, int, Pending]] = []
        self.size = 0
        self.parked = False
        self.top: tuple[Order, int, Lane] | None = None
        self.told: QuotaReservedReason | None = None
        self.untold: list[Pending] = []

    def push(self, pending: Pending, number: int) -> None:
        """Put a workload in; what it left behind when it was here before is passed over."""
        slot = (pending.order, number, pending)
        pending.slot = slot
        heappush(self.heap, slot)
        self.size += 1
        self.untold.append(pending)

    def first(self) -> tuple[Order, int, Pending] | None:
        """The first workload that is still here."""
        heap = self.heap
        while heap:
            slot = heap[0]
            if slot[2].slot is slot:
                return slot
            heappop(heap)
        return None

    def members(self) -> Iterator[Pending]:
        """All workloads here, in no order."""
        return (slot[2] for slot in self.heap if slot[2].slot is slot)

    def tell(self, why: QuotaReservedReason) -> list[Pending]:
        """Those who do not know yet that they are not looked at, and why."""
        news = (
            [pending for pending in self.untold if pending.lane is self] if self.told == why else list(self.members())
        )
        self.told = why
        self.untold = []
        return news

    def drop(self, pending: Pending) -> None:
        """Take a workload out."""
        pending.slot = None
        self.size -= 1
        if len(self.heap) > 64 and len(self.heap) > 4 * self.size:
            self.heap = [slot for slot in self.heap if slot[2].slot is slot]
            heapify(self.heap)


class Queue:
    """The pending workloads of one ClusterQueue; `usage_of` is given where local queues order them (§1.10)."""

    __slots__ = (
        "_by_hash",
        "_lanes",
        "_number",
        "_tops",
        "entries",
        "inflight",
        "last_flush",
        "name",
        "parked",
        "parked_hashes",
        "pop_cycle",
        "preemptor",
        "strategy",
        "usage_of",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.strategy = QueueingStrategy.BEST_EFFORT_FIFO
        self.usage_of: Callable[[Key], float] | None = None
        self.entries: dict[Key, Pending] = {}
        self.parked: dict[Key, Pending] = {}
        self.inflight: Pending | None = None
        self.preemptor: Preemptor | None = None
        self.parked_hashes: dict[str, QuotaReservedReason] = {}
        self.pop_cycle = 0
        self.last_flush = -1
        self._lanes: dict[LaneKey, Lane] = {}
        self._by_hash: dict[str, list[Lane]] = {}
        self._tops: list[tuple[Order, int, Lane]] = []
        self._number = 0

    # Places.

    def add(self, pending: Pending, *, backoff_expired: bool) -> bool:
        """Take in a new or changed workload; whether it is in the heap now (`docs/spec/engine.md §1.5`)."""
        self._admit(pending)
        if not backoff_expired:
            self._park(pending)
            return False
        return self._push(pending)

    def remove(self, pending: Pending) -> None:
        """Forget a workload: it was admitted, deleted, or may not wait here any more."""
        key = pending.workload.key
        self._take_out(pending)
        self.entries.pop(key, None)
        if self.preemptor is not None and self.preemptor.key == key:
            self.preemptor = None

    def replace(self, old: Pending, new: Pending) -> None:
        """Put the newer self of a workload that is in the heap into the heap."""
        self._take_out(old)
        self._admit(new)
        self._lane_push(new, apart=True)

    def is_parked(self, pending: Pending) -> bool:
        """Whether a workload waits for a flush."""
        if pending.place is Place.PARKED:
            return True
        if pending.place is not Place.HEAP:
            return False
        return pending.lane is not None and pending.lane.parked

    def parked_with_equals(self, pending: Pending) -> QuotaReservedReason | None:
        """The reason of the equal workload that a workload is parked for; None where it is not, or was looked at."""
        lane = pending.lane
        if pending.place is not Place.HEAP or lane is None or not lane.parked:
            return None
        return self.parked_hashes.get(pending.hash)

    def refile(self, pending: Pending, *, backoff_expired: bool) -> bool:
        """File a workload again after what decides its place has changed."""
        self._take_out(pending)
        return self.add(pending, backoff_expired=backoff_expired)

    def pop(self) -> Pending | None:
        """The head, in flight from now on."""
        self.pop_cycle += 1
        self.inflight = None
        pending = self._head()
        if pending is None:
            return None
        self._take_out(pending)
        pending.place = Place.INFLIGHT
        pending.evaluated_generation = pending.workload.generation
        self.inflight = pending
        return pending

    def requeue(self, pending: Pending, reason: RequeueReason, *, backoff_expired: bool) -> bool:
        """Put a head back; whether it is in the heap now (`docs/spec/engine.md §1.6`)."""
        if reason in _RECORDS_PREEMPTOR:
            sticky = self.strategy == QueueingStrategy.BEST_EFFORT_FIFO
            self.preemptor = Preemptor(pending.workload.key, pending.evaluated_generation, sticky)
        if self.inflight is pending:
            self.inflight = None
        self._admit(pending)
        pending.place = Place.GONE
        immediate = reason in _IMMEDIATE or (
            self.strategy == QueueingStrategy.STRICT_FIFO and reason is not RequeueReason.NAMESPACE_MISMATCH
        )
        unfinished = pending.progress is not None and pending.progress.unfinished
        if backoff_expired and (immediate or self.last_flush >= self.pop_cycle or unfinished):
            self._lane_push(pending, apart=True)
            return True
        self._park(pending)
        return False

    def park_equals(self, pending: Pending, reason: RequeueReason, why: QuotaReservedReason) -> list[Pending]:
        """Park, unevaluated, all that is equal to a workload that was just parked; those to whom that is news."""
        if (
            reason not in _PARKS_EQUALS
            or self.strategy != QueueingStrategy.BEST_EFFORT_FIFO
            or not pending.hash
            or pending.place is not Place.PARKED
        ):
            return []
        self.parked_hashes[pending.hash] = why
        news: list[Pending] = []
        for lane in self._by_hash.get(pending.hash, ()):
            if not lane.parked:
                lane.parked = True
                lane.top = None
                news.extend(lane.tell(why))
        return news

    def flush(self, may_return: Callable[[Pending], bool], namespace_matches: Callable[[str], bool]) -> bool:
        """Take back what is parked and may be tried; whether anything was (`docs/spec/engine.md §1.7`)."""
        self.last_flush = self.pop_cycle
        self.parked_hashes.clear()
        moved = False
        for lane in [lane for lanes in self._by_hash.values() for lane in lanes if lane.parked]:
            lane.parked = False
            if namespace_matches(lane.key.local_queue.namespace):
                self._raise(lane)
                moved = moved or lane.size > 0
            else:
                for pending in list(lane.members()):
                    self._take_out(pending)
                    self._park(pending)
        for pending in list(self.parked.values()):
            if namespace_matches(pending.local_queue.namespace) and may_return(pending):
                del self.parked[pending.workload.key]
                self._lane_push(pending)
                moved = True
        return moved

    # Looking.

    @property
    def remembers(self) -> bool:
        """Whether a flush could change anything."""
        return bool(self.entries) or bool(self.parked_hashes)

    @property
    def parked_count(self) -> int:
        """How many workloads wait for a flush."""
        return len(self.parked) + sum(lane.size for lane in self._lanes.values() if lane.parked)

    @property
    def has_head(self) -> bool:
        """Whether a pop would give something."""
        return self._head() is not None

    def in_order(self) -> list[Pending]:
        """Everything that waits, in heap order; what is in flight or parked stands where it would."""
        usage = self.usage_of
        sticky = self.preemptor.key if self.preemptor is not None and self.preemptor.sticky else None
        if usage is None and sticky is None:
            return sorted(self.entries.values(), key=attrgetter("order"))
        return sorted(
            self.entries.values(),
            key=lambda p: (usage(p.local_queue) if usage else 0.0, p.workload.key != sticky, p.order),
        )

    def is_preemptor(self, pending: Pending) -> bool:
        """Whether a head is the workload that last had others preempted, and is unchanged since."""
        record = self.preemptor
        return (
            record is not None
            and record.key == pending.workload.key
            and record.generation == pending.workload.generation
        )

    # The heap of lanes.

    def _head(self) -> Pending | None:
        sticky = self._sticky()
        if self.usage_of is not None:
            return self._head_by_usage(sticky)
        return sticky or self._head_of_tops()

    def _sticky(self) -> Pending | None:
        record = self.preemptor
        if record is None or not record.sticky:
            return None
        pending = self.entries.get(record.key)
        if pending is None or pending.place is not Place.HEAP or self.is_parked(pending):
            return None
        return pending

    def _head_of_tops(self) -> Pending | None:
        tops = self._tops
        while tops:
            item = tops[0]
            lane = item[2]
            if lane.top is not item:
                heappop(tops)
                continue
            slot = lane.first()
            if slot is not None and slot[0] == item[0]:
                return slot[2]
            heappop(tops)
            lane.top = None
            self._raise(lane)
        return None

    def _head_by_usage(self, sticky: Pending | None) -> Pending | None:
        usage_of = self.usage_of
        if usage_of is None:
            return None
        best: tuple[float, bool, Order] | None = None
        head = None
        usages: dict[Key, float] = {}
        for lane in self._lanes.values():
            slot = None if lane.parked else lane.first()
            if slot is None:
                continue
            usage = usages.get(lane.key.local_queue)
            if usage is None:
                usage = usages[lane.key.local_queue] = usage_of(lane.key.local_queue)
            rank = (usage, True, slot[0])
            if best is None or rank < best:
                best, head = rank, slot[2]
        if sticky is not None and best is not None and usage_of(sticky.local_queue) <= best[0]:
            return sticky
        return head

    def _raise(self, lane: Lane) -> None:
        """Let the queue's heap know a lane's first workload."""
        slot = lane.first()
        if slot is None or lane.parked:
            return
        if lane.top is None or slot[0] < lane.top[0]:
            self._number += 1
            lane.top = (slot[0], self._number, lane)
            heappush(self._tops, lane.top)

    def _admit(self, pending: Pending) -> None:
        self.entries[pending.workload.key] = pending
        pending.queue = self

    def _push(self, pending: Pending) -> bool:
        """Into the heap, or into parking with its equals."""
        # Only where the order may be broken are equals passed by (§1.5 point 4).
        strict = self.strategy == QueueingStrategy.STRICT_FIFO
        return not self._lane_push(pending, apart=strict).parked

    def _lane_push(self, pending: Pending, *, apart: bool = False) -> Lane:
        key = LaneKey(pending.hash, pending.local_queue)
        lane = self._lanes.get(key)
        if lane is not None and lane.parked and apart:
            key = LaneKey(pending.hash, pending.local_queue, apart=True)
            lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
            lane.parked = not apart and bool(pending.hash) and pending.hash in self.parked_hashes
            self._by_hash.setdefault(pending.hash, []).append(lane)
        self._number += 1
        lane.push(pending, self._number)
        pending.lane = lane
        pending.place = Place.HEAP
        self._raise(lane)
        return lane

    def _park(self, pending: Pending) -> None:
        self.parked[pending.workload.key] = pending
        pending.place = Place.PARKED

    def _take_out(self, pending: Pending) -> None:
        lane = pending.lane
        if pending.place is Place.HEAP and lane is not None:
            lane.drop(pending)
            pending.lane = None
            if not lane.size:
                self._close(lane)
        elif pending.place is Place.PARKED:
            self.parked.pop(pending.workload.key, None)
        elif self.inflight is pending:
            self.inflight = None
        pending.place = Place.GONE

    def _close(self, lane: Lane) -> None:
        del self._lanes[lane.key]
        lane.top = None
        equals = self._by_hash[lane.key.hash]
        equals.remove(lane)
        if not equals:
            del self._by_hash[lane.key.hash]
