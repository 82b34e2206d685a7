# SPDX-License-Identifier: Apache-2.0
"""All workloads that hold no quota, and the local queues they came through (`docs/spec/engine.md §1.5` to §1.9).

Owns which queue a workload waits in, updates of waiting workloads, stopped local queues, back-off as data, and flushes
of a tree. `ready` names the queues that may have a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import heappop, heappush

from multikueue.api.constants import StopPolicy
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine.decisions import RequeueReason
from multikueue.engine.hashing import equivalence
from multikueue.engine.knowledge import Knowledge
from multikueue.engine.live import LiveQueue
from multikueue.engine.pending import (
    Pending,
    Place,
    backoff_expired,
    effective_priority,
    is_queueable,
    queue_timestamp,
    unparks,
)
from multikueue.engine.requests import RequestCounter
from multikueue.engine.settings import Settings
from multikueue.engine.values import LocalQueue
from multikueue.engine.workloads import Workload


class Waiting:
    """The pending side of the engine."""

    def __init__(
        self, *, settings: Settings, knowledge: Knowledge, counter: RequestCounter, live: Callable[[str], LiveQueue]
    ) -> None:
        self._settings = settings
        self._knowledge = knowledge
        self._counter = counter
        self._live = live
        self._number = 0
        self._by_local_queue: dict[Key, dict[Key, Workload]] = {}
        self._local_queue_of: dict[Key, Key] = {}
        self._wakes: list[tuple[datetime, Key]] = []
        self.local_queues: dict[Key, LocalQueue] = {}
        self.pending: dict[Key, Pending] = {}
        self.counts: dict[Key, int] = {}
        self.ready: set[str] = set()

    # Workloads.

    def offer(self, workload: Workload, now: datetime) -> None:
        """A workload without quota came or changed."""
        local_queue = self._assign(workload)
        known = self.pending.get(workload.key)
        queue = self.local_queues.get(local_queue)
        if queue is None or not _is_open(queue) or not is_queueable(workload, self._settings):
            self._leave(workload.key)
            return
        live = self._live(queue.cluster_queue)
        if known is None:
            self._enter(live, self._make(workload, local_queue), now)
        elif live.queue.is_parked(known) and not unparks(known.workload, workload, known.evaluated_generation):
            known.workload = workload
        else:
            self._change(live, known, workload, now)

    def withdraw(self, key: Key) -> None:
        """A workload waits no more: it was admitted, finished or is gone."""
        self._leave(key)
        local_queue = self._local_queue_of.pop(key, None)
        if local_queue is not None:
            members = self._by_local_queue[local_queue]
            del members[key]
            if not members:
                del self._by_local_queue[local_queue]

    def readmit(self, workload: Workload, now: datetime, reason: RequeueReason) -> None:
        """Put a workload back whose reservation came to nothing."""
        local_queue = self._assign(workload)
        queue = self.local_queues.get(local_queue)
        if queue is None or not _is_open(queue) or not is_queueable(workload, self._settings):
            return
        live = self._live(queue.cluster_queue)
        pending = self._make(workload, local_queue)
        self._count(pending)
        self.requeue(live, pending, reason, now)

    def requeue(self, live: LiveQueue, pending: Pending, reason: RequeueReason, now: datetime) -> bool:
        """Put a head back (§1.6); whether it can be tried again at once."""
        expired = backoff_expired(pending.workload, now)
        if live.queue.requeue(pending, reason, backoff_expired=expired):
            self.ready.add(live.name)
            return True
        if not expired:
            self._wake(pending.workload)
        return False

    def park_equals(
        self, live: LiveQueue, pending: Pending, reason: RequeueReason, why: QuotaReservedReason | None
    ) -> list[Pending]:
        """Park what is equal to a head that was just parked."""
        if not self._settings.gates.equivalence_hashing:
            return []
        return live.queue.park_equals(pending, reason, why or QuotaReservedReason.PENDING_EVALUATION)

    # Local queues.

    def set_local_queue(self, value: LocalQueue, now: datetime) -> None:
        """A local queue came or changed."""
        self.local_queues[value.key] = value
        self._review(value.key, now)

    def remove_local_queue(self, key: Key, now: datetime) -> None:
        """A local queue is gone; its workloads wait for its return."""
        self.local_queues.pop(key, None)
        self._review(key, now)

    def members(self, local_queue: Key) -> Iterable[Workload]:
        """All workloads without quota that name a local queue."""
        return self._by_local_queue.get(local_queue, {}).values()

    # Time and space.

    def flush(self, live: LiveQueue, now: datetime) -> bool:
        """Take back what is parked in one queue and may be tried."""
        moved = live.queue.flush(
            lambda pending: backoff_expired(pending.workload, now),
            lambda namespace: self._knowledge.selects(live, namespace),
        )
        if moved:
            self.ready.add(live.name)
        return moved

    def wake(self, now: datetime) -> None:
        """Take back what waited for its back-off to be over."""
        while self._wakes and self._wakes[0][0] <= now:
            _, key = heappop(self._wakes)
            pending = self.pending.get(key)
            if pending is None or pending.place is not Place.PARKED or not backoff_expired(pending.workload, now):
                continue
            live = self.live_of(pending)
            if live.queue.refile(pending, backoff_expired=True):
                self.ready.add(live.name)

    def next_wake(self) -> datetime | None:
        """When a back-off is over next."""
        return self._wakes[0][0] if self._wakes else None

    def recount(self, concerns: Callable[[Workload], bool], now: datetime) -> None:
        """Limit ranges or runtime classes changed: count the requests of those concerned again."""
        for pending in list(self.pending.values()):
            if concerns(pending.workload):
                self._change(self.live_of(pending), pending, pending.workload, now)

    def _review(self, local_queue: Key, now: datetime) -> None:
        for workload in list(self.members(local_queue)):
            self.offer(workload, now)

    def live_of(self, pending: Pending) -> LiveQueue:
        """The queue that a workload waits in."""
        assert pending.queue is not None, f"{pending.workload.key}: pending in no queue"
        return self._live(pending.queue.name)

    def _assign(self, workload: Workload) -> Key:
        """File a workload under its local queue, out of the one that it named before."""
        key = workload.key
        local_queue = Key(key.namespace, workload.queue_name)
        if self._local_queue_of.get(key, local_queue) != local_queue:
            self.withdraw(key)
        self._local_queue_of[key] = local_queue
        self._by_local_queue.setdefault(local_queue, {})[key] = workload
        return local_queue

    def _make(self, workload: Workload, local_queue: Key) -> Pending:
        self._number += 1
        requests = self._counter.pending(workload)
        priority = effective_priority(workload, self._settings)
        return Pending(
            workload,
            local_queue=local_queue,
            requests=requests,
            hash=equivalence(workload, requests, priority=priority),
            priority=priority,
            since=queue_timestamp(workload, self._settings),
            number=self._number,
        )

    def _enter(self, live: LiveQueue, pending: Pending, now: datetime) -> None:
        self._count(pending)
        expired = backoff_expired(pending.workload, now)
        if live.queue.add(pending, backoff_expired=expired):
            self.ready.add(live.name)
        elif not expired:
            self._wake(pending.workload)

    def _change(self, live: LiveQueue, known: Pending, workload: Workload, now: datetime) -> None:
        """Replace a pending workload by its newer self; it goes to the place that its new state asks for."""
        fresh = self._make(workload, known.local_queue)
        fresh.evaluated_generation = known.evaluated_generation
        if fresh.hash == known.hash and self._settings.gates.preserve_scan_progress:
            fresh.progress = known.progress
        if known.place is Place.HEAP and not live.queue.is_parked(known):
            # What is in the heap stays there, whatever is parked beside it (§1.5 points 3 and 4).
            live.queue.replace(known, fresh)
            self.pending[workload.key] = fresh
            self.ready.add(live.name)
            return
        preemptor = live.queue.preemptor
        live.queue.remove(known)
        live.queue.preemptor = preemptor
        self._enter(live, fresh, now)

    def _leave(self, key: Key) -> None:
        pending = self.pending.pop(key, None)
        if pending is None:
            return
        left = self.counts[pending.local_queue] - 1
        if left:
            self.counts[pending.local_queue] = left
        else:
            del self.counts[pending.local_queue]
        if pending.queue is not None:
            pending.queue.remove(pending)

    def _count(self, pending: Pending) -> None:
        """Note a workload as pending; its newer self takes the place of the older."""
        if self.pending.get(pending.workload.key) is None:
            self.counts[pending.local_queue] = self.counts.get(pending.local_queue, 0) + 1
        self.pending[pending.workload.key] = pending

    def _wake(self, workload: Workload) -> None:
        if workload.requeue_at is not None:
            heappush(self._wakes, (workload.requeue_at, workload.key))


def _is_open(queue: LocalQueue) -> bool:
    return queue.stop_policy == StopPolicy.NONE and not queue.terminating
