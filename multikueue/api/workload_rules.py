# SPDX-License-Identifier: Apache-2.0
"""The CEL rules over a whole Workload.

What may not change while a workload has quota reserved, by condition and field. The API server enforces these; rules
that need more than the fields of one object are in `api.validation`.
"""

from __future__ import annotations

from typing import Final

from multikueue.api.schema import CelRule


def _has(side: str, condition: str) -> str:
    return (
        f"has({side}.status) && has({side}.status.conditions)"
        f" && {side}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')"
    )


_RESERVED: Final = _has("self", "QuotaReserved")
_WAS_RESERVED: Final = _has("oldSelf", "QuotaReserved")
_HELD: Final = f"(({_WAS_RESERVED}) && ({_RESERVED}))"
_STAYED_ADMITTED: Final = f"(({_has('oldSelf', 'Admitted')}) && ({_has('self', 'Admitted')}))"

POD_SETS_ASSIGNED: Final = CelRule(
    f"{_RESERVED} && has(self.status.admission)"
    " ? size(self.spec.podSets) == size(self.status.admission.podSetAssignments) : true",
    "podSetAssignments must have the same number of podSets as the spec",
)
QUEUE_NAME_KEPT: Final = CelRule(
    f"{_HELD} ? ((has(oldSelf.spec.queueName) == has(self.spec.queueName))"
    " && (!has(oldSelf.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName)) : true",
    "queueName is immutable while workload quota reserved",
)
EXECUTION_TIME_KEPT: Final = CelRule(
    f"{_STAYED_ADMITTED}?"
    "((has(oldSelf.spec.maximumExecutionTimeSeconds)?oldSelf.spec.maximumExecutionTimeSeconds:0) == "
    " (has(self.spec.maximumExecutionTimeSeconds)?self.spec.maximumExecutionTimeSeconds:0)):true",
    "maximumExecutionTimeSeconds is immutable while workload quota reserved",
)

_BOTH_REFER: Final = "has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)"


def _reference_kept(field: str) -> CelRule:
    return CelRule(
        f"({_WAS_RESERVED} && {_BOTH_REFER})"
        f" ? oldSelf.spec.priorityClassRef.{field} == self.spec.priorityClassRef.{field} : true",
        f"priorityClassRef.{field} is immutable while workload quota reserved",
    )


WORKLOAD_RULES: Final = (
    POD_SETS_ASSIGNED,
    CelRule(
        f"({_WAS_RESERVED}) ? (!has(oldSelf.spec.priorityClassRef) && !has(self.spec.priorityClassRef))"
        f" || ({_BOTH_REFER}) : true",
        "priorityClassRef is immutable while workload quota reserved",
    ),
    _reference_kept("group"),
    _reference_kept("kind"),
    CelRule(
        f"({_WAS_RESERVED} && {_BOTH_REFER} && self.spec.priorityClassRef.group == 'scheduling.k8s.io'"
        " && self.spec.priorityClassRef.kind == 'PriorityClass')"
        " ? oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name : true",
        "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
    ),
    QUEUE_NAME_KEPT,
    EXECUTION_TIME_KEPT,
)

_BOTH_SOURCES: Final = "has(oldSelf.spec.priorityClassSource) && has(self.spec.priorityClassSource)"
WORKLOAD_RULES_V1BETA1: Final = (
    POD_SETS_ASSIGNED,
    CelRule(
        f"({_WAS_RESERVED} && {_BOTH_SOURCES})"
        " ? (oldSelf.spec.priorityClassSource == self.spec.priorityClassSource) : true",
        "priorityClassSource is immutable while workload quota reserved",
    ),
    CelRule(
        f"({_WAS_RESERVED} && {_BOTH_SOURCES}"
        " && (self.spec.priorityClassSource != 'kueue.x-k8s.io/workloadpriorityclass')"
        " && has(oldSelf.spec.priorityClassName) && has(self.spec.priorityClassName))"
        " ? (oldSelf.spec.priorityClassName == self.spec.priorityClassName) : true",
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
