# SPDX-License-Identifier: Apache-2.0
"""What may happen to a Workload's status: pure functions from one `Status` to the next.

Owns the fields that each event touches and the exact texts of conditions that are not the engine's
(`docs/spec/engine.md §3.11`, §3.12, §4.7, §7). Promises to hand back the very same value when nothing changes. When
to call which is decided elsewhere: in the scheduler loop, in the reconcilers and in dispatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from manager.workload_status import Check, Eviction, Status
from multikueue.api.constants import CheckState, GatePosition
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import (
    AdmittedReason,
    DeactivationCause,
    EvictedReason,
    QuotaReservedReason,
    RequeuedReason,
    WorkloadCondition,
    deactivated_due_to,
)
from multikueue.core import conditions
from multikueue.core.conditions import FALSE, TRUE, Condition
from multikueue.core.timestamps import format_time

NO_RESERVATION_MESSAGE: Final = "The workload has no reservation"
ADMITTED_MESSAGE: Final = "The workload is admitted"
CHECKS_NOT_READY_MESSAGE: Final = "The workload has not all checks ready"
DELAYED_TOPOLOGY_MESSAGE: Final = "There are pending delayed topology requests"
DEACTIVATED_MESSAGE: Final = "The workload is deactivated"
_REQUEUED_AT_ONCE: Final = frozenset({EvictedReason.PREEMPTED, EvictedReason.NODE_FAILURES})
_RESET_BY_RESERVATION: Final = (
    WorkloadCondition.EVICTED,
    WorkloadCondition.PREEMPTED,
    WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
)


def with_condition(
    status: Status, kind: WorkloadCondition, *, value: str, reason: str, message: str, now: datetime
) -> Status:
    """`status` with the condition set; the transition time moves only when its status flips."""
    new = Condition(type=kind, status=value, reason=reason, message=message, last_transition_time=now)
    changed = conditions.set_condition(status.conditions, new)
    return status if changed is status.conditions else replace(status, conditions=changed)


def without_condition(status: Status, kind: WorkloadCondition) -> Status:
    """`status` without conditions of that type."""
    left = tuple(item for item in status.conditions if item.type != kind)
    return status if len(left) == len(status.conditions) else replace(status, conditions=left)


def reserve(
    status: Status, *, cluster_queue: str, admission: JsonObject, required_checks: Iterable[str], now: datetime
) -> Status:
    """Quota is reserved, and the workload is admitted with it when every required check is Ready (§3.11)."""
    status = replace(status, admission=admission, resource_requests=(), unhealthy_nodes=())
    status = with_condition(
        status,
        WorkloadCondition.QUOTA_RESERVED,
        value=TRUE,
        reason=QuotaReservedReason.QUOTA_RESERVED,
        message=f"Quota reserved in ClusterQueue {cluster_queue}",
        now=now,
    )
    for kind in _RESET_BY_RESERVATION:
        old = status.condition(kind)
        if old is not None and old.status == TRUE:
            status = with_condition(
                status,
                kind,
                value=FALSE,
                reason=QuotaReservedReason.QUOTA_RESERVED,
                message=f"Previously: {old.message}",
                now=now,
            )
    if all(status.check(name) is not None for name in required_checks):
        status = sync_admitted(status, now=now)
    return status


def pend(
    status: Status,
    *,
    reason: str,
    message: str,
    resource_requests: tuple[JsonObject, ...] | None,
    blocked_on_gates: bool = False,
    now: datetime,
) -> Status:
    """No reservation in this cycle, and why (§3.12); requests of None leave those that stand there."""
    status = without_reservation(status, reason=reason, message=message, now=now)
    if resource_requests is not None and resource_requests != status.resource_requests:
        status = replace(status, resource_requests=resource_requests)
    if blocked_on_gates:
        status = with_condition(
            status,
            WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
            value=TRUE,
            reason="PreemptionGated",
            message=message,
            now=now,
        )
    return status


def without_reservation(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """QuotaReserved=False and Admitted=False with their reasons, and no admission."""
    if status.admission is not None:
        status = replace(status, admission=None)
    status = with_condition(
        status, WorkloadCondition.QUOTA_RESERVED, value=FALSE, reason=reason, message=message, now=now
    )
    return not_admitted(status, reason=AdmittedReason.NO_RESERVATION, message=NO_RESERVATION_MESSAGE, now=now)


def not_admitted(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """Admitted=False; the whole seconds since it was admitted go to the past execution time (§7.3)."""
    admitted = status.condition(WorkloadCondition.ADMITTED)
    if admitted is not None and admitted.status == TRUE:
        ran = max(0, int((now - admitted.last_transition_time).total_seconds()))
        status = replace(status, past_execution_seconds=(status.past_execution_seconds or 0) + ran)
    return with_condition(status, WorkloadCondition.ADMITTED, value=FALSE, reason=reason, message=message, now=now)


def sync_admitted(status: Status, *, now: datetime) -> Status:
    """Admitted as the reservation and the listed checks say (§7.3)."""
    reserved = status.is_true(WorkloadCondition.QUOTA_RESERVED)
    ready = all(check.state is CheckState.READY for check in status.checks)
    if reserved and ready:
        if _waits_for_topology(status):
            return not_admitted(
                status,
                reason=AdmittedReason.PENDING_DELAYED_TOPOLOGY_REQUESTS,
                message=DELAYED_TOPOLOGY_MESSAGE,
                now=now,
            )
        return with_condition(
            status,
            WorkloadCondition.ADMITTED,
            value=TRUE,
            reason=AdmittedReason.ADMITTED,
            message=ADMITTED_MESSAGE,
            now=now,
        )
    if not reserved:
        return not_admitted(status, reason=AdmittedReason.NO_RESERVATION, message=NO_RESERVATION_MESSAGE, now=now)
    return not_admitted(
        status, reason=AdmittedReason.UNSATISFIED_ADMISSION_CHECKS, message=CHECKS_NOT_READY_MESSAGE, now=now
    )


def _waits_for_topology(status: Status) -> bool:
    assignments = (status.admission or {}).get("podSetAssignments") or ()
    return any(assignment.get("delayedTopologyRequest") == "Pending" for assignment in assignments)


def sync_checks(status: Status, required: Iterable[str], *, now: datetime) -> Status:
    """The list of checks as required: new ones Pending, obsolete ones gone, the others as they are."""
    wanted = tuple(required)
    if tuple(check.name for check in status.checks) == wanted:
        return status
    known = {check.name: check for check in status.checks}
    if known.keys() == set(wanted):
        return status  # another order says nothing
    return replace(
        status,
        checks=tuple(
            known.get(name) or Check(name=name, state=CheckState.PENDING, last_transition_time=now) for name in wanted
        ),
    )


def set_check(
    status: Status,
    name: str,
    *,
    state: CheckState,
    message: str = "",
    now: datetime,
    requeue_after_seconds: int | None = None,
    pod_set_updates: tuple[JsonObject, ...] | None = None,
) -> Status:
    """The state of one check; nothing happens when the workload has no such check. Updates of None are kept."""
    old = status.check(name)
    if old is None:
        return status
    new = replace(
        old,
        state=state,
        message=message,
        last_transition_time=old.last_transition_time if old.state is state else now,
        requeue_after_seconds=old.requeue_after_seconds if requeue_after_seconds is None else requeue_after_seconds,
        pod_set_updates=old.pod_set_updates if pod_set_updates is None else pod_set_updates,
    )
    if new == old:
        return status
    return replace(status, checks=tuple(new if check.name == name else check for check in status.checks))


def evict(status: Status, *, reason: str, message: str, now: datetime, underlying_cause: str = "") -> Status:
    """Phase A of an eviction (§4.7): told to stop, checks and dispatch reset, counted; quota is still held."""
    status = with_condition(status, WorkloadCondition.EVICTED, value=TRUE, reason=reason, message=message, now=now)
    return replace(
        status,
        checks=tuple(_reset(check, now) for check in status.checks),
        cluster_name="",
        nominated=(),
        unhealthy_nodes=(),
        preemption_gates=tuple(_closed(gate, now) for gate in status.preemption_gates),
        evictions=_counted(status.evictions, reason=reason, underlying_cause=underlying_cause),
    )


def preempt(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """Evicted to make room; `reason` says where the preemptor stands."""
    status = evict(status, reason=EvictedReason.PREEMPTED, message=message, now=now)
    return with_condition(status, WorkloadCondition.PREEMPTED, value=TRUE, reason=reason, message=message, now=now)


def _reset(check: Check, now: datetime) -> Check:
    if check.state is CheckState.PENDING:
        return check
    retries = (check.retry_count or 0) + 1 if check.state is CheckState.RETRY else None
    return replace(
        check,
        state=CheckState.PENDING,
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        last_transition_time=now,
        retry_count=retries,
        pod_set_updates=(),
    )


def _closed(gate: JsonObject, now: datetime) -> JsonObject:
    if gate.get("position") == GatePosition.CLOSED:
        return gate
    return {**gate, "position": str(GatePosition.CLOSED), "lastTransitionTime": format_time(now)}


def _counted(evictions: tuple[Eviction, ...], *, reason: str, underlying_cause: str) -> tuple[Eviction, ...]:
    for position, eviction in enumerate(evictions):
        if (eviction.reason, eviction.underlying_cause) == (reason, underlying_cause):
            more = replace(eviction, count=eviction.count + 1)
            return (*evictions[:position], more, *evictions[position + 1 :])
    return (*evictions, Eviction(reason=reason, underlying_cause=underlying_cause, count=1))


def complete_eviction(status: Status, *, now: datetime) -> Status:
    """Phase B: the job has stopped, so the reservation goes and Requeued says whether it queues at once (§4.7)."""
    evicted = status.condition(WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != TRUE or not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return status
    status = with_condition(
        status,
        WorkloadCondition.REQUEUED,
        value=TRUE if evicted.reason in _REQUEUED_AT_ONCE else FALSE,
        reason=evicted.reason,
        message=evicted.message,
        now=now,
    )
    return without_reservation(status, reason=QuotaReservedReason.PENDING_EVALUATION, message=evicted.message, now=now)


def requeue(status: Status, *, reason: RequeuedReason, message: str, now: datetime) -> Status:
    """Free to queue again (§7.5)."""
    return with_condition(status, WorkloadCondition.REQUEUED, value=TRUE, reason=reason, message=message, now=now)


def target_deactivation(status: Status, *, cause: DeactivationCause, message: str, now: datetime) -> Status:
    """Ask for `spec.active=false`; the workload reconciler carries it out."""
    return with_condition(
        status, WorkloadCondition.DEACTIVATION_TARGET, value=TRUE, reason=cause, message=message, now=now
    )


def deactivate(status: Status, *, now: datetime) -> Status:
    """What `spec.active=false` means for the status (§7.4): evicted once, back-off and target forgotten.

    Only a workload with a reservation is evicted; a waiting one merely leaves its queue.
    """
    target = status.condition(WorkloadCondition.DEACTIVATION_TARGET)
    cause = target.reason if target is not None and target.status == TRUE else ""
    if status.is_true(WorkloadCondition.QUOTA_RESERVED) and not status.is_true(WorkloadCondition.EVICTED):
        message = (
            f"{DEACTIVATED_MESSAGE} due to {target.message}" if target is not None and cause else DEACTIVATED_MESSAGE
        )
        status = evict(status, reason=deactivated_due_to(cause), message=message, now=now)
    if status.requeue_count is not None or status.requeue_at is not None:
        status = replace(status, requeue_count=None, requeue_at=None)
    return without_condition(status, WorkloadCondition.DEACTIVATION_TARGET)


def finish(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """Finished; a second end does not overwrite the first."""
    if status.is_true(WorkloadCondition.FINISHED):
        return status
    return with_condition(status, WorkloadCondition.FINISHED, value=TRUE, reason=reason, message=message, now=now)


def pods_ready(status: Status, *, ready: bool, reason: str, message: str, now: datetime) -> Status:
    """What the job side says about its pods (§7.7)."""
    return with_condition(
        status,
        WorkloadCondition.PODS_READY,
        value=TRUE if ready else FALSE,
        reason=reason,
        message=message,
        now=now,
    )


def requests_wire(requests: Iterable[tuple[str, Mapping[str, str]]]) -> tuple[JsonObject, ...]:
    """status.resourceRequests of the totals of each pod set."""
    return tuple({"name": name, "resources": dict(resources)} for name, resources in requests)
