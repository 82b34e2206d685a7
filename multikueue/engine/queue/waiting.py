# SPDX-License-Identifier: Apache-2.0
"""All workloads without quota, and their local queues (`docs/spec/engine.md §1.5` to §1.9).

Owns which queue a workload waits in, updates of waiting workloads, stopped local queues, back-off, and what a flush
moves. `ready` names the queues that may have a head, or another one than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import heappop, heappush

from multikueue.api.constants import StopPolicy
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.referenced_objects import ReferencedObjects
from multikueue.engine.decisions import RequeueReason
from multikueue.engine.queue.pending import (
    Pending,
    PendingPlace,
    backoff_expired,
    effective_priority,
    equivalence_hash,
    is_queueable,
    makes_admissible,
    queue_timestamp,
)
from multikueue.engine.requests import RequestCounter
from multikueue.engine.settings import Settings
from multikueue.engine.values import LocalQueue
from multikueue.engine.workloads import Workload


class WaitingWorkloads:
    """The pending side of the engine."""

    def __init__(
        self,
        *,
        settings: Settings,
        referenced: ReferencedObjects,
        counter: RequestCounter,
        cluster_queue: Callable[[str], CachedClusterQueue],
    ) -> None:
        self._settings = settings
        self._referenced = referenced
        self._counter = counter
        self._cluster_queue = cluster_queue
        self._number = 0
        self._by_local_queue: dict[Key, dict[Key, Workload]] = {}
        self._local_queue_of: dict[Key, Key] = {}
        self._wakes: list[tuple[datetime, Key]] = []
        self._waking: dict[Key, datetime] = {}
        """The last moment in the heap for each workload, so that it is there once."""
        self.local_queues: dict[Key, LocalQueue] = {}
        self.pending: dict[Key, Pending] = {}
        self.counts: dict[Key, int] = {}
        self.ready: set[str] = set()

    # Workloads.

    def offer(self, workload: Workload, now: datetime) -> None:
        """A workload without quota was created or changed."""
        local_queue = self._assign(workload)
        known = self.pending.get(workload.key)
        queue = self.local_queues.get(local_queue)
        if queue is None or not self._may_wait(queue, workload):
            self._leave(workload.key)
            return
        cluster_queue = self._cluster_queue(queue.cluster_queue)
        if known is None:
            self._enter(cluster_queue, self._make(workload, local_queue), now)
        elif cluster_queue.queue.is_inadmissible(known) and not makes_admissible(
            known.workload, workload, known.evaluated_generation
        ):
            known.workload = workload
        else:
            self._change(cluster_queue, known, workload, now)

    def withdraw(self, key: Key) -> None:
        """A workload no longer waits: it was admitted, finished or deleted."""
        self._leave(key)
        local_queue = self._local_queue_of.pop(key, None)
        if local_queue is not None:
            members = self._by_local_queue[local_queue]
            del members[key]
            if not members:
                del self._by_local_queue[local_queue]

    def readmit(self, workload: Workload, now: datetime, reason: RequeueReason) -> None:
        """Requeue a workload whose reservation failed."""
        local_queue = self._assign(workload)
        queue = self.local_queues.get(local_queue)
        if queue is None or not self._may_wait(queue, workload):
            return
        cluster_queue = self._cluster_queue(queue.cluster_queue)
        pending = self._make(workload, local_queue)
        self._count(pending)
        self.requeue(cluster_queue, pending, reason, now)

    def requeue(
        self, cluster_queue: CachedClusterQueue, pending: Pending, reason: RequeueReason, now: datetime
    ) -> bool:
        """Requeue a head (§1.6); whether it can be retried at once."""
        expired = backoff_expired(pending.workload, now)
        if cluster_queue.queue.requeue(pending, reason, backoff_expired=expired):
            self.ready.add(cluster_queue.name)
            return True
        if not expired:
            self._wake(pending.workload)
        return False

    def set_equals_inadmissible(
        self,
        cluster_queue: CachedClusterQueue,
        pending: Pending,
        reason: RequeueReason,
        why: QuotaReservedReason | None,
    ) -> list[Pending]:
        """Make the equals of an inadmissible head inadmissible."""
        if not self._settings.gates.equivalence_hashing:
            return []
        return cluster_queue.queue.set_equals_inadmissible(
            pending, reason, why or QuotaReservedReason.PENDING_EVALUATION
        )

    # Local queues.

    def set_local_queue(self, value: LocalQueue, now: datetime) -> None:
        """A local queue was created or changed."""
        self.local_queues[value.key] = value
        self._review(value.key, now)

    def remove_local_queue(self, key: Key, now: datetime) -> None:
        """A local queue was deleted; its workloads wait for a new one."""
        self.local_queues.pop(key, None)
        self._review(key, now)

    def members(self, local_queue: Key) -> Iterable[Workload]:
        """All workloads without quota of a local queue."""
        return self._by_local_queue.get(local_queue, {}).values()

    # Flushes and back-off.

    def flush(self, cluster_queue: CachedClusterQueue, now: datetime) -> bool:
        """Move the inadmissible workloads of one queue that may be tried to the heap."""
        moved = cluster_queue.queue.flush(
            lambda pending: backoff_expired(pending.workload, now),
            lambda namespace: self._referenced.selects(cluster_queue, namespace),
        )
        if moved:
            self.ready.add(cluster_queue.name)
        return moved

    def wake(self, now: datetime) -> None:
        """Move workloads whose back-off is over to the heap."""
        while self._wakes and self._wakes[0][0] <= now:
            moment, key = heappop(self._wakes)
            if self._waking.get(key) == moment:
                del self._waking[key]
            pending = self.pending.get(key)
            if (
                pending is None
                or pending.place is not PendingPlace.INADMISSIBLE
                or not backoff_expired(pending.workload, now)
            ):
                continue
            cluster_queue = self.cluster_queue_of(pending)
            if cluster_queue.queue.refile(pending, backoff_expired=True):
                self.ready.add(cluster_queue.name)

    def next_wake(self) -> datetime | None:
        """When the next back-off is over."""
        return self._wakes[0][0] if self._wakes else None

    def recount(self, concerns: Callable[[Workload], bool], now: datetime, *, namespace: str = "") -> None:
        """What decides requests has changed: recompute those of affected workloads.

        With a namespace, whose tenants may change that as often as they like, only those of its local queues.
        """
        found = list(self.pending.values())
        if namespace:
            queues = [key for key in self._by_local_queue if key.namespace == namespace]
            keys = [key for queue in queues for key in self._by_local_queue[queue]]
            found = [self.pending[key] for key in keys if key in self.pending]
        for pending in found:
            if concerns(pending.workload):
                self._change(self.cluster_queue_of(pending), pending, pending.workload, now)

    def offer_again(self, workloads: Iterable[Key], now: datetime) -> list[CachedClusterQueue]:
        """Templates that these claim devices by have changed: whether they may wait, and their requests.

        What was not in the heap waits for the next flush, which the queues need that are returned: else whoever makes
        templates anew all the time would have his workloads evaluated before all others.
        """
        flushed: dict[str, CachedClusterQueue] = {}
        for key in workloads:
            local_queue = self._local_queue_of.get(key, key)
            workload, known = self._by_local_queue.get(local_queue, {}).get(key), self.pending.get(key)
            queue = self.local_queues.get(local_queue)
            if workload is None or queue is None:
                continue
            if not self._may_wait(queue, workload):
                self._leave(key)
            elif known is not None and not self.cluster_queue_of(known).queue.is_inadmissible(known):
                self._change(self.cluster_queue_of(known), known, workload, now)
            else:
                self._leave(key)
                cluster_queue = self._cluster_queue(queue.cluster_queue)
                pending = self._make(workload, local_queue)
                self._count(pending)
                cluster_queue.queue.add_inadmissible(pending)
                if not backoff_expired(workload, now):
                    self._wake(workload)
                flushed[cluster_queue.name] = cluster_queue
        return list(flushed.values())

    def _may_wait(self, queue: LocalQueue, workload: Workload) -> bool:
        return _is_open(queue) and is_queueable(workload, self._settings) and not self._counter.claims_problem(workload)

    def _review(self, local_queue: Key, now: datetime) -> None:
        for workload in list(self.members(local_queue)):
            self.offer(workload, now)

    def cluster_queue_of(self, pending: Pending) -> CachedClusterQueue:
        """The queue that a workload waits in."""
        assert pending.queue is not None, f"{pending.workload.key}: pending in no queue"
        return self._cluster_queue(pending.queue.name)

    def _assign(self, workload: Workload) -> Key:
        """Move a workload to its current local queue."""
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
            hash=equivalence_hash(workload, requests, priority=priority),
            priority=priority,
            since=queue_timestamp(workload, self._settings),
            number=self._number,
        )

    def _enter(self, cluster_queue: CachedClusterQueue, pending: Pending, now: datetime) -> None:
        self._count(pending)
        expired = backoff_expired(pending.workload, now)
        if cluster_queue.queue.add(pending, backoff_expired=expired):
            self.ready.add(cluster_queue.name)
        elif not expired:
            self._wake(pending.workload)

    def _change(self, cluster_queue: CachedClusterQueue, known: Pending, workload: Workload, now: datetime) -> None:
        """Replace a pending workload by its newer version, which goes to the place of its new state."""
        fresh = self._make(workload, known.local_queue)
        fresh.evaluated_generation = known.evaluated_generation
        if fresh.hash == known.hash and self._settings.gates.preserve_scan_progress:
            fresh.progress = known.progress
        fresh.preemptions = known.preemptions
        if known.place is PendingPlace.HEAP and not cluster_queue.queue.is_inadmissible(known):
            # A workload in the heap stays there, even if equals are inadmissible (§1.5 points 3 and 4).
            cluster_queue.queue.replace(known, fresh)
            self.pending[workload.key] = fresh
            self.ready.add(cluster_queue.name)
            return
        preemptor = cluster_queue.queue.preemptor
        self.ready.add(cluster_queue.name)
        cluster_queue.queue.remove(known)
        cluster_queue.queue.preemptor = preemptor
        self._enter(cluster_queue, fresh, now)

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
            self.ready.add(pending.queue.name)  # it may have another head now
            pending.queue.remove(pending)

    def _count(self, pending: Pending) -> None:
        """Count a workload as pending; a newer version replaces the older."""
        if self.pending.get(pending.workload.key) is None:
            self.counts[pending.local_queue] = self.counts.get(pending.local_queue, 0) + 1
        self.pending[pending.workload.key] = pending

    def _wake(self, workload: Workload) -> None:
        if workload.requeue_at is not None and self._waking.get(workload.key) != workload.requeue_at:
            self._waking[workload.key] = workload.requeue_at
            heappush(self._wakes, (workload.requeue_at, workload.key))


def _is_open(queue: LocalQueue) -> bool:
    return queue.stop_policy == StopPolicy.NONE and not queue.terminating
