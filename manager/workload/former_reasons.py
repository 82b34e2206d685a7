# SPDX-License-Identifier: Apache-2.0
"""The reasons of earlier releases of Kueue, with the feature gate UnadmittedWorkloadsObservability off.

The manager decides by the reasons of today; with the gate off `former` gives a status the reasons that are written
instead, and `current` those of today to one that is read (`docs/spec/engine.md §9.2`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from manager.workload.status import Status
from multikueue.api.constants import CheckState
from multikueue.api.reasons import AdmittedReason, QuotaReservedReason, WorkloadCondition
from multikueue.core.conditions import FALSE, Condition, find
from multikueue.engine import messages

_OF_QUEUES: Final = frozenset({QuotaReservedReason.MISCONFIGURED, QuotaReservedReason.SUSPENDED})
_QUEUES: Final = ("LocalQueue ", "ClusterQueue ")
_SUSPENDED: Final = (" is stopped", " is inactive")
_PENDING: Final = frozenset({*_OF_QUEUES, QuotaReservedReason.PENDING_EVALUATION, QuotaReservedReason.DEACTIVATED})
_NEITHER: Final = "The workload has no reservation and not all checks ready"


def former(status: Status, *, before: Status) -> Status:
    """The status as earlier releases write it; `before` is the one that it replaces.

    A Workload that has never been admitted has no condition Admitted. Why one is not admitted does not change, and a
    deactivated one keeps the reason and message for which it had no quota.
    """
    written = []
    for condition in status.conditions:
        shown = find(before.conditions, condition.type)
        never = condition.type == WorkloadCondition.ADMITTED and condition.status == FALSE and shown is None
        if not never:
            keeps = shown is not None and shown.status == FALSE and _keeps_reason(condition)
            written.append(shown if shown is not None and keeps else _former(condition, status))
    return replace(status, conditions=tuple(written))


def current(status: Status) -> Status:
    """The status with the reasons of today, as far as those that were written tell."""
    evicted = status.condition(WorkloadCondition.EVICTED)
    pending = {messages.PENDING_EVALUATION, *([] if evicted is None else [evicted.message])}
    return replace(status, conditions=tuple(_current(each, pending) for each in status.conditions))


def _keeps_reason(condition: Condition) -> bool:
    """Whether another reason than before is not written."""
    if condition.status != FALSE:
        return False
    return condition.type == WorkloadCondition.ADMITTED or (
        condition.type == WorkloadCondition.QUOTA_RESERVED and condition.reason == QuotaReservedReason.DEACTIVATED
    )


def _former(condition: Condition, status: Status) -> Condition:
    if condition.status != FALSE:
        return condition
    if condition.type == WorkloadCondition.QUOTA_RESERVED and condition.reason in _PENDING:
        of_queue = condition.reason in _OF_QUEUES and condition.message.startswith(_QUEUES)
        inadmissible = of_queue or messages.says_claims_problem(condition.message)
        return replace(
            condition, reason=QuotaReservedReason.INADMISSIBLE if inadmissible else QuotaReservedReason.PENDING
        )
    if condition.type != WorkloadCondition.ADMITTED:
        return condition
    if condition.reason == AdmittedReason.UNSATISFIED_ADMISSION_CHECKS:
        return replace(condition, reason=AdmittedReason.UNSATISFIED_CHECKS)
    unsatisfied = any(check.state is not CheckState.READY for check in status.checks)
    if condition.reason == AdmittedReason.NO_RESERVATION and unsatisfied:
        return replace(condition, reason=AdmittedReason.NO_RESERVATION_UNSATISFIED_CHECKS, message=_NEITHER)
    return condition


def _current(condition: Condition, pending: set[str]) -> Condition:
    reason: str = condition.reason
    if condition.status != FALSE:
        return condition
    if condition.type == WorkloadCondition.QUOTA_RESERVED:
        if reason == QuotaReservedReason.INADMISSIBLE:
            suspended = condition.message.endswith(_SUSPENDED)
            reason = QuotaReservedReason.SUSPENDED if suspended else QuotaReservedReason.MISCONFIGURED
        elif reason == QuotaReservedReason.PENDING and condition.message == messages.DEACTIVATED:
            reason = QuotaReservedReason.DEACTIVATED
        elif reason == QuotaReservedReason.PENDING and condition.message in pending:
            reason = QuotaReservedReason.PENDING_EVALUATION
        return replace(condition, reason=reason)
    if condition.type != WorkloadCondition.ADMITTED:
        return condition
    if reason == AdmittedReason.UNSATISFIED_CHECKS:
        return replace(condition, reason=AdmittedReason.UNSATISFIED_ADMISSION_CHECKS)
    if reason == AdmittedReason.NO_RESERVATION_UNSATISFIED_CHECKS:
        none = AdmittedReason.NO_RESERVATION
        return replace(condition, reason=none, message=messages.NOT_ADMITTED[none])
    return condition
