# SPDX-License-Identifier: Apache-2.0
"""What the engine decided, as changes of Workload status: the pure half of the scheduler loop.

Owns the wire form of an admission and the guards that a decision must still pass when it is written, since the
object may have moved on since the cycle (`docs/spec/engine.md §3.11`, §3.12, §4.7). A guard that fails hands back the
status unchanged; the caller then tells the engine. Sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from manager import workload_changes
from manager.workload_status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import MAX_EVENT_MESSAGE, TRUE, truncate_message
from multikueue.engine.decisions import Bypassed, Decision, Victim
from multikueue.engine.resources import texts


def admission_of(decision: Decision) -> JsonObject:
    """status.admission of a reservation."""
    return {
        "clusterQueue": decision.cluster_queue,
        "podSetAssignments": [
            {
                "name": pod_set.name,
                "flavors": dict(pod_set.flavors),
                "resourceUsage": texts(pod_set.resource_usage),
                "count": pod_set.count,
            }
            for pod_set in decision.pod_sets
        ],
    }


def reserve(status: Status, decision: Decision, *, now: datetime) -> Status:
    """The reservation with the checks of its flavors, unless the workload is finished or holds one."""
    if status.is_true(WorkloadCondition.FINISHED) or status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return status
    return workload_changes.reserve(
        workload_changes.sync_checks(status, decision.admission_checks, now=now),
        cluster_queue=decision.cluster_queue,
        admission=admission_of(decision),
        required_checks=decision.admission_checks,
        now=now,
    )


def pend(status: Status, decision: Decision, *, now: datetime) -> Status:
    """Why there is no reservation, unless there is one by now."""
    if (
        decision.reason is None
        or status.is_true(WorkloadCondition.FINISHED)
        or status.is_true(WorkloadCondition.QUOTA_RESERVED)
    ):
        return status
    return workload_changes.pend(
        status,
        reason=decision.reason,
        message=decision.message,
        resource_requests=_requests(decision.resource_requests),
        blocked_on_gates=decision.blocked_on_preemption_gates,
        now=now,
    )


def bypass(status: Status, bypassed: Bypassed, *, now: datetime) -> Status:
    """Parked with an equal workload; the scheduler's own last word on it stays."""
    held = status.condition(WorkloadCondition.QUOTA_RESERVED)
    if status.is_true(WorkloadCondition.FINISHED) or (held is not None and held.status == TRUE):
        return status
    if held is not None and held.reason == bypassed.reason:
        return status
    return workload_changes.pend(
        status, reason=bypassed.reason, message=bypassed.message, resource_requests=None, now=now
    )


def preempt(status: Status, victim: Victim, *, now: datetime) -> Status:
    """Phase A on a victim, unless it was told, is done, or holds nothing any more."""
    if (
        status.is_true(WorkloadCondition.FINISHED)
        or status.is_true(WorkloadCondition.EVICTED)
        or not status.is_true(WorkloadCondition.QUOTA_RESERVED)
    ):
        return status
    return workload_changes.preempt(status, reason=victim.reason, message=victim.message, now=now)


def _requests(requests: tuple[tuple[str, Mapping[str, int]], ...]) -> tuple[JsonObject, ...] | None:
    if not requests:
        return None
    return workload_changes.requests_wire((name, texts(amounts)) for name, amounts in requests)


def reserved_event(decision: Decision, *, waited: float) -> str:
    """The message of the event QuotaReserved (§9.4)."""
    text = f"Quota reserved in ClusterQueue {decision.cluster_queue}, wait time since queued was {waited:.0f}s"
    if decision.flavors_considered:
        text = f"{text}; Flavors considered: {decision.flavors_considered}"
    return truncate_message(text, MAX_EVENT_MESSAGE)


def admitted_event(cluster_queue: str, *, waited: float) -> str:
    """The message of the event Admitted (§9.4)."""
    return f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited:.0f}s"
