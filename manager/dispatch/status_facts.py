# SPDX-License-Identifier: Apache-2.0
"""What dispatch reads from the status of one Workload."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE, Condition


def holds_quota(status: Status) -> bool:
    return status.is_true(WorkloadCondition.QUOTA_RESERVED) and not status.is_true(WorkloadCondition.FINISHED)


def to_stop(workload: JsonObject, status: Status) -> bool:
    inactive = (workload.get("spec") or {}).get("active") is False
    rejected = any(check.state is CheckState.REJECTED for check in status.checks)
    return inactive or rejected or status.is_true(WorkloadCondition.EVICTED)


def others_ready(status: Status, check: Check | None, delegated: Collection[str]) -> bool:
    """Whether all checks but that of dispatch, and those that are delegated, are Ready."""
    return all(
        other.state is CheckState.READY for other in status.checks if other is not check and other.name not in delegated
    )


def failed_at(status: Status) -> datetime | None:
    finished = status.condition(WorkloadCondition.FINISHED)
    failed = finished is not None and finished.status == TRUE and finished.reason == FinishedReason.FAILED
    return finished.last_transition_time if finished is not None and failed else None


def waits_since(status: Status, check: Check | None, delegated: Collection[str]) -> datetime | None:
    """When the last of its other conditions for dispatch was met."""
    reserved = status.condition(WorkloadCondition.QUOTA_RESERVED)
    others = (other for other in status.checks if other is not check and other.name not in delegated)
    moments = [other.last_transition_time for other in others]
    if reserved is not None and reserved.status == TRUE:
        moments.append(reserved.last_transition_time)
    return max(moments, default=None)


def if_false(status: Status, condition: WorkloadCondition) -> Condition | None:
    """The condition if it is False."""
    shown = status.condition(condition)
    return shown if shown is not None and shown.status == FALSE else None


def flavors(status: Status) -> dict[str, str]:
    """The reserved flavor by resource; a job with several pod sets may have more than one."""
    found: dict[str, dict[str, None]] = {}
    for pod_set in (status.admission or {}).get("podSetAssignments") or ():
        for resource, flavor in (pod_set.get("flavors") or {}).items():
            found.setdefault(resource, {})[flavor] = None
    return {resource: " or ".join(flavors) for resource, flavors in found.items()}
