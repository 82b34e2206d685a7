# SPDX-License-Identifier: Apache-2.0
"""The pending workloads of one ClusterQueue (`docs/spec/engine.md §1`).

Owns heap order, inadmissible workloads and hashes, the inflight workload, and the sticky preemptor. Workloads of one
local queue that are equal to the engine share a `Lane`, so that making all equals inadmissible, or admissible again, is
one step regardless of their number. A pending workload is in exactly one `PendingPlace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from multikueue.api.constants import QueueingStrategy
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine.decisions import RequeueReason
from multikueue.engine.queue.pending import Lane, LaneKey, Order, Pending, PendingPlace

_IMMEDIATE: Final = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PENDING_MIGRATION,
        RequeueReason.PREEMPTION_FAILED,
    }
)
_RECORDS_PREEMPTOR: Final = frozenset({RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION})


class Preemptor(NamedTuple):
    """The workload that last preempted others; a sticky one is tried before all others."""

    key: Key
    generation: int | None
    sticky: bool


class Queue:
    """The pending workloads of one ClusterQueue; `usage_of` is set if local queues order them (§1.10)."""

    __slots__ = (
        "_by_hash",
        "_is_pending",
        "_lanes",
        "_number",
        "_tops",
        "entries",
        "inadmissible",
        "inadmissible_hashes",
        "inflight",
        "last_flush",
        "name",
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
        self._is_pending: Callable[[Key], bool] = self.entries.__contains__
        self.inadmissible: dict[Key, Pending] = {}
        self.inflight: Pending | None = None
        self.preemptor: Preemptor | None = None
        self.inadmissible_hashes: dict[str, QuotaReservedReason] = {}
        self.pop_cycle = 0
        self.last_flush = -1
        self._lanes: dict[LaneKey, Lane] = {}
        self._by_hash: dict[str, list[Lane]] = {}
        self._tops: list[tuple[Order, int, Lane]] = []
        self._number = 0

    def configure(
        self,
        *,
        strategy: QueueingStrategy,
        usage_of: Callable[[Key], float] | None,
        is_pending: Callable[[Key], bool],
    ) -> None:
        """Set the queueing strategy and, if local queues order the queue, their usage; and who waits in any queue."""
        self.strategy = strategy
        self.usage_of = usage_of
        self._is_pending = is_pending

    # Places.

    def add(self, pending: Pending, *, backoff_expired: bool) -> bool:
        """Add a new or changed workload; whether it is in the heap now (`docs/spec/engine.md §1.5`)."""
        self._admit(pending)
        if not backoff_expired:
            self._set_inadmissible(pending)
            return False
        return self._push(pending)

    def remove(self, pending: Pending) -> None:
        """Remove a workload: it was admitted, deleted, or may no longer wait here."""
        key = pending.workload.key
        self._take_out(pending)
        self.entries.pop(key, None)
        if self.preemptor is not None and self.preemptor.key == key:
            self.preemptor = None

    def replace(self, old: Pending, new: Pending) -> None:
        """Replace a workload of the heap by its newer version, in the heap."""
        self._take_out(old)
        self._admit(new)
        self._lane_push(new, apart=True)

    def add_inadmissible(self, pending: Pending) -> None:
        """Add a workload that is evaluated after the next flush."""
        self._admit(pending)
        self._set_inadmissible(pending)

    def is_inadmissible(self, pending: Pending) -> bool:
        """Whether a workload waits for a flush."""
        if pending.place is PendingPlace.INADMISSIBLE:
            return True
        if pending.place is not PendingPlace.HEAP:
            return False
        return pending.lane is not None and pending.lane.inadmissible

    def inadmissible_with_equals(self, pending: Pending) -> QuotaReservedReason | None:
        """The reason of the equal workload that made this one inadmissible; None if it was evaluated."""
        lane = pending.lane
        if pending.place is not PendingPlace.HEAP or lane is None or not lane.inadmissible:
            return None
        return self.inadmissible_hashes.get(pending.hash)

    def refile(self, pending: Pending, *, backoff_expired: bool) -> bool:
        """Remove and add a workload after a change that decides its place."""
        self._take_out(pending)
        return self.add(pending, backoff_expired=backoff_expired)

    def pop(self) -> Pending | None:
        """Take the head, which is inflight from now on."""
        self.pop_cycle += 1
        self.inflight = None
        pending = self._head()
        if pending is None:
            return None
        self._take_out(pending)
        pending.place = PendingPlace.INFLIGHT
        pending.evaluated_generation = pending.workload.generation
        self.inflight = pending
        return pending

    def requeue(self, pending: Pending, reason: RequeueReason, *, backoff_expired: bool) -> bool:
        """Requeue a head; whether it is in the heap now (`docs/spec/engine.md §1.6`)."""
        if reason in _RECORDS_PREEMPTOR:
            sticky = self.strategy == QueueingStrategy.BEST_EFFORT_FIFO
            self.preemptor = Preemptor(pending.workload.key, pending.evaluated_generation, sticky)
        if self.inflight is pending:
            self.inflight = None
        self._admit(pending)
        pending.place = PendingPlace.GONE
        immediate = reason in _IMMEDIATE or (
            self.strategy == QueueingStrategy.STRICT_FIFO and reason is not RequeueReason.NAMESPACE_MISMATCH
        )
        unfinished = pending.progress is not None and pending.progress.unfinished
        if backoff_expired and (immediate or self.last_flush >= self.pop_cycle or unfinished):
            self._lane_push(pending, apart=True)
            return True
        self._set_inadmissible(pending)
        return False

    def set_equals_inadmissible(
        self, pending: Pending, reason: RequeueReason, why: QuotaReservedReason
    ) -> list[Pending]:
        """Make all equals of an inadmissible workload inadmissible, unevaluated; returns those to notify."""
        if (
            not reason.lacks_quota
            or self.strategy != QueueingStrategy.BEST_EFFORT_FIFO
            or not pending.hash
            or pending.place is not PendingPlace.INADMISSIBLE
        ):
            return []
        self.inadmissible_hashes[pending.hash] = why
        notified: list[Pending] = []
        for lane in self._by_hash.get(pending.hash, ()):
            if not lane.inadmissible:
                lane.inadmissible = True
                lane.top = None
                notified.extend(lane.notify(why))
        return notified

    def flush(self, may_return: Callable[[Pending], bool], namespace_matches: Callable[[str], bool]) -> bool:
        """Move inadmissible workloads that may be tried to the heap; whether any moved (`docs/spec/engine.md §1.7`)."""
        self.last_flush = self.pop_cycle
        self.inadmissible_hashes.clear()
        moved = False
        for lane in [lane for lanes in self._by_hash.values() for lane in lanes if lane.inadmissible]:
            lane.inadmissible = False
            if namespace_matches(lane.key.local_queue.namespace):
                self._raise(lane)
                moved = moved or lane.size > 0
            else:
                for pending in list(lane.members()):
                    self._take_out(pending)
                    self._set_inadmissible(pending)
        for pending in list(self.inadmissible.values()):
            if namespace_matches(pending.local_queue.namespace) and may_return(pending):
                del self.inadmissible[pending.workload.key]
                self._lane_push(pending)
                moved = True
        return moved

    # Reading.

    @property
    def flushable(self) -> bool:
        """Whether a flush could change anything."""
        return bool(self.entries) or bool(self.inadmissible_hashes)

    @property
    def has_inadmissible(self) -> bool:
        """Whether a workload waits for a flush."""
        return bool(self.inadmissible or self.inadmissible_hashes)

    @property
    def inadmissible_count(self) -> int:
        """How many workloads wait for a flush."""
        return len(self.inadmissible) + sum(lane.size for lane in self._lanes.values() if lane.inadmissible)

    def lanes(self) -> Iterable[Lane]:
        """The lanes of equal workloads, of those that were not made inadmissible one by one."""
        return self._lanes.values()

    def head(self) -> Pending | None:
        """What a pop would return."""
        return self._head()

    def in_order(self) -> list[Pending]:
        """All pending workloads in heap order, inflight and inadmissible ones included."""
        usage, first = self.usage_of, self._awaited_by_victims()
        sticky = self.preemptor.key if self.preemptor is not None and self.preemptor.sticky else None
        if usage is None and sticky is None:
            return sorted(self.entries.values(), key=attrgetter("order"))
        return sorted(
            self.entries.values(),
            key=lambda pending: (
                pending is not first,
                usage(pending.local_queue) if usage is not None else 0.0,
                pending.workload.key != sticky,
                pending.order,
            ),
        )

    def is_preemptor(self, pending: Pending) -> bool:
        """Whether a head is the workload that last preempted others, unchanged since."""
        record = self.preemptor
        return (
            record is not None
            and record.key == pending.workload.key
            and record.generation == pending.workload.generation
        )

    # The heap of lanes.

    def _head(self) -> Pending | None:
        if self.usage_of is not None:
            return self._head_by_usage()
        return self._sticky() or self._head_of_tops()

    def _sticky(self) -> Pending | None:
        return self._last_preemptor() if self.preemptor is not None and self.preemptor.sticky else None

    def _last_preemptor(self) -> Pending | None:
        """The workload that last preempted others, if it is in the heap."""
        pending = self.entries.get(self.preemptor.key) if self.preemptor is not None else None
        if pending is None or pending.place is not PendingPlace.HEAP or self.is_inadmissible(pending):
            return None
        return pending

    def _awaited_by_victims(self) -> Pending | None:
        """The last preemptor if what it has preempted waits again, and local queues order the queue (§1.3 point 1).

        Its victims would get their quota back while others of the queue are evaluated, or before it themselves.
        """
        preemptor = self._last_preemptor() if self.usage_of is not None else None
        if preemptor is None or not any(map(self._is_pending, preemptor.preemptions.victims)):
            return None
        return preemptor

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

    def _head_by_usage(self) -> Pending | None:
        usage_of = self.usage_of
        if usage_of is None:
            return None
        first, sticky = self._awaited_by_victims(), self._sticky()
        if first is not None:
            return first
        best: tuple[float, Order] | None = None
        head = None
        usages: dict[Key, float] = {}
        for lane in self._lanes.values():
            slot = None if lane.inadmissible else lane.first()
            if slot is None:
                continue
            usage = usages.get(lane.key.local_queue)
            if usage is None:
                usage = usages[lane.key.local_queue] = usage_of(lane.key.local_queue)
            rank = (usage, slot[0])
            if best is None or rank < best:
                best, head = rank, slot[2]
        if sticky is not None and best is not None and usage_of(sticky.local_queue) <= best[0]:
            return sticky
        return head

    def _raise(self, lane: Lane) -> None:
        """Update the queue's heap with a lane's first workload."""
        slot = lane.first()
        if slot is None or lane.inadmissible:
            return
        if lane.top is None or slot[0] < lane.top[0]:
            self._number += 1
            lane.top = (slot[0], self._number, lane)
            heappush(self._tops, lane.top)

    def _admit(self, pending: Pending) -> None:
        self.entries[pending.workload.key] = pending
        pending.queue = self

    def _push(self, pending: Pending) -> bool:
        """Add to the heap, or to the inadmissible ones with its equals."""
        # Equals are skipped only if the order may be broken (§1.5 point 4).
        strict = self.strategy == QueueingStrategy.STRICT_FIFO
        return not self._lane_push(pending, apart=strict).inadmissible

    def _lane_push(self, pending: Pending, *, apart: bool = False) -> Lane:
        key = LaneKey(pending.hash, pending.local_queue)
        lane = self._lanes.get(key)
        if lane is not None and lane.inadmissible and apart:
            key = LaneKey(pending.hash, pending.local_queue, apart=True)
            lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
            lane.inadmissible = not apart and bool(pending.hash) and pending.hash in self.inadmissible_hashes
            self._by_hash.setdefault(pending.hash, []).append(lane)
        self._number += 1
        lane.push(pending, self._number)
        pending.lane = lane
        pending.place = PendingPlace.HEAP
        self._raise(lane)
        return lane

    def _set_inadmissible(self, pending: Pending) -> None:
        self.inadmissible[pending.workload.key] = pending
        pending.place = PendingPlace.INADMISSIBLE

    def _take_out(self, pending: Pending) -> None:
        lane = pending.lane
        if pending.place is PendingPlace.HEAP and lane is not None:
            lane.drop(pending)
            pending.lane = None
            if not lane.size:
                self._close(lane)
        elif pending.place is PendingPlace.INADMISSIBLE:
            self.inadmissible.pop(pending.workload.key, None)
        elif self.inflight is pending:
            self.inflight = None
        pending.place = PendingPlace.GONE

    def _close(self, lane: Lane) -> None:
        del self._lanes[lane.key]
        lane.top = None
        equals = self._by_hash[lane.key.hash]
        equals.remove(lane)
        if not equals:
            del self._by_hash[lane.key.hash]
