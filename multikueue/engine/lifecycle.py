# SPDX-License-Identifier: Apache-2.0
"""How a workload's value changes (`docs/spec/engine.md §3.11`, §4.7 and §7).

Owns the transitions as functions from one value to the next: reserved, evicted, released. Their conditions are those
of `engine.workload_conditions`. `mkctl simulate` and tests pass the result back to the engine.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from multikueue.api.constants import CheckState, DelayedTopology
from multikueue.api.reasons import (
    AdmittedReason,
    FinishedReason,
    PreemptedReason,
    QuotaReservedReason,
    RequeuedReason,
    WorkloadCondition,
)
from multikueue.core.conditions import FALSE
from multikueue.engine import messages
from multikueue.engine import workload_conditions as conditions
from multikueue.engine.decisions import Decision
from multikueue.engine.workloads import Admission, CheckStatus, PodSetAdmission, Workload


def reserved(workload: Workload, decision: Decision, now: datetime) -> Workload:
    """The workload with the reservation that a cycle decided; admitted too if no check has to be ready."""
    changed = replace(
        workload,
        admission=Admission(
            decision.cluster_queue,
            tuple(
                PodSetAdmission(
                    name=pod_set.name,
                    flavors=pod_set.flavors,
                    usage=pod_set.resource_usage,
                    count=pod_set.count,
                    delayed_topology=DelayedTopology.PENDING if pod_set.delayed_topology else None,
                    topology=pod_set.topology,
                )
                for pod_set in decision.pod_sets
            ),
        ),
        conditions=conditions.reserved(workload.conditions, cluster_queue=decision.cluster_queue, now=now),
    )
    return with_admission(changed, decision.admission_checks, now)


def checks_ready(workload: Workload, required: tuple[str, ...]) -> bool:
    """Whether every required check is listed and every listed one is Ready, even one that is no longer required."""
    return _lists(workload, required) and all(check.state == CheckState.READY for check in workload.checks)


def _lists(workload: Workload, required: tuple[str, ...]) -> bool:
    return {check.name for check in workload.checks}.issuperset(required)


def with_admission(workload: Workload, required: tuple[str, ...], now: datetime) -> Workload:
    """The workload with Admitted according to its checks (§7.3); unchanged while a required check is not listed."""
    if not _lists(workload, required):
        return workload
    if checks_ready(workload, required):
        return replace(workload, conditions=conditions.admitted(workload.conditions, now=now))
    if workload.condition(WorkloadCondition.ADMITTED) is None:
        return workload
    return _not_admitted(workload, AdmittedReason.UNSATISFIED_ADMISSION_CHECKS, now)


def evicted(
    workload: Workload, reason: str, message: str, now: datetime, *, preempted: PreemptedReason | None = None
) -> Workload:
    """The workload in the first phase of an eviction: it keeps its quota until `released` (§4.7)."""
    changed = conditions.evicted(workload.conditions, reason=reason, message=message, now=now)
    if preempted is not None:
        changed = conditions.preempted(changed, reason=preempted, message=message, now=now)
    return replace(
        workload,
        conditions=changed,
        checks=tuple(_reset(check, now) for check in workload.checks),
        unhealthy_nodes=(),
    )


def released(workload: Workload, now: datetime) -> Workload:
    """The evicted workload once its pods are gone: quota is free, and Requeued says whether it may queue again."""
    eviction = workload.condition(WorkloadCondition.EVICTED)
    reason = eviction.reason if eviction is not None else ""
    message = eviction.message if eviction is not None else ""
    requeued = conditions.requeue_after_eviction(workload.conditions, reason=reason, message=message, now=now)
    free = conditions.quota_not_reserved(
        requeued, reason=QuotaReservedReason.PENDING_EVALUATION, message=message, now=now
    )
    return _not_admitted(replace(workload, admission=None, conditions=free), AdmittedReason.NO_RESERVATION, now)


def finished(workload: Workload, reason: str, message: str, now: datetime) -> Workload:
    """The workload at its end."""
    done = conditions.finished(workload.conditions, reason=reason, message=message, now=now)
    return replace(workload, conditions=done)


def replaced(workload: Workload, by: Workload, now: datetime) -> Workload:
    """The slice whose quota a newer slice of its job has taken over (§3.11)."""
    message = messages.slice_replaced(uid=by.uid, job_uid=by.job_uid)
    return finished(workload, FinishedReason.WORKLOAD_SLICE_REPLACED, message, now)


def requeued(workload: Workload, now: datetime, *, cluster_queue_open: bool, local_queue_open: bool) -> Workload:
    """The workload with Requeued=True if it may queue again (§7.5); otherwise the same value."""
    condition = workload.condition(WorkloadCondition.REQUEUED)
    if condition is None or condition.status != FALSE or not workload.active:
        return workload
    reason = conditions.requeued_reason(
        condition.reason, cluster_queue_open=cluster_queue_open, local_queue_open=local_queue_open
    )
    backing_off = workload.requeue_at is not None and now < workload.requeue_at
    if reason is None or (reason is RequeuedReason.BACKOFF_FINISHED and backing_off):
        return workload
    return replace(workload, requeue_at=None, conditions=conditions.requeued(workload.conditions, reason, now=now))


def _not_admitted(workload: Workload, reason: AdmittedReason, now: datetime) -> Workload:
    return replace(workload, conditions=conditions.not_admitted(workload.conditions, reason, now=now))


def _reset(check: CheckStatus, now: datetime) -> CheckStatus:
    if check.state == CheckState.PENDING:
        return check
    return replace(
        check,
        state=CheckState.PENDING,
        message=messages.reset_check(check.state),
        last_transition_time=now,
        retry_count=conditions.retries_after_eviction(check.state, check.retry_count),
    )
