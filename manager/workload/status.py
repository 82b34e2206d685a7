# SPDX-License-Identifier: Apache-2.0
"""The status of a Workload as a value.

Owns which fields the field manager `kueue-admission` lists (`docs/spec/engine.md §7.1`). Leaves the changes to
`manager.workload.changes`, and writing them to `manager.workload.status_writer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from manager.workload.conditions import condition_wire, conditions_of
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core import conditions
from multikueue.core.conditions import Condition
from multikueue.core.timestamps import format_time, parse_time

OWNED_CONDITIONS: Final = frozenset(
    {
        WorkloadCondition.QUOTA_RESERVED,
        WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
        WorkloadCondition.EVICTED,
        WorkloadCondition.ADMITTED,
        WorkloadCondition.PREEMPTED,
        WorkloadCondition.REQUEUED,
        WorkloadCondition.DEACTIVATION_TARGET,
        WorkloadCondition.FINISHED,
        WorkloadCondition.PODS_READY,
        WorkloadCondition.PODS_STARTED,
        WorkloadCondition.CHANGE_FORWARDED,
        WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One entry of status.admissionChecks."""

    name: str
    state: CheckState
    message: str = ""
    last_transition_time: datetime
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    pod_set_updates: tuple[JsonObject, ...] = ()

    def wire(self) -> JsonObject:
        """The entry of `admissionChecks`."""
        return {
            "name": self.name,
            "state": str(self.state),
            "message": conditions.truncate_message(self.message),
            "lastTransitionTime": format_time(self.last_transition_time),
            **({} if self.requeue_after_seconds is None else {"requeueAfterSeconds": self.requeue_after_seconds}),
            **({} if self.retry_count is None else {"retryCount": self.retry_count}),
            **({"podSetUpdates": list(self.pod_set_updates)} if self.pod_set_updates else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """How often a workload was evicted for one reason."""

    reason: str
    underlying_cause: str = ""
    count: int

    def wire(self) -> JsonObject:
        """The entry of `schedulingStats.evictions`."""
        return {"reason": self.reason, "underlyingCause": self.underlying_cause, "count": self.count}


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything of a Workload's status that `kueue-admission` owns; conditions of others are read, not written."""

    admission: JsonObject | None = None
    conditions: tuple[Condition, ...] = ()
    checks: tuple[Check, ...] = ()
    requeue_count: int | None = None
    requeue_at: datetime | None = None
    resource_requests: tuple[JsonObject, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    past_execution_seconds: int | None = None
    cluster_name: str = ""
    nominated: tuple[str, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()
    preemption_gates: tuple[JsonObject, ...] = ()

    @classmethod
    def of(cls, workload: JsonObject) -> Status:
        """The status of a Workload as it came from the API server."""
        status: JsonObject = workload.get("status") or {}
        requeue: JsonObject = status.get("requeueState") or {}
        return cls(
            admission=status.get("admission"),
            conditions=conditions_of(status.get("conditions") or ()),
            checks=tuple(_check(entry) for entry in status.get("admissionChecks") or ()),
            requeue_count=requeue.get("count"),
            requeue_at=parse_time(requeue["requeueAt"]) if requeue.get("requeueAt") else None,
            resource_requests=tuple(status.get("resourceRequests") or ()),
            evictions=tuple(
                Eviction(
                    reason=entry["reason"],
                    underlying_cause=entry.get("underlyingCause", ""),
                    count=entry.get("count", 0),
                )
                for entry in (status.get("schedulingStats") or {}).get("evictions") or ()
            ),
            past_execution_seconds=status.get("accumulatedPastExecutionTimeSeconds"),
            cluster_name=status.get("clusterName") or "",
            nominated=tuple(status.get("nominatedClusterNames") or ()),
            unhealthy_nodes=tuple(entry["name"] for entry in status.get("unhealthyNodes") or ()),
            preemption_gates=tuple(status.get("preemptionGates") or ()),
        )

    def condition(self, kind: WorkloadCondition) -> Condition | None:
        """The condition of that type, if there is one."""
        return conditions.find(self.conditions, kind)

    def is_true(self, kind: WorkloadCondition) -> bool:
        """Whether the condition of that type is True."""
        return conditions.is_true(self.conditions, kind)

    def check(self, name: str) -> Check | None:
        """The state of that admission check, if the workload has it."""
        return next((check for check in self.checks if check.name == name), None)

    @property
    def epoch(self) -> int:
        """One more than the number of evictions; the annotation with its minimum is not considered."""
        return 1 + sum(eviction.count for eviction in self.evictions)

    def wire(self) -> JsonObject:
        """The owned fields as an apply sends them; an owned field that is absent here is removed by it."""
        requeue = {
            **({} if self.requeue_count is None else {"count": self.requeue_count}),
            **({} if self.requeue_at is None else {"requeueAt": format_time(self.requeue_at)}),
        }
        fields: dict[str, object] = {
            "admission": self.admission,
            "requeueState": requeue,
            "resourceRequests": list(self.resource_requests),
            "conditions": [condition_wire(item) for item in self.conditions if item.type in OWNED_CONDITIONS],
            "accumulatedPastExecutionTimeSeconds": self.past_execution_seconds,
            "schedulingStats": {"evictions": [item.wire() for item in self.evictions]} if self.evictions else None,
            "clusterName": self.cluster_name,
            "nominatedClusterNames": list(self.nominated),
            "unhealthyNodes": [{"name": name} for name in self.unhealthy_nodes],
            "preemptionGates": list(self.preemption_gates),
            "admissionChecks": [item.wire() for item in self.checks],
        }
        # An empty map or list would be owned and stored as such; zero seconds of past execution is the absent value.
        return {name: value for name, value in fields.items() if value not in (None, "", 0, {}, [])}


def _check(entry: JsonObject) -> Check:
    return Check(
        name=entry["name"],
        state=CheckState(entry["state"]),
        message=entry.get("message", ""),
        last_transition_time=parse_time(entry["lastTransitionTime"]),
        requeue_after_seconds=entry.get("requeueAfterSeconds"),
        retry_count=entry.get("retryCount"),
        pod_set_updates=tuple(entry.get("podSetUpdates") or ()),
    )
