# SPDX-License-Identifier: Apache-2.0
"""Converts the verdicts of a cycle to the decisions that the manager writes."""

from __future__ import annotations

from multikueue.api.reasons import QuotaReservedReason
from multikueue.engine import messages
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cycle.cycle import HeadVerdict, required_checks
from multikueue.engine.cycle.nomination import NominatedHead
from multikueue.engine.decisions import Bypassed, Decision, Outcome, PodSetFlavors, Victim
from multikueue.engine.preemption.problem import PreemptionTarget
from multikueue.engine.queue.pending import Pending
from multikueue.engine.settings import Settings
from multikueue.engine.topology.placer import PodSetPlacement
from multikueue.engine.workloads import AssignedDomains

_LEGACY_WAITING = QuotaReservedReason.WAITING
_LEGACY_PENDING = QuotaReservedReason.PENDING


def decision(verdict: HeadVerdict, settings: Settings) -> Decision:
    """The decision to write about a head."""
    nomination = verdict.nomination
    pending, assignment = nomination.pending, nomination.assignment
    workload = pending.workload
    reserved = verdict.outcome is Outcome.RESERVED
    message = messages.quota_reserved(nomination.cluster_queue.name) if reserved else verdict.message
    return Decision(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=nomination.cluster_queue.name,
        outcome=verdict.outcome,
        reason=_reason(verdict.reason, settings),
        message=message,
        requeue_reason=verdict.requeue,
        borrows=assignment.level > 0,
        borrowing_level=assignment.level,
        pod_sets=_pod_sets(nomination, reserved=reserved),
        last_tried_flavor_index=assignment.tried(),
        victims=tuple(_victim(nomination, target) for target in verdict.targets),
        admission_checks=required_checks(nomination) if reserved else (),
        resource_requests=() if reserved else tuple((counted.name, counted.total) for counted in pending.requests),
        flavors_considered=messages.flavors_considered(assignment) if reserved else "",
        blocked_on_preemption_gates=verdict.gated,
        replaced_slice=nomination.replaced.workload.key if reserved and nomination.replaced is not None else None,
    )


def bypassed(
    pending: Pending, cluster_queue: CachedClusterQueue, reason: QuotaReservedReason, settings: Settings
) -> Bypassed:
    """The decision about a workload that became inadmissible with its equal."""
    return Bypassed(
        workload=pending.workload.key,
        cluster_queue=cluster_queue.name,
        reason=_reason(reason, settings) or reason,
        message=messages.BYPASSED,
    )


def _pod_sets(nomination: NominatedHead, *, reserved: bool) -> tuple[PodSetFlavors, ...]:
    return tuple(
        PodSetFlavors(
            name=pod_set.name,
            count=pod_set.count,
            flavors={name: choice.flavor for name, choice in pod_set.choices.items()},
            resource_usage={name: pod_set.requests[name] for name in pod_set.choices if name in pod_set.requests},
            topology=_domains(pod_set.placement) if reserved else None,
            delayed_topology=reserved and pod_set.delayed,
        )
        for pod_set in nomination.assignment.pod_sets
    )


def _domains(placement: PodSetPlacement | None) -> AssignedDomains | None:
    return None if placement is None else AssignedDomains(placement.levels, placement.domains)


def _victim(nomination: NominatedHead, target: PreemptionTarget) -> Victim:
    record = target.record
    return Victim(
        workload=record.workload.key,
        uid=record.uid,
        cluster_queue=record.node.name,
        reason=target.reason,
        message=messages.preempted(
            nomination.pending.workload,
            target.reason,
            preemptor_node=nomination.cluster_queue.node,
            victim_node=record.node,
        ),
        evicted=record.evicted,
        priority=record.priority,
        priorities=messages.effective_priorities(
            (nomination.pending.priority, nomination.pending.workload.priority),
            (record.priority, record.workload.priority),
        ),
        rule=target.rule,
    )


def _reason(reason: QuotaReservedReason | None, settings: Settings) -> QuotaReservedReason | None:
    """Without the gate only the reasons of earlier releases are used (§9.2)."""
    if reason is None or settings.gates.observability or reason is QuotaReservedReason.QUOTA_RESERVED:
        return reason
    return _LEGACY_WAITING if reason is QuotaReservedReason.WAITING_FOR_PODS_READY else _LEGACY_PENDING
