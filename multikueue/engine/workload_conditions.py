# SPDX-License-Identifier: Apache-2.0
"""The conditions of a Workload at each step of its life (`docs/spec/engine.md §3.11`, §4.7 and §7).

Owns types, reasons and texts. The manager applies them to a status (`manager.workload.changes`), the engine and
`mkctl simulate` to a value (`engine.lifecycle`). Every function returns the same tuple if nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeAlias

from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.reasons import (
    AdmittedReason,
    EvictedReason,
    PreemptedReason,
    QuotaReservedReason,
    RequeuedReason,
    WorkloadCondition,
)
from multikueue.core.conditions import FALSE, TRUE, Condition, find, set_condition
from multikueue.engine import messages

Conditions: TypeAlias = tuple[Condition, ...]
Hold: TypeAlias = tuple[QuotaReservedReason, str]
"""The reason and message of QuotaReserved=False."""

GATED_PREFIX: Final = "Admission is gated by: "

_ENDED_BY_RESERVATION: Final = (
    WorkloadCondition.EVICTED,
    WorkloadCondition.PREEMPTED,
    WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
)
_REQUEUED_AT_ONCE: Final = frozenset(
    {EvictedReason.PREEMPTED, EvictedReason.NODE_FAILURES, EvictedReason.DEVICE_CLAIMS_CHANGED}
)


def changed(
    conditions: Conditions, kind: WorkloadCondition, *, status: str, reason: str, message: str, now: datetime
) -> Conditions:
    """`conditions` with one of them set; the transition time moves only if its status flips."""
    return set_condition(
        conditions,
        Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=now),
    )


def reserved(conditions: Conditions, *, cluster_queue: str, now: datetime) -> Conditions:
    """Quota is reserved, which ends an eviction, a preemption and a wait for preemption gates (§3.11)."""
    conditions = changed(
        conditions,
        WorkloadCondition.QUOTA_RESERVED,
        status=TRUE,
        reason=QuotaReservedReason.QUOTA_RESERVED,
        message=messages.quota_reserved(cluster_queue),
        now=now,
    )
    for kind in _ENDED_BY_RESERVATION:
        old = find(conditions, kind)
        if old is not None and old.status == TRUE:
            conditions = changed(
                conditions,
                kind,
                status=FALSE,
                reason=EvictedReason.QUOTA_RESERVED,
                message=messages.previously(old.message),
                now=now,
            )
    return conditions


def admitted(conditions: Conditions, *, now: datetime) -> Conditions:
    """Admitted=True."""
    return changed(
        conditions,
        WorkloadCondition.ADMITTED,
        status=TRUE,
        reason=AdmittedReason.ADMITTED,
        message=messages.ADMITTED,
        now=now,
    )


def not_admitted(conditions: Conditions, reason: AdmittedReason, *, now: datetime) -> Conditions:
    """Admitted=False for one of the reasons in `messages.NOT_ADMITTED`."""
    return changed(
        conditions,
        WorkloadCondition.ADMITTED,
        status=FALSE,
        reason=reason,
        message=messages.NOT_ADMITTED[reason],
        now=now,
    )


def quota_not_reserved(conditions: Conditions, *, reason: str, message: str, now: datetime) -> Conditions:
    """QuotaReserved=False; Admitted is not changed."""
    return changed(conditions, WorkloadCondition.QUOTA_RESERVED, status=FALSE, reason=reason, message=message, now=now)


def evicted(conditions: Conditions, *, reason: str, message: str, now: datetime) -> Conditions:
    """First phase of an eviction: the job has to stop; quota is still held (§4.7)."""
    return changed(conditions, WorkloadCondition.EVICTED, status=TRUE, reason=reason, message=message, now=now)


def preempted(conditions: Conditions, *, reason: PreemptedReason | str, message: str, now: datetime) -> Conditions:
    """Preempted=True, beside `evicted`."""
    return changed(conditions, WorkloadCondition.PREEMPTED, status=TRUE, reason=reason, message=message, now=now)


def requeue_after_eviction(conditions: Conditions, *, reason: str, message: str, now: datetime) -> Conditions:
    """Second phase of an eviction: Requeued says whether the workload may queue at once (§4.7)."""
    status = TRUE if reason in _REQUEUED_AT_ONCE else FALSE
    return changed(conditions, WorkloadCondition.REQUEUED, status=status, reason=reason, message=message, now=now)


def requeued(conditions: Conditions, reason: RequeuedReason, *, now: datetime) -> Conditions:
    """Requeued=True, for a reason that `requeued_reason` gave (§7.5)."""
    return changed(
        conditions,
        WorkloadCondition.REQUEUED,
        status=TRUE,
        reason=reason,
        message=messages.REQUEUED[reason],
        now=now,
    )


def requeued_reason(evicted_for: str, *, cluster_queue_open: bool, local_queue_open: bool) -> RequeuedReason | None:
    """Why an evicted workload, whose back-off is over, may queue again; None if it may not (§7.5)."""
    # By prefix: active=true also requeues after DeactivatedDueTo<Cause> (docs/spec/engine.md §12 row 13).
    if evicted_for.startswith(EvictedReason.DEACTIVATED):
        return RequeuedReason.REACTIVATED
    if evicted_for in (EvictedReason.PODS_READY_TIMEOUT, EvictedReason.ADMISSION_CHECK):
        return RequeuedReason.BACKOFF_FINISHED
    if evicted_for == EvictedReason.LOCAL_QUEUE_STOPPED and local_queue_open:
        return RequeuedReason.LOCAL_QUEUE_RESTARTED
    if evicted_for == EvictedReason.CLUSTER_QUEUE_STOPPED and cluster_queue_open:
        return RequeuedReason.CLUSTER_QUEUE_RESTARTED
    return None


def finished(conditions: Conditions, *, reason: str, message: str, now: datetime) -> Conditions:
    """Finished=True."""
    return changed(conditions, WorkloadCondition.FINISHED, status=TRUE, reason=reason, message=message, now=now)


def retries_after_eviction(state: CheckState | str, retry_count: int | None) -> int | None:
    """The retry count of an admission check that an eviction resets; it starts anew after any state but Retry."""
    return (retry_count or 0) + 1 if state == CheckState.RETRY else None


def queue_missing(kind: str, name: str) -> Hold:
    """A queue that the workload refers to does not exist."""
    return QuotaReservedReason.MISCONFIGURED, f"{kind} {name} doesn't exist"


def queue_lost(kind: str, name: str) -> Hold:
    """A queue through which the workload has a reservation was deleted, or is being deleted."""
    return QuotaReservedReason.MISCONFIGURED, f"{kind} {name} is terminating or missing"


def queue_inactive(kind: str, name: str) -> Hold:
    """A queue admits nothing now."""
    return QuotaReservedReason.SUSPENDED, f"{kind} {name} is inactive"


def queue_stopped(kind: str, name: str) -> Hold:
    """The stop policy of a queue takes a reservation that is not admitted yet (§7.6)."""
    return QuotaReservedReason.SUSPENDED, f"{kind} {name} is stopped"


def gated(by: Iterable[str]) -> Hold:
    """Admission gates are left on the workload."""
    return QuotaReservedReason.ADMISSION_GATED, f"{GATED_PREFIX}{','.join(by)}"


def drained(*, cluster_queue: str | None, local_queue: str | None) -> tuple[EvictedReason, str] | None:
    """Why the stop policies of its queues evict an admitted workload; None if they do not (§7.6)."""
    if cluster_queue == StopPolicy.HOLD_AND_DRAIN:
        return EvictedReason.CLUSTER_QUEUE_STOPPED, messages.CLUSTER_QUEUE_STOPPED
    if local_queue == StopPolicy.HOLD_AND_DRAIN:
        return EvictedReason.LOCAL_QUEUE_STOPPED, messages.LOCAL_QUEUE_STOPPED
    return None
