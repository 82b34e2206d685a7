# SPDX-License-Identifier: Apache-2.0
"""What becomes of a workload's status (`docs/spec/engine.md §3.11`, §4.7 and §7).

Owns the transitions as functions from one value to the next: reserved, evicted, released. The manager writes what they
say; `mkctl simulate` and tests hand the result straight back to the engine.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from multikueue.api.constants import CheckState
from multikueue.api.reasons import (
    AdmittedReason,
    EvictedReason,
    PreemptedReason,
    QuotaReservedReason,
    RequeuedReason,
    WorkloadCondition,
)
from multikueue.core.conditions import FALSE, TRUE, Condition, set_condition
from multikueue.engine import messages
from multikueue.engine.decisions import Decision
from multikueue.engine.workloads import Admission, CheckStatus, PodSetAdmission, Workload

_ENDED_BY_RESERVATION = (
    WorkloadCondition.EVICTED,
    WorkloadCondition.PREEMPTED,
    WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
)
_AT_ONCE = (EvictedReason.PREEMPTED, EvictedReason.NODE_FAILURES)


def reserved(workload: Workload, decision: Decision, now: datetime) -> Workload:
    """The workload with the reservation that a cycle decided; admitted too when no check has to be ready."""
    conditions = _set(
        workload.conditions,
        WorkloadCondition.QUOTA_RESERVED,
        TRUE,
        QuotaReservedReason.QUOTA_RESERVED,
        decision.message,
        now,
    )
    for kind in _ENDED_BY_RESERVATION:
        old = workload.condition(kind)
        if old is not None and old.status == TRUE:
            conditions = _set(
                conditions, kind, FALSE, EvictedReason.QUOTA_RESERVED, messages.previously(old.message), now
            )
    changed = replace(
        workload,
        admission=Admission(
            decision.cluster_queue,
            tuple(
                PodSetAdmission(
                    name=pod_set.name, flavors=pod_set.flavors, usage=pod_set.resource_usage, count=pod_set.count
                )
                for pod_set in decision.pod_sets
            ),
        ),
        conditions=conditions,
    )
    return with_admission(changed, decision.admission_checks, now)


def with_admission(workload: Workload, required: tuple[str, ...], now: datetime) -> Workload:
    """The workload with Admitted as its checks say (§7.3); a check that is not listed yet keeps it waiting."""
    states = {check.name: check.state for check in workload.checks}
    if any(name not in states for name in required):
        return workload
    if all(states[name] == CheckState.READY for name in required):
        return _with(workload, WorkloadCondition.ADMITTED, TRUE, AdmittedReason.ADMITTED, messages.ADMITTED, now)
    if workload.condition(WorkloadCondition.ADMITTED) is None:
        return workload
    return _with(
        workload,
        WorkloadCondition.ADMITTED,
        FALSE,
        AdmittedReason.UNSATISFIED_ADMISSION_CHECKS,
        messages.UNSATISFIED_CHECKS,
        now,
    )


def evicted(
    workload: Workload, reason: str, message: str, now: datetime, *, preempted: PreemptedReason | None = None
) -> Workload:
    """The workload told to stop: it keeps its quota until `released` (§4.7)."""
    changed = _with(workload, WorkloadCondition.EVICTED, TRUE, reason, message, now)
    if preempted is not None:
        changed = _with(changed, WorkloadCondition.PREEMPTED, TRUE, preempted, message, now)
    return replace(changed, checks=tuple(_reset(check, now) for check in workload.checks), unhealthy_nodes=())


def released(workload: Workload, now: datetime) -> Workload:
    """The evicted workload once its pods are gone: quota is free, and Requeued says whether it may queue again."""
    eviction = workload.condition(WorkloadCondition.EVICTED)
    reason = eviction.reason if eviction is not None else ""
    message = eviction.message if eviction is not None else ""
    changed = replace(workload, admission=None)
    status = TRUE if reason in _AT_ONCE else FALSE
    changed = _with(changed, WorkloadCondition.REQUEUED, status, reason, message, now)
    changed = _with(
        changed, WorkloadCondition.QUOTA_RESERVED, FALSE, QuotaReservedReason.PENDING_EVALUATION, message, now
    )
    return _with(
        changed, WorkloadCondition.ADMITTED, FALSE, AdmittedReason.NO_RESERVATION, messages.NO_RESERVATION, now
    )


def finished(workload: Workload, reason: str, message: str, now: datetime) -> Workload:
    """The workload at its end."""
    return _with(workload, WorkloadCondition.FINISHED, TRUE, reason, message, now)


def requeued(workload: Workload, now: datetime, *, cluster_queue_open: bool, local_queue_open: bool) -> Workload:
    """The workload with Requeued flipped, where its time has come (§7.5); the same value where not."""
    condition = workload.condition(WorkloadCondition.REQUEUED)
    if condition is None or condition.status != FALSE or not workload.active:
        return workload
    match condition.reason:
        case EvictedReason.PODS_READY_TIMEOUT | EvictedReason.ADMISSION_CHECK:
            if workload.requeue_at is not None and now < workload.requeue_at:
                return workload
            reason, message = RequeuedReason.BACKOFF_FINISHED, messages.BACKOFF_FINISHED
        case EvictedReason.LOCAL_QUEUE_STOPPED if local_queue_open:
            reason, message = RequeuedReason.LOCAL_QUEUE_RESTARTED, messages.LOCAL_QUEUE_RESTARTED
        case EvictedReason.CLUSTER_QUEUE_STOPPED if cluster_queue_open:
            reason, message = RequeuedReason.CLUSTER_QUEUE_RESTARTED, messages.CLUSTER_QUEUE_RESTARTED
        case text if text.startswith(EvictedReason.DEACTIVATED):
            # Also after DeactivatedDueTo…: docs/spec/engine.md §12 row 13.
            reason, message = RequeuedReason.REACTIVATED, messages.REACTIVATED
        case _:
            return workload
    changed = replace(workload, requeue_at=None)
    return _with(changed, WorkloadCondition.REQUEUED, TRUE, reason, message, now)


def _reset(check: CheckStatus, now: datetime) -> CheckStatus:
    if check.state == CheckState.PENDING:
        return check
    return replace(
        check,
        state=CheckState.PENDING,
        message=messages.reset_check(check.state),
        last_transition_time=now,
        retry_count=(check.retry_count or 0) + 1 if check.state == CheckState.RETRY else None,
    )


def _with(workload: Workload, kind: str, status: str, reason: str, message: str, now: datetime) -> Workload:
    return replace(workload, conditions=_set(workload.conditions, kind, status, reason, message, now))


def _set(
    conditions: tuple[Condition, ...], kind: str, status: str, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    return set_condition(
        conditions,
        Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=now),
    )
