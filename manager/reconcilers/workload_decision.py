# SPDX-License-Identifier: Apache-2.0
"""What becomes of a Workload now: the lifecycle rules in their order.

Owns `docs/spec/engine.md §7.2` to §7.9 as one pure function of facts, status and time. Promises that deciding again on
its own result changes nothing, so that late and repeated calls are harmless. The rule numbers in comments are the
steps of §7.2. Quota, queue order and the stop of a job are decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Final

from manager import workload_changes
from manager.reconcilers.workload_facts import QueueFacts, WorkloadFacts, assigned_flavors, required_checks
from manager.workload_status import Status
from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.reasons import (
    DeactivationCause,
    EvictedReason,
    FinishedReason,
    PodsReadyReason,
    QuotaReservedReason,
    RequeuedReason,
    WorkloadCondition,
    deactivated_due_to,
)
from multikueue.core.backoff import Backoff
from multikueue.core.conditions import FALSE, TRUE

PENDING_EVALUATION: Final = "Workload is pending evaluation in the scheduling queue"
_FIRST_WORD_SECONDS: Final = 2.0  # creation times are whole seconds
_BACKOFF_JITTER: Final = 0.0001  # upstream's: only keeps equal workloads from one instant
_QUEUE_REASONS: Final = frozenset(
    {QuotaReservedReason.MISCONFIGURED, QuotaReservedReason.SUSPENDED, QuotaReservedReason.ADMISSION_GATED}
)
_DEACTIVATED_BY_KUEUE: Final = frozenset(map(deactivated_due_to, DeactivationCause))
_OWN_PREFIXES: Final = ("LocalQueue ", "ClusterQueue ", "Admission is gated by: ")


@dataclass(frozen=True, slots=True)
class Note:
    """An event to be recorded about the workload."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The status wanted now, what else is to be done, and when to look again (seconds, None for on change)."""

    status: Status
    deactivate: bool = False
    delete: bool = False
    delete_job: bool = False
    revisit: float | None = None
    notes: tuple[Note, ...] = ()


def decide(facts: WorkloadFacts, status: Status, *, now: datetime, random: Random) -> Decision:
    """The next step of this workload's life."""
    # 1. Nobody is left who could run or finish it.
    if facts.owner_gone and not status.is_true(WorkloadCondition.FINISHED):
        return Decision(
            status=workload_changes.finish(
                status,
                reason=FinishedReason.OWNER_NOT_FOUND,
                message="The job that owned the workload is gone",
                now=now,
            )
        )
    # 2. Finished: only retention is left.
    finished = status.condition(WorkloadCondition.FINISHED)
    if finished is not None and finished.status == TRUE:
        return _retain(facts, status, since=finished.last_transition_time, now=now)
    # 3. A check asks for a pause before the next try.
    status = _delay_for_retries(status, now)
    # 5. Somebody asked for deactivation; the next reconcile sees spec.active=false.
    if facts.active and status.is_true(WorkloadCondition.DEACTIVATION_TARGET):
        return Decision(status=status, deactivate=True)
    # 7. Deactivated.
    if not facts.active:
        return _inactive(facts, status, now)
    # 6. Waiting: back-off and the reasons that hold it back.
    revisit: float | None = None
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        status, revisit = _requeue(facts, status, now)
    # 8. The list of checks.
    soon = _spoken_of_soon(facts, status, now)
    if soon is not None:
        revisit = soon if revisit is None else min(soon, revisit)
    elif facts.cluster_queue is not None:
        required = required_checks(facts.cluster_queue.checks, assigned_flavors(status.admission))
        status = workload_changes.sync_checks(status, required, now=now)
    # 9. Reserved, or 10. not.
    if status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return _reserved(facts, status, now=now, random=random)
    return Decision(status=_waiting(facts, status, now), revisit=revisit)


def _spoken_of_soon(facts: WorkloadFacts, status: Status, now: datetime) -> float | None:
    """The seconds for which the scheduler's first word is waited for, which lists the checks in the same write."""
    if facts.created is None or status.checks or status.condition(WorkloadCondition.QUOTA_RESERVED) is not None:
        return None
    left = _FIRST_WORD_SECONDS - (now - facts.created).total_seconds()
    return left if 0 < left <= _FIRST_WORD_SECONDS else None


def _retain(facts: WorkloadFacts, status: Status, *, since: datetime, now: datetime) -> Decision:
    if facts.retention_seconds is None or facts.deleting:
        return Decision(status=status)
    left = facts.retention_seconds - (now - since).total_seconds()
    return Decision(status=status, delete=left <= 0, revisit=left if left > 0 else None)


def _delay_for_retries(status: Status, now: datetime) -> Status:
    times = [
        check.last_transition_time + timedelta(seconds=check.requeue_after_seconds)
        for check in status.checks
        if check.state is CheckState.RETRY and check.requeue_after_seconds is not None
    ]
    latest = max(times, default=None)
    if latest is None or latest <= now or (status.requeue_at is not None and latest <= status.requeue_at):
        return status
    return replace(status, requeue_at=latest)


def _inactive(facts: WorkloadFacts, status: Status, now: datetime) -> Decision:
    status = workload_changes.deactivate(status, now=now)
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        status = _say(
            status, reason=QuotaReservedReason.DEACTIVATED, message=workload_changes.DEACTIVATED_MESSAGE, now=now
        )
    evicted = status.condition(WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != TRUE or evicted.reason not in _DEACTIVATED_BY_KUEUE:
        return Decision(status=status)  # by its user, or before it ever had quota
    if facts.deactivated_retention_seconds is None or facts.deleting:
        return Decision(status=status)
    left = facts.deactivated_retention_seconds - (now - evicted.last_transition_time).total_seconds()
    return Decision(status=status, delete_job=left <= 0, revisit=left if left > 0 else None)


def _requeue(facts: WorkloadFacts, status: Status, now: datetime) -> tuple[Status, float | None]:
    if status.requeue_at is not None:
        left = (status.requeue_at - now).total_seconds()
        if left > 0:
            return status, left
        status = replace(status, requeue_at=None)
    requeued = status.condition(WorkloadCondition.REQUEUED)
    if requeued is None or requeued.status != FALSE:
        return status, None
    flipped = _requeue_reason(requeued.reason, facts)
    if flipped is None:
        return status, None
    reason, message = flipped
    return workload_changes.requeue(status, reason=reason, message=message, now=now), None


def _requeue_reason(evicted_for: str, facts: WorkloadFacts) -> tuple[RequeuedReason, str] | None:
    # By prefix, so that DeactivatedDueTo<Cause> is freed by active=true as well (engine.md §12, hazard 13).
    if evicted_for.startswith(EvictedReason.DEACTIVATED):
        return RequeuedReason.REACTIVATED, "The workload was reactivated"
    if evicted_for in (EvictedReason.PODS_READY_TIMEOUT, EvictedReason.ADMISSION_CHECK):
        return RequeuedReason.BACKOFF_FINISHED, "The workload backoff was finished"
    if evicted_for == EvictedReason.LOCAL_QUEUE_STOPPED and _runs(facts.local_queue):
        return RequeuedReason.LOCAL_QUEUE_RESTARTED, "The LocalQueue was restarted after being stopped"
    if evicted_for == EvictedReason.CLUSTER_QUEUE_STOPPED and _runs(facts.cluster_queue):
        return RequeuedReason.CLUSTER_QUEUE_RESTARTED, "The ClusterQueue was restarted after being stopped"
    return None


def _runs(queue: QueueFacts | None) -> bool:
    return queue is not None and queue.stop_policy is StopPolicy.NONE


def _reserved(facts: WorkloadFacts, status: Status, *, now: datetime, random: Random) -> Decision:
    # Between the two phases of an eviction the job side has the word: nothing is added to what it was told.
    if status.is_true(WorkloadCondition.EVICTED):
        return Decision(status=status)
    admitted = status.is_true(WorkloadCondition.ADMITTED)
    # 9a. Outcome of the checks (§7.3).
    rejected = _said(status, CheckState.REJECTED)
    if rejected:
        message = f"AdmissionCheck in Rejected state: {rejected}"
        status = workload_changes.target_deactivation(
            status, cause=DeactivationCause.ADMISSION_CHECK, message=message, now=now
        )
        note = Note("Warning", "AdmissionCheckRejected", f"Deactivated due to {message}")
        return Decision(status=status, deactivate=True, notes=(note,))
    retried = _said(status, CheckState.RETRY)
    if retried:
        status = workload_changes.evict(
            status,
            reason=EvictedReason.ADMISSION_CHECK,
            message=f"Evicted due to AdmissionCheck in Retry state: {retried}",
            now=now,
        )
        return Decision(status=status)
    # 9b. Stop policies and queues that are gone (§7.6).
    if not admitted:
        loss = _loss(facts)
        if loss is not None:
            reason, message = loss
            return Decision(
                status=workload_changes.without_reservation(status, reason=reason, message=message, now=now)
            )
    else:
        drained = _drained(facts)
        if drained is not None:
            cause, message = drained
            status = workload_changes.evict(status, reason=cause, message=message, now=now)
            return Decision(status=status)
    # 9c. Admitted as the checks say.
    status = workload_changes.sync_admitted(status, now=now)
    if not status.is_true(WorkloadCondition.ADMITTED):
        return Decision(status=status)
    # 9d. Pods ready in time (§7.7), and 9e. the time it may run (§7.8).
    late = _pods_not_ready(facts, status, now=now, random=random)
    if late.status is not status:
        return late
    over = _execution_time(facts, status, now)
    if over.status is not status:
        return over
    waits = [item for item in (late.revisit, over.revisit) if item is not None]
    return Decision(status=status, revisit=min(waits, default=None))


def _said(status: Status, state: CheckState) -> str:
    return ", ".join(f'"{check.name}" ({check.message})' for check in status.checks if check.state is state)


def _loss(facts: WorkloadFacts) -> tuple[QuotaReservedReason, str] | None:
    local, cluster = facts.local_queue, facts.cluster_queue
    if local is None or local.terminating:
        return QuotaReservedReason.MISCONFIGURED, f"LocalQueue {facts.queue_name} is terminating or missing"
    if cluster is None or cluster.terminating:
        return QuotaReservedReason.MISCONFIGURED, f"ClusterQueue {facts.cluster_queue_name} is terminating or missing"
    if not _runs(local):
        return QuotaReservedReason.SUSPENDED, f"LocalQueue {facts.queue_name} is stopped"
    if not _runs(cluster):
        return QuotaReservedReason.SUSPENDED, f"ClusterQueue {facts.cluster_queue_name} is stopped"
    return None


def _drained(facts: WorkloadFacts) -> tuple[EvictedReason, str] | None:
    if facts.cluster_queue is not None and facts.cluster_queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return EvictedReason.CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped"
    if facts.local_queue is not None and facts.local_queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return EvictedReason.LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped"
    return None


def _pods_not_ready(facts: WorkloadFacts, status: Status, *, now: datetime, random: Random) -> Decision:
    settings = facts.pods_ready
    ready = status.condition(WorkloadCondition.PODS_READY)
    admitted = status.condition(WorkloadCondition.ADMITTED)
    if settings is None or admitted is None or (ready is not None and ready.status == TRUE):
        return Decision(status=status)
    if ready is not None and ready.reason == PodsReadyReason.WAIT_FOR_RECOVERY:
        cause, since, allowed = (
            PodsReadyReason.WAIT_FOR_RECOVERY,
            ready.last_transition_time,
            settings.recovery_timeout_seconds,
        )
    else:
        cause, since, allowed = PodsReadyReason.WAIT_FOR_START, admitted.last_transition_time, settings.timeout_seconds
    if allowed is None:
        return Decision(status=status)
    left = allowed - (now - since).total_seconds()
    if left > 0:
        return Decision(status=status, revisit=left)
    count = (status.requeue_count or 0) + 1
    if settings.backoff_limit is not None and count > settings.backoff_limit:
        return Decision(
            status=workload_changes.target_deactivation(
                status,
                cause=DeactivationCause.REQUEUING_LIMIT_EXCEEDED,
                message="exceeding the maximum number of re-queuing retries",
                now=now,
            ),
            deactivate=True,
        )
    backoff = Backoff(
        base=settings.backoff_base_seconds,
        cap=max(settings.backoff_base_seconds, settings.backoff_max_seconds),
        jitter=_BACKOFF_JITTER,
    )
    requeue_at = now + timedelta(seconds=backoff.delay(count, random))
    evicted = workload_changes.evict(
        status,
        reason=EvictedReason.PODS_READY_TIMEOUT,
        message=f"Exceeded the PodsReady timeout {facts.key}",
        underlying_cause=cause,
        now=now,
    )
    if evicted.requeue_at is not None:
        requeue_at = max(requeue_at, evicted.requeue_at)
    wanted = replace(evicted, requeue_count=count, requeue_at=requeue_at)
    return Decision(status=wanted)


def _execution_time(facts: WorkloadFacts, status: Status, now: datetime) -> Decision:
    admitted = status.condition(WorkloadCondition.ADMITTED)
    if facts.maximum_execution_seconds is None or admitted is None:
        return Decision(status=status)
    ran = (now - admitted.last_transition_time).total_seconds() + (status.past_execution_seconds or 0)
    left = facts.maximum_execution_seconds - ran
    if left > 0:
        return Decision(status=status, revisit=left)
    message = "exceeding the maximum execution time"
    targeted = workload_changes.target_deactivation(
        status, cause=DeactivationCause.MAXIMUM_EXECUTION_TIME_EXCEEDED, message=message, now=now
    )
    return Decision(
        status=replace(targeted, past_execution_seconds=None),
        deactivate=True,
        notes=(Note("Warning", "MaximumExecutionTimeExceeded", message),),
    )


def _waiting(facts: WorkloadFacts, status: Status, now: datetime) -> Status:
    """§7.12: why it has no reservation, where that is not the scheduler's to say.

    What is wrong with its queue, or with an equal workload, is said at once, also to one that no cycle has looked at: a
    person who named a queue that does not exist should not have to guess.
    """
    hold = status.condition(WorkloadCondition.QUOTA_RESERVED)
    if hold is not None and hold.reason == QuotaReservedReason.ON_HOLD:
        return status
    problem = _problem(facts)
    if problem is not None:
        reason, message = problem
        return _say(status, reason=reason, message=message, now=now)
    stale = hold is not None and (
        hold.reason == QuotaReservedReason.DEACTIVATED
        or (hold.reason in _QUEUE_REASONS and hold.message.startswith(_OWN_PREFIXES))
    )
    if facts.bypassed is not None and (hold is None or stale or hold.reason == QuotaReservedReason.PENDING_EVALUATION):
        return _say(status, reason=facts.bypassed.reason, message=facts.bypassed.message, now=now)
    if stale:
        return _say(status, reason=QuotaReservedReason.PENDING_EVALUATION, message=PENDING_EVALUATION, now=now)
    return status


def _problem(facts: WorkloadFacts) -> tuple[QuotaReservedReason, str] | None:
    local, cluster = facts.local_queue, facts.cluster_queue
    if local is None:
        return QuotaReservedReason.MISCONFIGURED, f"LocalQueue {facts.queue_name} doesn't exist"
    if not _runs(local) or local.terminating:
        return QuotaReservedReason.SUSPENDED, f"LocalQueue {facts.queue_name} is inactive"
    if cluster is None:
        return QuotaReservedReason.MISCONFIGURED, f"ClusterQueue {facts.cluster_queue_name} doesn't exist"
    if not cluster.active or not _runs(cluster) or cluster.terminating:
        return QuotaReservedReason.SUSPENDED, f"ClusterQueue {facts.cluster_queue_name} is inactive"
    if facts.gated_by:
        return QuotaReservedReason.ADMISSION_GATED, f"Admission is gated by: {','.join(facts.gated_by)}"
    return None


def _say(status: Status, *, reason: QuotaReservedReason, message: str, now: datetime) -> Status:
    return workload_changes.without_reservation(status, reason=reason, message=message, now=now)
