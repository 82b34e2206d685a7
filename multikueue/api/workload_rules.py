# SPDX-License-Identifier: Apache-2.0
"""The CEL rules over a whole Workload.

What may not change while a workload has quota reserved, by condition and field. The API server enforces these; rules
that need more than the fields of one object are in `api.validation`. It evaluates each rule at each write, also of the
status, so a rule first compares the field, which has rarely changed, and then looks through the conditions.
"""

from __future__ import annotations

from typing import Final

from multikueue.api.schema import CelRule


def _has(side: str, condition: str) -> str:
    return (
        f"has({side}.status) && has({side}.status.conditions)"
        f" && {side}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')"
    )


def _same(field: str) -> str:
    return (
        f"(has(oldSelf.spec.{field}) == has(self.spec.{field})"
        f" && (!has(oldSelf.spec.{field}) || oldSelf.spec.{field} == self.spec.{field}))"
    )


_RESERVED: Final = _has("self", "QuotaReserved")
_WAS_RESERVED: Final = _has("oldSelf", "QuotaReserved")
_HELD: Final = f"(({_WAS_RESERVED}) && ({_RESERVED}))"
_STAYED_ADMITTED: Final = f"(({_has('oldSelf', 'Admitted')}) && ({_has('self', 'Admitted')}))"

POD_SETS_ASSIGNED: Final = CelRule(
    "!has(self.status) || !has(self.status.admission)"
    f" || size(self.spec.podSets) == size(self.status.admission.podSetAssignments) || !({_RESERVED})",
    "podSetAssignments must have the same number of podSets as the spec",
)
QUEUE_NAME_KEPT: Final = CelRule(
    f"{_same('queueName')} || !{_HELD}",
    "queueName is immutable while workload quota reserved",
)
EXECUTION_TIME_KEPT: Final = CelRule(
    "(has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0)"
    " == (has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0)"
    f" || !{_STAYED_ADMITTED}",
    "maximumExecutionTimeSeconds is immutable while workload quota reserved",
)


def _kept_if_in_both(field: str, *, within: str = "", unless: str = "") -> str:
    """A field that both versions have, or that of an object that both have, has the same value."""
    has = within or field
    exempt = f" || {unless}" if unless else ""
    return (
        f"!has(oldSelf.spec.{has}) || !has(self.spec.{has}) || oldSelf.spec.{field} == self.spec.{field}"
        f"{exempt} || !({_WAS_RESERVED})"
    )


WORKLOAD_RULES: Final = (
    POD_SETS_ASSIGNED,
    CelRule(
        f"has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef) || !({_WAS_RESERVED})",
        "priorityClassRef is immutable while workload quota reserved",
    ),
    CelRule(
        _kept_if_in_both("priorityClassRef.group", within="priorityClassRef"),
        "priorityClassRef.group is immutable while workload quota reserved",
    ),
    CelRule(
        _kept_if_in_both("priorityClassRef.kind", within="priorityClassRef"),
        "priorityClassRef.kind is immutable while workload quota reserved",
    ),
    CelRule(
        _kept_if_in_both(
            "priorityClassRef.name",
            within="priorityClassRef",
            unless="self.spec.priorityClassRef.group != 'scheduling.k8s.io'"
            " || self.spec.priorityClassRef.kind != 'PriorityClass'",
        ),
        "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
    ),
    QUEUE_NAME_KEPT,
    EXECUTION_TIME_KEPT,
)
WORKLOAD_RULES_V1BETA1: Final = (
    POD_SETS_ASSIGNED,
    CelRule(
        _kept_if_in_both("priorityClassSource"),
        "priorityClassSource is immutable while workload quota reserved",
    ),
    CelRule(
        _kept_if_in_both(
            "priorityClassName",
            unless="!has(oldSelf.spec.priorityClassSource) || !has(self.spec.priorityClassSource)"
            " || self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass'",
        ),
        "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to"
        " kueue.x-k8s.io/workloadpriorityclass",
    ),
    QUEUE_NAME_KEPT,
    EXECUTION_TIME_KEPT,
)

STATUS_RULES: Final = (
    CelRule(
        "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        "clusterName is immutable once set",
    ),
    CelRule(
        "!has(self.clusterName) || (!has(self.nominatedClusterNames)"
        " || (has(self.nominatedClusterNames) && size(self.nominatedClusterNames) == 0))",
        "clusterName and nominatedClusterNames are mutually exclusive",
    ),
)
