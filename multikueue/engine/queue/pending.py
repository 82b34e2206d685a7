# SPDX-License-Identifier: Apache-2.0
"""One pending workload, and whether it may be tried.

Owns what the queue stores for it: its position in the order (`docs/spec/engine.md §1.3`), its requests, its equivalence
hash (§1.13), the progress of its flavor scan (§3.6), and the predicates of §1.2 and §1.9.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol

from multikueue.api.reasons import EvictedReason, PreemptedReason, QuotaReservedReason, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE
from multikueue.core.keys import Key
from multikueue.engine.requests import PodSetRequests
from multikueue.engine.settings import RequeueTimestamp, Settings
from multikueue.engine.workloads import Workload

_AFTER_RECLAIM: Final = timedelta(milliseconds=1)
_MOST_CYCLES: Final = 64  # of a scan without a flush: more than all flavors of most queues


class PendingPlace(Enum):
    """Where a pending workload is."""

    HEAP = auto()
    INADMISSIBLE = auto()
    INFLIGHT = auto()
    GONE = auto()


Tried = tuple[Mapping[str, int], ...]
"""The last flavor tried, by pod set and resource; -1 if it was the last one."""


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """Where and when the scan of flavors stopped (`docs/spec/engine.md §3.6`)."""

    tried: Tried
    generation: int
    cycle: int
    began: int
    """The cycle that tried the first flavor."""
    flush: int
    """The last flush of the queue."""
    cycles: int = 0
    """For how many cycles the same scan has gone on since then."""

    @property
    def unfinished(self) -> bool:
        """Whether some flavor was not tried."""
        return any(index != -1 for pod_set in self.tried for index in pod_set.values())

    @classmethod
    def after(cls, last: ScanProgress | None, tried: Tried, *, generation: int, cycle: int, flush: int) -> ScanProgress:
        """The progress after a cycle that continued the scan of `last`, if that was unfinished.

        Pod sets, and resource groups, come to the end of their flavors in different cycles, and each begins again while
        another continues. A scan that has gone on for `_MOST_CYCLES` without a flush ends.
        """
        if last is None or not last.unfinished:
            return cls(tried, generation, cycle, cycle, flush)
        cycles = last.cycles + 1 if last.flush == flush else 0
        return cls(() if cycles >= _MOST_CYCLES else tried, generation, cycle, last.began, flush, cycles)


class HoldingQueue(Protocol):
    """The queue that a pending workload is in, as the workload uses it."""

    name: str

    def is_inadmissible(self, pending: Pending) -> bool:
        """Whether it waits for a change."""

    def inadmissible_with_equals(self, pending: Pending) -> QuotaReservedReason | None:
        """Why it is not evaluated, if that is because of an equal workload."""

    def remove(self, pending: Pending) -> None:
        """Remove it."""


@dataclass(frozen=True, slots=True)
class IssuedPreemptions:
    """The workloads that a pending one has preempted, and for what it did so last, by pod set."""

    victims: frozenset[Key] = frozenset()
    counts: tuple[int, ...] = ()
    """How many pods."""
    flavors: tuple[Mapping[str, str], ...] = ()
    """The flavor of each resource."""


NO_PREEMPTIONS: Final = IssuedPreemptions()


class Pending:
    """A workload in a queue."""

    __slots__ = (
        "evaluated_generation",
        "hash",
        "lane",
        "local_queue",
        "number",
        "order",
        "place",
        "preemptions",
        "priority",
        "progress",
        "queue",
        "requests",
        "slot",
        "workload",
    )

    def __init__(
        self,
        workload: Workload,
        *,
        local_queue: Key,
        requests: tuple[PodSetRequests, ...],
        hash: str,
        priority: int,
        since: datetime,
        number: int,
    ) -> None:
        self.workload = workload
        self.local_queue = local_queue
        self.requests = requests
        self.hash = hash
        self.priority = priority
        self.number = number
        self.order = (-priority, since, workload.uid, number)
        self.place = PendingPlace.GONE
        self.progress: ScanProgress | None = None
        self.evaluated_generation: int | None = None
        self.preemptions = NO_PREEMPTIONS
        """None once it was found without quota or candidates."""
        self.slot: object = None
        self.lane: Lane | None = None
        self.queue: HoldingQueue | None = None

    @property
    def since(self) -> datetime:
        """The time that orders it."""
        return self.order[1]

    def __repr__(self) -> str:
        return f"Pending({self.workload.key})"


def effective_priority(workload: Workload, settings: Settings) -> int:
    """The priority including the boost."""
    return workload.priority + (workload.priority_boost if settings.gates.priority_boost else 0)


def queue_timestamp(workload: Workload, settings: Settings) -> datetime:
    """The time that orders a workload: its creation, or its eviction for certain reasons."""
    if not workload.conditions:
        return workload.created
    evicted = workload.condition(WorkloadCondition.EVICTED)
    if evicted is not None and evicted.status == TRUE:
        by_eviction = settings.pods_ready is None or settings.pods_ready.timestamp is RequeueTimestamp.EVICTION
        if evicted.reason == EvictedReason.PODS_READY_TIMEOUT and by_eviction:
            return evicted.last_transition_time
        if evicted.reason == EvictedReason.ADMISSION_CHECK:
            return evicted.last_transition_time
    if not settings.gates.priority_sorting_within_cohort:
        preempted = workload.condition(WorkloadCondition.PREEMPTED)
        if (
            preempted is not None
            and preempted.status == TRUE
            and preempted.reason == PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        ):
            return preempted.last_transition_time + _AFTER_RECLAIM
    return workload.created


def is_queueable(workload: Workload, settings: Settings) -> bool:
    """Whether a workload may be in a queue at all (`docs/spec/engine.md §1.2`)."""
    if not workload.active or workload.deleting or (workload.gated_by and settings.gates.admission_gated_by):
        return False
    if not workload.conditions:
        return True
    if workload.finished or workload.is_true(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS):
        return False
    reserved = workload.condition(WorkloadCondition.QUOTA_RESERVED)
    return reserved is None or (reserved.status != TRUE and reserved.reason != QuotaReservedReason.ON_HOLD)


def backoff_expired(workload: Workload, now: datetime) -> bool:
    """Whether a workload may be tried now (`docs/spec/engine.md §1.9`)."""
    if workload.requeue_at is not None and now < workload.requeue_at:
        return False
    if not workload.conditions:
        return True
    requeued = workload.condition(WorkloadCondition.REQUEUED)
    return requeued is None or requeued.status != FALSE


def makes_admissible(old: Workload, new: Workload, evaluated_generation: int | None) -> bool:
    """Whether an update of an inadmissible workload is a reason to retry it (`docs/spec/engine.md §1.5` point 2)."""
    if old is new:
        return False
    return (
        old.pod_sets != new.pod_sets
        or old.priority != new.priority
        or old.priority_boost != new.priority_boost
        or old.active != new.active
        or old.queue_name != new.queue_name
        or old.replaces != new.replaces
        or (evaluated_generation is not None and new.generation not in (evaluated_generation, old.generation))
        or old.maximum_execution_seconds != new.maximum_execution_seconds
        or old.reclaimable != new.reclaimable
        or old.preemption_gate_closed != new.preemption_gate_closed
        or old.condition(WorkloadCondition.EVICTED) != new.condition(WorkloadCondition.EVICTED)
        or old.condition(WorkloadCondition.REQUEUED) != new.condition(WorkloadCondition.REQUEUED)
    )


def equivalence_hash(workload: Workload, requests: tuple[PodSetRequests, ...], *, priority: int) -> str:
    """Sixteen hex digits, equal for equivalent workloads; empty if a shape cannot be compared."""
    parts = [str(priority)]
    if workload.replaces:
        parts.append(workload.replaces)  # it needs only what it uses more, in the flavors of that slice
    for pod_set, counted in zip(workload.pod_sets, requests, strict=True):
        if not pod_set.shape.fingerprint:
            return ""
        topology = pod_set.topology.fingerprint if pod_set.topology is not None else ""
        totals = ",".join(f"{name}={counted.total[name]}" for name in sorted(counted.total))
        parts.append(
            f"{pod_set.name}|{pod_set.shape.fingerprint}|{counted.count}|{totals}|{pod_set.min_count}|{topology}"
        )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


Order = tuple[int, datetime, str, int]


class LaneKey(NamedTuple):
    """What the workloads of a lane share; `apart` ones were tried and do not become inadmissible with their equals."""

    hash: str
    local_queue: Key
    apart: bool = False


class Lane:
    """Equal workloads of one local queue.

    `top` is the lane's entry in the queue's heap of lanes. `notified_reason` is the last reason of which its members
    were notified, and `unnotified` are those added since: making a lane inadmissible again costs only what is new in
    it.
    """

    __slots__ = ("heap", "inadmissible", "key", "notified_reason", "size", "top", "unnotified")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.heap: list[tuple[Order, int, Pending]] = []
        self.size = 0
        self.inadmissible = False
        self.top: tuple[Order, int, Lane] | None = None
        self.notified_reason: QuotaReservedReason | None = None
        self.unnotified: list[Pending] = []

    def push(self, pending: Pending, number: int) -> None:
        """Add a workload; a slot that it left here earlier is skipped."""
        slot = (pending.order, number, pending)
        pending.slot = slot
        heappush(self.heap, slot)
        self.size += 1
        self.unnotified.append(pending)

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

    def notify(self, reason: QuotaReservedReason) -> list[Pending]:
        """The members that have not been notified of `reason` yet; they count as notified from now on."""
        if self.notified_reason == reason:
            notified = [pending for pending in self.unnotified if pending.lane is self]
        else:
            notified = list(self.members())
        self.notified_reason = reason
        self.unnotified = []
        return notified

    def drop(self, pending: Pending) -> None:
        """Remove a workload."""
        pending.slot = None
        self.size -= 1
        if len(self.heap) > 64 and len(self.heap) > 4 * self.size:
            self.heap = [slot for slot in self.heap if slot[2].slot is slot]
            heapify(self.heap)
