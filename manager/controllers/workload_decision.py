# SPDX-License-Identifier: Apache-2.0
"""The next step in the lifecycle of a Workload: the rules in their order.

Owns `docs/spec/engine.md §7.2` to §7.9 as one pure function of facts, status and time. Promises to be idempotent:
deciding again on its result changes nothing, so that late and repeated calls are harmless. The rule numbers in comments
are the steps of §7.2. Quota, queue order and the stop of a job are decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Final

from manager.controllers.workload_facts import AdmissionQueueFacts, WorkloadFacts, assigned_flavors, required_checks
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.reasons import (
    DeactivationCause,
    EvictedReason,
    FinishedReason,
    PodsReadyReason,
    QuotaReservedReason,
    WorkloadCondition,
    WorkloadEvent,
    deactivated_due_to,
)
from multikueue.core.backoff import Backoff
from multikueue.core.conditions import FALSE, TRUE
from multikueue.core.duration import format_duration
from multikueue.engine import messages
from multikueue.engine import workload_conditions as conditions

_LOOK_AGAIN_SECONDS: Final = 1.0
_FIRST_DECISION_SECONDS: Final = 2.0  # creation times are whole seconds
_BACKOFF_JITTER: Final = 0.0001  # upstream's: only keeps equal workloads from one instant
_QUEUE_REASONS: Final = frozenset(
    {QuotaReservedReason.MISCONFIGURED, QuotaReservedReason.SUSPENDED, QuotaReservedReason.ADMISSION_GATED}
)
_DEACTIVATED_BY_KUEUE: Final = frozenset(map(deactivated_due_to, DeactivationCause))
_OWN_PREFIXES: Final = ("LocalQueue ", "ClusterQueue ", conditions.GATED_PREFIX)


@dataclass(frozen=True, slots=True)
class Note:
    """An event about the workload, and about its job as well if the user of the job is to see it."""

    type: str
    reason: str
    message: str
    about_job: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDecision:
    """The new status, other actions, and when to decide again (seconds; None: on the next change)."""

    status: Status
    deactivate: bool = False
    delete: bool = False
    delete_job: bool = False
    release: bool = False
    """Remove the finalizer: no job is left that would."""
    revisit: float | None = None
    notes: tuple[Note, ...] = ()


def decide(facts: WorkloadFacts, status: Status, *, now: datetime, random: Random) -> WorkloadDecision:
    """The next step in the lifecycle of this workload."""
    # 1. No owner is left that could run or finish it.
    if facts.owner_gone and not status.is_true(WorkloadCondition.FINISHED):
        message = (
            "The job that owned the workload was deleted without it (kubectl delete --cascade=orphan, or a client that"
            " sets no propagation policy). The workload no longer holds quota; to delete it: kubectl delete"
            f" workloads.kueue.x-k8s.io {facts.key.name} -n {facts.key.namespace}"
        )
        return WorkloadDecision(
            status=changes.finish(status, reason=FinishedReason.OWNER_NOT_FOUND, message=message, now=now),
            # One that is being deleted goes with its job: there is nothing to do about it.
            notes=() if facts.deleting else (Note("Normal", FinishedReason.OWNER_NOT_FOUND, message),),
        )
    # 2. Finished: only retention remains, and a finalizer that no job will remove.
    finished = status.condition(WorkloadCondition.FINISHED)
    if finished is not None and finished.status == TRUE:
        kept = _retain(facts, status, since=finished.last_transition_time, now=now)
        return replace(kept, release=facts.owner_gone)
    # It was created by hand and never had a job: nothing runs that would have to end first.
    if facts.deleting and not facts.owned and not facts.owner_gone:
        return WorkloadDecision(status=status, release=True)
    # 3. A check requests a pause before the next attempt.
    status = _delay_for_retries(changes.drop_left_over(status), now)
    # 5. Deactivation was requested; the next reconcile sees spec.active=false.
    if facts.active and status.is_true(WorkloadCondition.DEACTIVATION_TARGET):
        return WorkloadDecision(status=status, deactivate=True)
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
        status = changes.sync_checks(status, required, now=now)
    # 9. Reserved, or 10. not.
    if status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return _reserved(facts, status, now=now, random=random)
    waiting = _waiting(facts, status, now)
    newly_held = _reports_suspended(waiting) and not _reports_suspended(status)
    return WorkloadDecision(status=waiting, revisit=revisit, notes=_held_notes(facts) if newly_held else ())


def _spoken_of_soon(facts: WorkloadFacts, status: Status, now: datetime) -> float | None:
    """How many seconds to wait for the scheduler's first decision, which lists the checks in the same write.

    None also if there will be no such decision, since a reason to wait is written now.
    """
    if facts.created is None or status.checks or status.condition(WorkloadCondition.QUOTA_RESERVED) is not None:
        return None
    if facts.bypassed is not None or _problem(facts) is not None:
        return None
    left = _FIRST_DECISION_SECONDS - (now - facts.created).total_seconds()
    return left if 0 < left <= _FIRST_DECISION_SECONDS else None


def _retain(facts: WorkloadFacts, status: Status, *, since: datetime, now: datetime) -> WorkloadDecision:
    if facts.retention_seconds is None or facts.deleting:
        return WorkloadDecision(status=status)
    left = facts.retention_seconds - (now - since).total_seconds()
    return WorkloadDecision(status=status, delete=left <= 0, revisit=left if left > 0 else None)


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


def _inactive(facts: WorkloadFacts, status: Status, now: datetime) -> WorkloadDecision:
    status = changes.deactivate(status, now=now)
    if _is_left_to_us(facts, status):
        return _completed(facts, status, now)
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        status = _set_reason(status, reason=QuotaReservedReason.DEACTIVATED, message=messages.DEACTIVATED, now=now)
    evicted = status.condition(WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != TRUE or evicted.reason not in _DEACTIVATED_BY_KUEUE:
        return WorkloadDecision(status=status)  # deactivated by its user
    if facts.deactivated_retention_seconds is None or facts.deleting:
        return WorkloadDecision(status=status)
    left = facts.deactivated_retention_seconds - (now - evicted.last_transition_time).total_seconds()
    return WorkloadDecision(status=status, delete_job=left <= 0, revisit=left if left > 0 else None)


def _is_left_to_us(facts: WorkloadFacts, status: Status) -> bool:
    """Whether it is evicted and holds quota, and no job reconciler knows when its job has stopped."""
    evicted = status.is_true(WorkloadCondition.EVICTED) and status.is_true(WorkloadCondition.QUOTA_RESERVED)
    return evicted and facts.runs_on_workers_only


def _completed(facts: WorkloadFacts, status: Status, now: datetime) -> WorkloadDecision:
    """The eviction is complete once nothing runs on a worker any more; its controller here cannot see that."""
    if facts.may_run_elsewhere:
        return WorkloadDecision(status=status, revisit=_LOOK_AGAIN_SECONDS)
    return WorkloadDecision(status=changes.complete_eviction(status, now=now))


def _requeue(facts: WorkloadFacts, status: Status, now: datetime) -> tuple[Status, float | None]:
    if status.requeue_at is not None:
        left = (status.requeue_at - now).total_seconds()
        if left > 0:
            return status, left
        status = replace(status, requeue_at=None)
    requeued = status.condition(WorkloadCondition.REQUEUED)
    if requeued is None or requeued.status != FALSE:
        return status, None
    reason = conditions.requeued_reason(
        requeued.reason, cluster_queue_open=_runs(facts.cluster_queue), local_queue_open=_runs(facts.local_queue)
    )
    return (status if reason is None else changes.requeue(status, reason, now=now)), None


def _runs(queue: AdmissionQueueFacts | None) -> bool:
    return queue is not None and queue.stop_policy is StopPolicy.NONE


def _reserved(facts: WorkloadFacts, status: Status, *, now: datetime, random: Random) -> WorkloadDecision:
    if _is_left_to_us(facts, status):
        return _completed(facts, status, now)
    # Between the two phases of an eviction the job reconciler acts: nothing is added to the eviction.
    if status.is_true(WorkloadCondition.EVICTED):
        return WorkloadDecision(status=status)
    admitted = status.is_true(WorkloadCondition.ADMITTED)
    # 9a. Outcome of the checks (§7.3).
    rejected = _messages_of(status, CheckState.REJECTED)
    if rejected:
        message = f"AdmissionCheck in Rejected state: {rejected}"
        status = changes.target_deactivation(status, cause=DeactivationCause.ADMISSION_CHECK, message=message, now=now)
        note = Note("Warning", "AdmissionCheckRejected", f"Deactivated due to {message}")
        return WorkloadDecision(status=status, deactivate=True, notes=(note,))
    retried = _messages_of(status, CheckState.RETRY)
    if retried:
        status = changes.evict(
            status,
            reason=EvictedReason.ADMISSION_CHECK,
            message=f"Evicted due to AdmissionCheck in Retry state: {retried}",
            now=now,
        )
        return WorkloadDecision(status=status)
    # Ours: whoever may write claim templates could have more devices than quota is held for (§2.3).
    if facts.claims_beyond:
        status = changes.evict(status, reason=EvictedReason.DEVICE_CLAIMS_CHANGED, message=facts.claims_beyond, now=now)
        return WorkloadDecision(status=status)
    # 9b. Stop policies and queues that are gone (§7.6).
    if not admitted:
        loss = _loss(facts)
        if loss is not None:
            reason, message = loss
            return WorkloadDecision(
                status=changes.without_reservation(status, reason=reason, message=message, now=now),
                notes=_held_notes(facts),
            )
    else:
        drained = _drained(facts)
        if drained is not None:
            cause, message = drained
            status = changes.evict(status, reason=cause, message=message, now=now)
            return WorkloadDecision(status=status)
    # 9c. Admitted or not, by the states of the checks.
    status = changes.sync_admitted(status, now=now)
    if not status.is_true(WorkloadCondition.ADMITTED):
        held = _held(facts) if admitted else None
        if held is not None:
            # A new check took the admission back in a queue that is held: its pods may run, so it is evicted.
            cause, message = held
            status = changes.evict(status, reason=cause, message=message, now=now)
        return WorkloadDecision(status=status)
    # 9d. Pods ready in time (§7.7), and 9e. the time it may run (§7.8).
    late = _pods_not_ready(facts, status, now=now, random=random)
    if late.status is not status:
        return late
    over = _execution_time(facts, status, now)
    if over.status is not status:
        return over
    waits = [item for item in (late.revisit, over.revisit) if item is not None]
    return WorkloadDecision(status=status, revisit=min(waits, default=None))


def _messages_of(status: Status, state: CheckState) -> str:
    return ", ".join(f'"{check.name}" ({check.message})' for check in status.checks if check.state is state)


def _loss(facts: WorkloadFacts) -> tuple[QuotaReservedReason, str] | None:
    local, cluster = facts.local_queue, facts.cluster_queue
    if local is None or local.terminating:
        return conditions.queue_lost("LocalQueue", facts.queue_name)
    if cluster is None or cluster.terminating:
        return conditions.queue_lost("ClusterQueue", facts.cluster_queue_name)
    if not _runs(local):
        return conditions.queue_stopped("LocalQueue", facts.queue_name)
    if not _runs(cluster):
        return conditions.queue_stopped("ClusterQueue", facts.cluster_queue_name)
    return None


def _drained(facts: WorkloadFacts) -> tuple[EvictedReason, str] | None:
    return conditions.drained(
        cluster_queue=facts.cluster_queue.stop_policy if facts.cluster_queue is not None else None,
        local_queue=facts.local_queue.stop_policy if facts.local_queue is not None else None,
    )


def _held(facts: WorkloadFacts) -> tuple[EvictedReason, str] | None:
    """Why it is evicted as one that is not admitted any more: its queue admits nothing."""
    return conditions.drained(
        cluster_queue=None if _runs(facts.cluster_queue) else StopPolicy.HOLD_AND_DRAIN,
        local_queue=None if _runs(facts.local_queue) else StopPolicy.HOLD_AND_DRAIN,
    )


def _pods_not_ready(facts: WorkloadFacts, status: Status, *, now: datetime, random: Random) -> WorkloadDecision:
    settings = facts.pods_ready
    ready = status.condition(WorkloadCondition.PODS_READY)
    admitted = status.condition(WorkloadCondition.ADMITTED)
    if settings is None or admitted is None or (ready is not None and ready.status == TRUE):
        return WorkloadDecision(status=status)
    if ready is not None and ready.reason == PodsReadyReason.WAIT_FOR_RECOVERY:
        cause, since, allowed = (
            PodsReadyReason.WAIT_FOR_RECOVERY,
            ready.last_transition_time,
            settings.recovery_timeout_seconds,
        )
    else:
        cause, since, allowed = PodsReadyReason.WAIT_FOR_START, admitted.last_transition_time, settings.timeout_seconds
    if allowed is None:
        return WorkloadDecision(status=status)
    left = allowed - (now - since).total_seconds()
    if left > 0:
        return WorkloadDecision(status=status, revisit=left)
    count = (status.requeue_count or 0) + 1
    if settings.backoff_limit is not None and count > settings.backoff_limit:
        return WorkloadDecision(
            status=changes.target_deactivation(
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
    evicted = changes.evict(
        status,
        reason=EvictedReason.PODS_READY_TIMEOUT,
        message=f"Exceeded the PodsReady timeout {facts.key}",
        underlying_cause=cause,
        now=now,
    )
    if evicted.requeue_at is not None:
        requeue_at = max(requeue_at, evicted.requeue_at)
    wanted = replace(evicted, requeue_count=count, requeue_at=requeue_at)
    return WorkloadDecision(status=wanted)


def _execution_time(facts: WorkloadFacts, status: Status, now: datetime) -> WorkloadDecision:
    admitted = status.condition(WorkloadCondition.ADMITTED)
    if facts.maximum_execution_seconds is None or admitted is None:
        return WorkloadDecision(status=status)
    ran = (now - admitted.last_transition_time).total_seconds() + (status.past_execution_seconds or 0)
    left = facts.maximum_execution_seconds - ran
    if left > 0:
        return WorkloadDecision(status=status, revisit=left)
    message = "exceeding the maximum execution time"
    targeted = changes.target_deactivation(
        status, cause=DeactivationCause.MAXIMUM_EXECUTION_TIME_EXCEEDED, message=message, now=now
    )
    limit = format_duration(timedelta(seconds=facts.maximum_execution_seconds))
    return WorkloadDecision(
        status=replace(targeted, past_execution_seconds=None),
        deactivate=True,
        notes=(Note("Warning", "MaximumExecutionTimeExceeded", f"The maximum execution time ({limit}) exceeded"),),
    )


def _waiting(facts: WorkloadFacts, status: Status, now: datetime) -> Status:
    """§7.12: why it has no reservation, if that is not for the scheduler to report.

    A problem of its queue, or of an equal workload, is reported at once, also for a workload that no cycle has seen: a
    user who named a queue that does not exist should not have to guess.
    """
    hold = status.condition(WorkloadCondition.QUOTA_RESERVED)
    if hold is not None and hold.reason == QuotaReservedReason.ON_HOLD:
        return status
    problem = _problem(facts)
    if problem is not None:
        if hold is not None and (hold.reason, hold.message) == _loss(facts):
            return status  # it says what took the reservation, which is still so
        reason, message = problem
        return _set_reason(status, reason=reason, message=message, now=now)
    stale = hold is not None and (
        hold.reason == QuotaReservedReason.DEACTIVATED or (hold.reason in _QUEUE_REASONS and _is_own(hold.message))
    )
    if facts.bypassed is not None and (hold is None or stale or hold.reason == QuotaReservedReason.PENDING_EVALUATION):
        return _set_reason(status, reason=facts.bypassed.reason, message=facts.bypassed.message, now=now)
    if stale:
        return _set_reason(
            status, reason=QuotaReservedReason.PENDING_EVALUATION, message=messages.PENDING_EVALUATION, now=now
        )
    return status


def _is_own(message: str) -> bool:
    return message.startswith(_OWN_PREFIXES) or messages.says_claims_problem(message)


def _reports_suspended(status: Status) -> bool:
    """Whether the status already reports that a queue is stopped, so that an event was recorded."""
    hold = status.condition(WorkloadCondition.QUOTA_RESERVED)
    return hold is not None and hold.status == FALSE and hold.reason == QuotaReservedReason.SUSPENDED


def _held_notes(facts: WorkloadFacts) -> tuple[Note, ...]:
    """Which of its queues is held, and who can resume it; empty when none is."""
    for kind, name, queue in (
        ("LocalQueue", facts.queue_name, facts.local_queue),
        ("ClusterQueue", facts.cluster_queue_name, facts.cluster_queue),
    ):
        if queue is not None and not _runs(queue):
            message = (
                f"{kind} {name} is held: its stopPolicy is {queue.stop_policy}; it admits no workload until"
                " an administrator sets it to None"
            )
            return (Note("Normal", WorkloadEvent.QUEUE_HELD, message, about_job=True),)
    return ()


def _problem(facts: WorkloadFacts) -> tuple[QuotaReservedReason, str] | None:
    local, cluster = facts.local_queue, facts.cluster_queue
    if local is None:
        return conditions.queue_missing("LocalQueue", facts.queue_name)
    if not _runs(local) or local.terminating:
        return conditions.queue_inactive("LocalQueue", facts.queue_name)
    if cluster is None:
        return conditions.queue_missing("ClusterQueue", facts.cluster_queue_name)
    if not cluster.active or not _runs(cluster) or cluster.terminating:
        return conditions.queue_inactive("ClusterQueue", facts.cluster_queue_name)
    if facts.claims_problem:
        return QuotaReservedReason.MISCONFIGURED, facts.claims_problem
    if facts.gated_by:
        return conditions.gated(facts.gated_by)
    return None


def _set_reason(status: Status, *, reason: QuotaReservedReason, message: str, now: datetime) -> Status:
    return changes.without_reservation(status, reason=reason, message=message, now=now)
