# SPDX-License-Identifier: Apache-2.0
"""Changes of a Workload's status: pure functions from one `Status` to the next.

Owns the fields that each change touches (`docs/spec/engine.md §3.11`, §3.12, §4.7, §7); the conditions among them are
those of `engine.workload_conditions`. Promises to return the same value when nothing changes. When to apply them is
decided elsewhere: in the scheduler loop, in the reconcilers and in dispatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from manager.workload.assigned_hosts import hosts_of
from manager.workload.status import Check, Eviction, Status
from multikueue.api.constants import CheckState, DelayedTopology, GatePosition
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
from multikueue.core.conditions import FALSE, TRUE
from multikueue.core.timestamps import format_time
from multikueue.engine import messages
from multikueue.engine import workload_conditions as conditions

_WAITING: Final = (WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED)


def with_condition(
    status: Status, kind: WorkloadCondition, *, value: str, reason: str, message: str, now: datetime
) -> Status:
    """`status` with the condition set; the transition time moves only when its status flips."""
    changed = conditions.changed(status.conditions, kind, status=value, reason=reason, message=message, now=now)
    return _with(status, changed)


def _with(status: Status, changed: conditions.Conditions) -> Status:
    return status if changed is status.conditions else replace(status, conditions=changed)


def without_condition(status: Status, kind: WorkloadCondition) -> Status:
    """`status` without conditions of that type."""
    left = tuple(item for item in status.conditions if item.type != kind)
    return status if len(left) == len(status.conditions) else replace(status, conditions=left)


def reserve(
    status: Status, *, cluster_queue: str, admission: JsonObject, required_checks: Iterable[str], now: datetime
) -> Status:
    """Quota is reserved; admitted with it when each required check is listed and each listed one Ready (§3.11)."""
    status = replace(status, admission=admission, resource_requests=(), unhealthy_nodes=())
    status = _with(status, conditions.reserved(status.conditions, cluster_queue=cluster_queue, now=now))
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
    """No reservation in this cycle, and why (§3.12); requests of None keep those in the status."""
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
    free = conditions.quota_not_reserved(status.conditions, reason=reason, message=message, now=now)
    return not_admitted(_with(status, free), AdmittedReason.NO_RESERVATION, now=now)


def not_admitted(status: Status, reason: AdmittedReason, *, now: datetime) -> Status:
    """Admitted=False; the whole seconds since it was admitted go to the past execution time (§7.3)."""
    admitted = status.condition(WorkloadCondition.ADMITTED)
    if admitted is not None and admitted.status == TRUE:
        ran = max(0, int((now - admitted.last_transition_time).total_seconds()))
        status = replace(status, past_execution_seconds=(status.past_execution_seconds or 0) + ran)
    return _with(status, conditions.not_admitted(status.conditions, reason, now=now))


def only_explains_waiting(before: Status, after: Status) -> bool:
    """Whether a change of a workload without quota only adds a reason for that and lists checks."""
    if before.is_true(WorkloadCondition.QUOTA_RESERVED) or after.is_true(WorkloadCondition.QUOTA_RESERVED):
        return False
    kept = tuple(item for item in after.conditions if item.type not in _WAITING)
    return (
        kept == tuple(item for item in before.conditions if item.type not in _WAITING)
        and all(check in after.checks for check in before.checks)
        and replace(
            after, conditions=before.conditions, checks=before.checks, resource_requests=before.resource_requests
        )
        == before
    )


def sync_admitted(status: Status, *, now: datetime) -> Status:
    """Admitted by the reservation and the states of the listed checks (§7.3)."""
    reserved = status.is_true(WorkloadCondition.QUOTA_RESERVED)
    ready = all(check.state is CheckState.READY for check in status.checks)
    if reserved and ready:
        if _waits_for_topology(status):
            return not_admitted(status, AdmittedReason.PENDING_DELAYED_TOPOLOGY_REQUESTS, now=now)
        return _with(status, conditions.admitted(status.conditions, now=now))
    if not reserved:
        return not_admitted(status, AdmittedReason.NO_RESERVATION, now=now)
    return not_admitted(status, AdmittedReason.UNSATISFIED_ADMISSION_CHECKS, now=now)


def _waits_for_topology(status: Status) -> bool:
    assignments = (status.admission or {}).get("podSetAssignments") or ()
    return any(assignment.get("delayedTopologyRequest") == "Pending" for assignment in assignments)


def topology_ready(status: Status) -> Status:
    """The cluster that runs the pods places them: nothing waits for a topology any more."""
    if not _waits_for_topology(status):
        return status
    admission: JsonObject = dict(status.admission or {})
    admission["podSetAssignments"] = [
        {**each, "delayedTopologyRequest": str(DelayedTopology.READY)} if "delayedTopologyRequest" in each else each
        for each in admission.get("podSetAssignments") or ()
    ]
    return replace(status, admission=admission)


def node_failure(status: Status, node: str, *, failed: bool, now: datetime) -> Status:
    """Note that a node with pods of it has failed, or take that back; with a second one it is evicted."""
    known = status.unhealthy_nodes
    if not _runs_on(status, node) or failed is (node in known):
        return status
    if failed and known:
        text = messages.several_nodes_failed((*known, node))
        return evict(status, reason=EvictedReason.NODE_FAILURES, message=text, now=now)
    return replace(status, unhealthy_nodes=(*known, node) if failed else tuple(each for each in known if each != node))


def _runs_on(status: Status, node: str) -> bool:
    if status.is_true(WorkloadCondition.FINISHED) or status.is_true(WorkloadCondition.EVICTED):
        return False
    return status.is_true(WorkloadCondition.QUOTA_RESERVED) and node in hosts_of(status.admission)


def sync_checks(status: Status, required: Iterable[str], *, now: datetime) -> Status:
    """The list of checks as required: new ones Pending, obsolete ones gone, the others as they are."""
    wanted = tuple(required)
    if tuple(check.name for check in status.checks) == wanted:
        return status
    known = {check.name: check for check in status.checks}
    if known.keys() == set(wanted):
        return status  # the order has no meaning
    return replace(
        status,
        checks=tuple(
            known.get(name) or Check(name=name, state=CheckState.PENDING, last_transition_time=now) for name in wanted
        ),
    )


def drop_left_over(status: Status) -> Status:
    """The checks as their last reset left them: updates of another field manager can outlive one write of it."""
    checks = tuple(_as_reset(check) for check in status.checks)
    return status if checks == status.checks else replace(status, checks=checks)


def _as_reset(check: Check) -> Check:
    before = messages.state_before_reset(check.message)
    if check.state is not CheckState.PENDING or before is None:
        return check
    return replace(check, pod_set_updates=(), retry_count=check.retry_count if before is CheckState.RETRY else None)


def list_checks(status: Status, required: Iterable[str], *, now: datetime) -> Status:
    """The required checks that are missing added as Pending; no other is dropped or changed."""
    missing = [name for name in required if status.check(name) is None]
    if not missing:
        return status
    added = (Check(name=name, state=CheckState.PENDING, last_transition_time=now) for name in missing)
    return replace(status, checks=(*status.checks, *added))


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
    """The state of one check; no change when the workload has no such check. Updates of None are kept."""
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
    """Phase A of an eviction (§4.7): Evicted, checks and dispatch reset, counted; quota is still held.

    Of a deactivation the reason of the condition names the cause, too (`docs/spec/engine.md §7.10`).
    """
    shown = deactivated_due_to(underlying_cause) if reason == EvictedReason.DEACTIVATED else reason
    # A change that was not made where it ran goes along with the next dispatch.
    status = without_condition(status, WorkloadCondition.CHANGE_FORWARDED)
    return replace(
        status,
        conditions=conditions.evicted(status.conditions, reason=shown, message=message, now=now),
        checks=tuple(_reset(check, now) for check in status.checks),
        cluster_name="",
        nominated=(),
        unhealthy_nodes=(),
        preemption_gates=tuple(_closed(gate, now) for gate in status.preemption_gates),
        evictions=_counted(status.evictions, reason=reason, underlying_cause=underlying_cause),
    )


def preempt(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """Preempted; `reason` is where the preemptor is in relation to the victim's queue."""
    status = evict(status, reason=EvictedReason.PREEMPTED, message=message, now=now)
    return _with(status, conditions.preempted(status.conditions, reason=reason, message=message, now=now))


def _reset(check: Check, now: datetime) -> Check:
    if check.state is CheckState.PENDING:
        return check
    return replace(
        check,
        state=CheckState.PENDING,
        message=messages.reset_check(check.state),
        last_transition_time=now,
        retry_count=conditions.retries_after_eviction(check.state, check.retry_count),
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
    """Phase B (§4.7): the job has stopped: the reservation is released; Requeued tells whether it queues at once."""
    evicted = status.condition(WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != TRUE or not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return status
    requeued = conditions.requeue_after_eviction(
        status.conditions, reason=evicted.reason, message=evicted.message, now=now
    )
    status = _with(status, requeued)
    return without_reservation(status, reason=QuotaReservedReason.PENDING_EVALUATION, message=evicted.message, now=now)


def requeue(status: Status, reason: RequeuedReason, *, now: datetime) -> Status:
    """Free to queue again (§7.5)."""
    return _with(status, conditions.requeued(status.conditions, reason, now=now))


def target_deactivation(status: Status, *, cause: DeactivationCause, message: str, now: datetime) -> Status:
    """Request `spec.active=false`; the workload reconciler carries it out."""
    return with_condition(
        status, WorkloadCondition.DEACTIVATION_TARGET, value=TRUE, reason=cause, message=message, now=now
    )


def deactivate(status: Status, *, now: datetime) -> Status:
    """The effect of `spec.active=false` on the status (§7.4): evicted once; back-off and target are cleared.

    One that waits has the condition as well, by which clients recognize it, and leaves its queue.
    """
    target = status.condition(WorkloadCondition.DEACTIVATION_TARGET)
    cause = target.reason if target is not None and target.status == TRUE else ""
    if not status.is_true(WorkloadCondition.EVICTED):
        message = (
            f"{messages.DEACTIVATED} due to {target.message}" if target is not None and cause else messages.DEACTIVATED
        )
        status = evict(status, reason=EvictedReason.DEACTIVATED, underlying_cause=cause, message=message, now=now)
    if status.requeue_count is not None or status.requeue_at is not None:
        status = replace(status, requeue_count=None, requeue_at=None)
    return without_condition(status, WorkloadCondition.DEACTIVATION_TARGET)


def was_rejected(workload: JsonObject) -> bool:
    """Whether it was deactivated by the rejection of an AdmissionCheck, and by nothing else since."""
    evicted = Status.of(workload).condition(WorkloadCondition.EVICTED)
    wanted = deactivated_due_to(DeactivationCause.ADMISSION_CHECK)
    return evicted is not None and evicted.status == TRUE and evicted.reason == wanted


def finish(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """Finished; a later end does not overwrite the first. Pods that did not start, and changes, matter no longer."""
    if status.is_true(WorkloadCondition.FINISHED):
        return status
    for outdated in (WorkloadCondition.PODS_STARTED, WorkloadCondition.CHANGE_FORWARDED):
        status = without_condition(status, outdated)
    return _with(status, conditions.finished(status.conditions, reason=reason, message=message, now=now))


def pods_ready(status: Status, *, ready: bool, reason: str, message: str, now: datetime) -> Status:
    """PodsReady as the job reconciler reports it (§7.7)."""
    return with_condition(
        status,
        WorkloadCondition.PODS_READY,
        value=TRUE if ready else FALSE,
        reason=reason,
        message=message,
        now=now,
    )


def pods_started(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """PodsStarted=False with the reason of the worker cluster; without the condition if the reason is empty."""
    if not reason:
        return without_condition(status, WorkloadCondition.PODS_STARTED)
    return with_condition(status, WorkloadCondition.PODS_STARTED, value=FALSE, reason=reason, message=message, now=now)


def change_forwarded(status: Status, *, reason: str, message: str, now: datetime) -> Status:
    """ChangeForwarded=False with why a change of the job is not made; without the condition if the reason is empty."""
    kind = WorkloadCondition.CHANGE_FORWARDED
    if not reason:
        return without_condition(status, kind)
    return with_condition(status, kind, value=FALSE, reason=reason, message=message, now=now)


def requests_wire(requests: Iterable[tuple[str, Mapping[str, str]]]) -> tuple[JsonObject, ...]:
    """status.resourceRequests of the totals of each pod set."""
    return tuple({"name": name, "resources": dict(resources)} for name, resources in requests)
