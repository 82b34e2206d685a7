# SPDX-License-Identifier: Apache-2.0
"""The engine's decisions as changes of Workload status: the pure half of the scheduler loop.

Each decision must pass its guard again when it is written, since the object may have changed since the cycle
(`docs/spec/engine.md §3.11`, §3.12, §4.7). A guard that fails returns the status unchanged; the caller then reports
that to the engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from manager.scheduler.pending_writes import News
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.constants import DelayedTopology
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import EvictedReason, QuotaReservedReason, WorkloadCondition
from multikueue.api.topologyslices import compress
from multikueue.core.conditions import MAX_EVENT_MESSAGE, TRUE, truncate_message
from multikueue.core.keys import Key
from multikueue.engine.decisions import Bypassed, Decision, PodSetFlavors, TopologyDecision, Victim
from multikueue.engine.resources import texts
from multikueue.engine.workloads import AssignedDomains
from multikueue.kube.runtime.quarantine import Quarantined

_AMOUNT: Final = re.compile(r"(?<![\w.\-/])\d+(?:\.\d+)?(?:[numkMGTPE]|[KMGTPE]i)?(?![\w\-/])")


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
                **topology_of(pod_set),
            }
            for pod_set in decision.pod_sets
        ],
    }


def topology_of(pod_set: PodSetFlavors) -> JsonObject:
    """Where its pods are to be, or that this is decided later; nothing without a topology."""
    if pod_set.delayed_topology:
        return {"delayedTopologyRequest": str(DelayedTopology.PENDING)}
    if pod_set.topology is None:
        return {}
    return {"topologyAssignment": assigned_topology(pod_set.topology)}


def assigned_topology(assigned: AssignedDomains) -> JsonObject:
    """`topologyAssignment` of one pod set."""
    domains = [{"values": list(values), "count": count} for values, count in assigned.domains]
    return compress({"levels": list(assigned.levels), "domains": domains})


def reserve(status: Status, decision: Decision, *, now: datetime) -> Status:
    """The reservation with the checks of its flavors, unless the workload is finished or holds one.

    A check that is not required any more stays listed, and keeps the workload from being admitted, until the workload
    reconciler drops it.
    """
    if status.is_true(WorkloadCondition.FINISHED) or status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return status
    return changes.reserve(
        changes.list_checks(status, decision.admission_checks, now=now),
        cluster_queue=decision.cluster_queue,
        admission=admission_of(decision),
        required_checks=decision.admission_checks,
        now=now,
    )


def assign_topologies(status: Status, decision: TopologyDecision, *, now: datetime) -> Status:
    """The places that it was given, or its eviction, if it still needs them; it may be admitted by that."""
    if not needs_places(status, decision):
        return status
    if decision.evict:
        return changes.evict(status, reason=EvictedReason.NODE_FAILURES, message=decision.evict, now=now)
    topologies = {name: assigned_topology(domains) for name, domains in decision.topologies}
    admission = dict(status.admission or {})
    admission["podSetAssignments"] = [
        {**each, "topologyAssignment": topologies[each["name"]], **_ready(each)} if each["name"] in topologies else each
        for each in admission.get("podSetAssignments") or ()
    ]
    return changes.sync_admitted(replace(status, admission=admission, unhealthy_nodes=()), now=now)


def needs_places(status: Status, decision: TopologyDecision) -> bool:
    """Whether it holds the quota of the decision, and the nodes are those that had failed then."""
    if status.is_true(WorkloadCondition.FINISHED) or status.is_true(WorkloadCondition.EVICTED):
        return False
    queue = (status.admission or {}).get("clusterQueue")
    return (
        status.is_true(WorkloadCondition.QUOTA_RESERVED)
        and queue == decision.cluster_queue
        and set(status.unhealthy_nodes) == set(decision.unhealthy_nodes)
    )


def _ready(assignment: JsonObject) -> JsonObject:
    return {"delayedTopologyRequest": str(DelayedTopology.READY)} if "delayedTopologyRequest" in assignment else {}


def pend(status: Status, decision: Decision, *, now: datetime) -> Status:
    """Why there is no reservation, unless there is one now."""
    if (
        decision.reason is None
        or status.is_true(WorkloadCondition.FINISHED)
        or status.is_true(WorkloadCondition.QUOTA_RESERVED)
    ):
        return status
    return changes.pend(
        status,
        reason=decision.reason,
        message=decision.message,
        resource_requests=_requests(decision.resource_requests),
        blocked_on_gates=decision.blocked_on_preemption_gates,
        now=now,
    )


def news(before: Status, after: Status) -> News:
    """How much `after`, which explains why a workload waits, differs from `before`."""
    if after is before or after.wire() == before.wire():
        return News.NOTHING
    if before.checks != after.checks or not changes.only_explains_waiting(before, after):
        return News.REASON
    if _reasons(before) == _reasons(after):
        return News.FIGURES
    shown = before.condition(WorkloadCondition.QUOTA_RESERVED)
    return News.REASON if shown is None else News.CHANGED


def _reasons(status: Status) -> list[tuple[str, str, str, str]]:
    return [(item.type, item.status, item.reason, _AMOUNT.sub("0", item.message)) for item in status.conditions]


def bypass(status: Status, bypassed: Bypassed, *, now: datetime) -> Status:
    """Inadmissible like an equal workload; the scheduler's last message about the workload itself is kept."""
    held = status.condition(WorkloadCondition.QUOTA_RESERVED)
    if status.is_true(WorkloadCondition.FINISHED) or (held is not None and held.status == TRUE):
        return status
    if held is not None and held.reason == bypassed.reason:
        return status
    return changes.pend(status, reason=bypassed.reason, message=bypassed.message, resource_requests=None, now=now)


def unusable(status: Status, message: str, *, now: datetime) -> Status:
    """Why the engine cannot use the Workload at all, unless it is finished or holds quota."""
    if status.is_true(WorkloadCondition.FINISHED) or status.is_true(WorkloadCondition.QUOTA_RESERVED):
        return status
    return changes.pend(
        status,
        reason=QuotaReservedReason.MISCONFIGURED,
        message=truncate_message(message, MAX_EVENT_MESSAGE),
        resource_requests=None,
        now=now,
    )


def preempt(status: Status, victim: Victim, *, now: datetime) -> Status:
    """Phase A on a victim, unless it is evicted already, has finished, or holds no quota any more."""
    if (
        status.is_true(WorkloadCondition.FINISHED)
        or status.is_true(WorkloadCondition.EVICTED)
        or not status.is_true(WorkloadCondition.QUOTA_RESERVED)
    ):
        return status
    return changes.preempt(status, reason=victim.reason, message=victim.message, now=now)


def _requests(requests: tuple[tuple[str, Mapping[str, int]], ...]) -> tuple[JsonObject, ...] | None:
    if not requests:
        return None
    return changes.requests_wire((name, texts(amounts)) for name, amounts in requests)


def reserved_event(decision: Decision, *, waited: float) -> str:
    """The message of the event QuotaReserved (§9.4)."""
    text = f"Quota reserved in ClusterQueue {decision.cluster_queue}, wait time since queued was {waited:.0f}s"
    if decision.flavors_considered:
        text = f"{text}; Flavors considered: {decision.flavors_considered}"
    return truncate_message(text, MAX_EVENT_MESSAGE)


def admitted_event(cluster_queue: str, *, waited: float) -> str:
    """The message of the event Admitted (§9.4)."""
    return f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited:.0f}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReason:
    """Why a Workload waits, as it was decided, or why it cannot be read."""

    decided: Decision | Bypassed | Quarantined
    now: datetime
    uid: str = ""
    attempt: int = 1

    @property
    def key(self) -> Key:
        """Of the Workload."""
        return self.decided.key if isinstance(self.decided, Quarantined) else self.decided.workload

    def change(self, status: Status) -> Status:
        """The status with the reason in it."""
        match self.decided:
            case Decision():
                return pend(status, self.decided, now=self.now)
            case Bypassed():
                return bypass(status, self.decided, now=self.now)
            case Quarantined():
                return unusable(status, self.decided.message, now=self.now)
