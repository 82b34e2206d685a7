# SPDX-License-Identifier: Apache-2.0
"""One workload that waits, and whether it may.

Owns what the queue keeps of it: its place in the order (`docs/spec/engine.md §1.3`), its requests, its equivalence
hash, the progress of its flavor scan (§3.6), and the predicates of §1.2 and §1.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from multikueue.api.reasons import EvictedReason, PreemptedReason, QuotaReservedReason, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE
from multikueue.core.keys import Key
from multikueue.engine.requests import PodSetRequests
from multikueue.engine.settings import RequeueTimestamp, Settings
from multikueue.engine.workloads import Workload

if TYPE_CHECKING:
    from multikueue.engine.queue import Lane, Queue

_AFTER_RECLAIM: Final = timedelta(milliseconds=1)


class Place(Enum):
    """Where a pending workload is; exactly one of these."""

    HEAP = auto()
    PARKED = auto()
    INFLIGHT = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """Where the scan of flavors stopped, and when that was (`docs/spec/engine.md §3.6`)."""

    tried: tuple[Mapping[str, int], ...]
    generation: int
    cycle: int

    @property
    def unfinished(self) -> bool:
        """Whether some flavor was not looked at."""
        return any(index != -1 for pod_set in self.tried for index in pod_set.values())


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
        self.place = Place.GONE
        self.progress: ScanProgress | None = None
        self.evaluated_generation: int | None = None
        self.slot: object = None
        self.lane: Lane | None = None
        self.queue: Queue | None = None

    @property
    def since(self) -> datetime:
        """The time by which it queues."""
        return self.order[1]

    def __repr__(self) -> str:
        return f"Pending({self.workload.key})"


def effective_priority(workload: Workload, settings: Settings) -> int:
    """The priority that decides."""
    return workload.priority + (workload.priority_boost if settings.gates.priority_boost else 0)


def queue_timestamp(workload: Workload, settings: Settings) -> datetime:
    """The time by which a workload queues: that of its creation, unless it was evicted for certain reasons."""
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
    """Whether a workload may wait in a queue at all (`docs/spec/engine.md §1.2`)."""
    if not workload.active or (workload.gated_by and settings.gates.admission_gated_by):
        return False
    if not workload.conditions:
        return True
    if workload.finished or workload.is_true(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS):
        return False
    reserved = workload.condition(WorkloadCondition.QUOTA_RESERVED)
    return reserved is None or (reserved.status != TRUE and reserved.reason != QuotaReservedReason.ON_HOLD)


def backoff_expired(workload: Workload, now: datetime) -> bool:
    """Whether nothing keeps a workload waiting before it may be tried (`docs/spec/engine.md §1.9`)."""
    if workload.requeue_at is not None and now < workload.requeue_at:
        return False
    if not workload.conditions:
        return True
    requeued = workload.condition(WorkloadCondition.REQUEUED)
    return requeued is None or requeued.status != FALSE


def unparks(old: Workload, new: Workload, evaluated_generation: int | None) -> bool:
    """Whether an update of a parked workload is a reason to try it again (`docs/spec/engine.md §1.5` point 2)."""
    if old is new:
        return False
    return (
        old.pod_sets != new.pod_sets
        or old.priority != new.priority
        or old.priority_boost != new.priority_boost
        or old.active != new.active
        or old.queue_name != new.queue_name
        or (evaluated_generation is not None and new.generation not in (evaluated_generation, old.generation))
        or old.maximum_execution_seconds != new.maximum_execution_seconds
        or old.reclaimable != new.reclaimable
        or old.preemption_gate_closed != new.preemption_gate_closed
        or old.condition(WorkloadCondition.EVICTED) != new.condition(WorkloadCondition.EVICTED)
        or old.condition(WorkloadCondition.REQUEUED) != new.condition(WorkloadCondition.REQUEUED)
    )
