# SPDX-License-Identifier: Apache-2.0
"""The status of a Workload: what dispatch reads from it, and a plan as a change of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from manager.workload import changes
from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import EvictedReason, FinishedReason, WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE, Condition
from multikueue.dispatch.hub.actions import DispatchPlan


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


def finished_at(status: Status) -> datetime | None:
    finished = status.condition(WorkloadCondition.FINISHED)
    return finished.last_transition_time if finished is not None and finished.status == TRUE else None


def failed_at(status: Status) -> datetime | None:
    finished = status.condition(WorkloadCondition.FINISHED)
    failed = finished is not None and finished.reason == FinishedReason.FAILED
    return finished_at(status) if failed else None


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


@dataclass(frozen=True, slots=True)
class Situation:
    """The part of a status that decides which rule applies."""

    state: CheckState | None
    others: tuple[CheckState, ...]
    cluster_name: str
    nominated: tuple[str, ...]
    reserved: bool
    evicted: bool
    finished: bool
    epoch: int

    @classmethod
    def of(cls, status: Status, check: str) -> Situation:
        """The situation of one check's workload."""
        ours = status.check(check)
        return cls(
            state=None if ours is None else ours.state,
            others=tuple(other.state for other in status.checks if other is not ours),
            cluster_name=status.cluster_name,
            nominated=status.nominated,
            reserved=status.is_true(WorkloadCondition.QUOTA_RESERVED),
            evicted=status.is_true(WorkloadCondition.EVICTED),
            finished=status.is_true(WorkloadCondition.FINISHED),
            epoch=status.epoch,
        )


class PlanChange:
    """`Status -> Status` for `StatusWriter.write`; `applied` is whether the last status was the expected one.

    `check` is empty for a workload without the check of dispatch.
    """

    def __init__(self, plan: DispatchPlan, *, check: str, planned_for: Status, now: datetime) -> None:
        self.applied = False
        self._plan = plan
        self._check = check
        self._situation = Situation.of(planned_for, check)
        self._now = now

    def __call__(self, status: Status) -> Status:
        """The status after the plan, or unchanged when the situation is another one."""
        self.applied = Situation.of(status, self._check) == self._situation
        if not self.applied:
            return status
        plan = self._plan
        for update in plan.delegated:
            status = changes.set_check(
                status,
                update.check,
                state=update.state,
                message=update.message,
                now=self._now,
                requeue_after_seconds=update.requeue_after_seconds,
            )
        if plan.check is not None:
            status = changes.set_check(
                status, self._check, state=plan.check.state, message=plan.check.message, now=self._now
            )
            if plan.check.state is CheckState.READY:
                # In the same write: the last check that becomes Ready admits the workload. Its pods are placed there.
                status = changes.sync_admitted(changes.topology_ready(status), now=self._now)
        if plan.cluster_name is not None and plan.cluster_name != status.cluster_name:
            status = replace(status, cluster_name=plan.cluster_name)
        if plan.nominated is not None and plan.nominated != status.nominated:
            status = replace(status, nominated=plan.nominated)
        if plan.finish is not None:
            status = changes.finish(status, reason=plan.finish.reason, message=plan.finish.message, now=self._now)
        if plan.pods_started is not None:
            shown = plan.pods_started
            status = changes.pods_started(status, reason=shown.reason, message=shown.message, now=self._now)
        elif plan.cluster_name:
            # It is of the dispatch before.
            status = changes.without_condition(status, WorkloadCondition.PODS_STARTED)
        if plan.change_forwarded is not None:
            refused = plan.change_forwarded
            status = changes.change_forwarded(status, reason=refused.reason, message=refused.message, now=self._now)
        elif plan.cluster_name:
            status = changes.without_condition(status, WorkloadCondition.CHANGE_FORWARDED)
        if plan.evict:
            status = changes.evict(status, reason=EvictedReason.ADMISSION_CHECK, message=plan.evict, now=self._now)
        return status


def failed_to_start(status: Status, *, message: str, now: datetime) -> Status:
    """Finished, since what admission adds contradicts the job (`docs/spec/kueue-api.md §4.2` step 13)."""
    return changes.finish(status, reason=FinishedReason.FAILED_TO_START, message=message, now=now)
