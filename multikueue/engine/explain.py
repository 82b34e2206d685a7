# SPDX-License-Identifier: Apache-2.0
"""Explains the state of a workload to a user or a program.

For a pending workload, the explanation holds what a cycle would find, flavor by flavor and resource by resource, with
the figures that were compared. It is computed on request by evaluating the workload again; cycles keep nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multikueue.api.reasons import PreemptedReason, QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import messages, resources
from multikueue.engine import workload_conditions as conditions
from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.tree import is_unlimited
from multikueue.engine.cycle.nomination import NominatedHead, Nominator
from multikueue.engine.flavorassigner.assignment import AssignmentMode, Attempt, PodSetResult
from multikueue.engine.preemption.problem import PreemptionTarget

if TYPE_CHECKING:
    from multikueue.engine.cache.cache import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCheck:
    """What was compared for one resource of one flavor; amounts as text, None for no limit."""

    resource: str
    requested: str
    used: str
    nominal: str
    borrowing_limit: str | None
    free: str
    borrowable: str
    capacity: str
    short: str
    mode: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorCheck:
    """One flavor that was tried."""

    flavor: str
    mode: str
    level: int
    chosen: bool
    reasons: tuple[str, ...]
    resources: tuple[ResourceCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetCheck:
    """One pod set, and the flavors tried for it in order; `ended` says why the search ended."""

    name: str
    count: int
    mode: str
    flavors: tuple[FlavorCheck, ...]
    ended: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimCheck:
    """A workload that would be evicted, and the rule that chose it."""

    workload: Key
    cluster_queue: str
    reason: PreemptedReason
    priority: int
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The whole explanation; `state` is Reserved, Admitted, Pending, Inadmissible, Finished, NotQueued or Unknown."""

    workload: Key
    state: str
    cluster_queue: str = ""
    position: int | None = None
    mode: str = ""
    reason: QuotaReservedReason | None = None
    message: str = ""
    borrowing_level: int = 0
    pod_sets: tuple[PodSetCheck, ...] = ()
    victims: tuple[VictimCheck, ...] = ()


def explain(cache: Cache, nominator: Nominator, key: Key) -> Explanation:
    """Evaluate a workload as a cycle would, and undo it."""
    workload = cache.workloads.get(key)
    record = cache.reservations.records.get(key)
    if record is not None:
        state = "Admitted" if record.admitted else "Reserved"
        return Explanation(
            workload=key,
            state=state,
            cluster_queue=record.node.name,
            reason=QuotaReservedReason.QUOTA_RESERVED,
            message=messages.quota_reserved(record.node.name),
        )
    if key in cache.finished:
        return Explanation(workload=key, state="Finished")
    if workload is None:
        return Explanation(workload=key, state="Unknown", message=f"Workload {key} not found")
    pending = cache.waiting.pending.get(key)
    if pending is None:
        reason, message = not_queued(cache, key)
        return Explanation(workload=key, state="NotQueued", reason=reason, message=message)
    cluster_queue = cache.waiting.cluster_queue_of(pending)
    position = next(
        (place for place, other in enumerate(cluster_queue.queue.in_order()) if other.workload.key == key), None
    )
    state = "Inadmissible" if cluster_queue.queue.is_inadmissible(pending) else "Pending"
    if cluster_queue.value is None:
        reason, message = not_queued(cache, key)
        return Explanation(workload=key, state="NotQueued", reason=reason, message=message)
    rejection = nominator.rejection(cluster_queue, pending, active=cluster_queue.active)
    if rejection is not None:
        return Explanation(
            workload=key,
            state=state,
            cluster_queue=cluster_queue.name,
            position=position,
            mode="Rejected",
            reason=rejection.reason,
            message=rejection.message,
        )
    progress = pending.progress
    pending.progress = None
    nomination = NominatedHead(cluster_queue, pending)
    nominator.nominate(nomination, cycle=0)
    pending.progress = progress
    assignment = nomination.assignment
    mode = assignment.mode
    return Explanation(
        workload=key,
        state=state,
        cluster_queue=cluster_queue.name,
        position=position,
        mode=messages.assignment_mode_text(mode),
        reason=assignment.no_fit_reason() if mode is AssignmentMode.NO_FIT else _reason(nomination),
        message=messages.pending(assignment),
        borrowing_level=assignment.level,
        pod_sets=tuple(_pod_set(cluster_queue, pod_set) for pod_set in assignment.pod_sets),
        victims=tuple(_victim(target) for target in nomination.targets),
    )


def not_queued(cache: Cache, key: Key) -> tuple[QuotaReservedReason, str]:
    """Why a workload is in no queue, for its status (`docs/spec/engine.md §7.12`)."""
    workload = cache.workloads[key]
    if not workload.active:
        return QuotaReservedReason.DEACTIVATED, messages.DEACTIVATED
    if workload.deleting:
        return QuotaReservedReason.PENDING_EVALUATION, messages.DELETING
    name = workload.queue_name
    local_queue = cache.waiting.local_queues.get(Key(key.namespace, name))
    if local_queue is None:
        return conditions.queue_missing("LocalQueue", name)
    cluster_queue = cache.cluster_queues.get(local_queue.cluster_queue)
    if local_queue.stop_policy != "None":
        return conditions.queue_inactive("LocalQueue", name)
    if cluster_queue is None or cluster_queue.value is None:
        return conditions.queue_missing("ClusterQueue", local_queue.cluster_queue)
    if not cluster_queue.active:
        return conditions.queue_inactive("ClusterQueue", cluster_queue.name)
    problem = cache.counter.claims_problem(workload) or cache.counter.problem(workload)
    if problem:
        return QuotaReservedReason.MISCONFIGURED, problem
    if workload.gated_by:
        return conditions.gated(workload.gated_by)
    return QuotaReservedReason.PENDING_EVALUATION, messages.PENDING_EVALUATION


def _reason(nomination: NominatedHead) -> QuotaReservedReason | None:
    if nomination.assignment.mode is AssignmentMode.FIT:
        return None
    if nomination.targets:
        return QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS
    return QuotaReservedReason.WAITING_FOR_QUOTA


def _pod_set(cluster_queue: CachedClusterQueue, result: PodSetResult) -> PodSetCheck:
    chosen = {choice.flavor for choice in result.choices.values()}
    flavors = []
    for attempt in result.attempts:
        flavors.append(
            FlavorCheck(
                flavor=attempt.flavor,
                mode=messages.mode_text(attempt.mode),
                level=attempt.level,
                chosen=attempt.flavor in chosen,
                reasons=tuple(attempt.reasons),
                resources=tuple(_check(attempt, name, result) for name in attempt.choices),
            )
        )
    return PodSetCheck(
        name=result.name,
        count=result.count,
        mode=messages.assignment_mode_text(result.mode),
        flavors=tuple(flavors),
        ended=_ended(cluster_queue, result),
        reasons=tuple(sorted(result.reasons)),
    )


def _check(attempt: Attempt, name: str, result: PodSetResult) -> ResourceCheck:
    choice = attempt.choices[name]
    cell = choice.cell
    free = max(0, quota.available(cell))
    requested = result.requests.get(name, 0)
    limit = cell.borrowing_limit
    own = max(0, cell.nominal - cell.usage)
    return ResourceCheck(
        resource=name,
        requested=resources.text(name, requested),
        used=resources.text(name, cell.usage),
        nominal=_text(name, cell.nominal),
        borrowing_limit=None if limit is None else _text(name, limit),
        free=_text(name, free),
        borrowable=_text(name, max(0, free - own)),
        capacity=_text(name, cell.potential),
        short=resources.text(name, max(0, requested - free)),
        mode=messages.mode_text(choice.mode),
        level=choice.level,
    )


def _text(resource: str, value: int) -> str:
    return "<unlimited>" if is_unlimited(value) else resources.text(resource, value)


def _ended(cluster_queue: CachedClusterQueue, result: PodSetResult) -> str:
    if not result.attempts:
        return "no flavor was tried"
    tried = {choice.tried for choice in result.choices.values()}
    value = cluster_queue.value
    if not result.choices:
        return "no flavor fits"
    if tried == {-1} or value is None:
        return "the last flavor was tried"
    policy = value.fungibility
    return (
        f"the flavor is good enough for whenCanBorrow={policy.when_can_borrow},"
        f" whenCanPreempt={policy.when_can_preempt}"
    )


def _victim(target: PreemptionTarget) -> VictimCheck:
    record = target.record
    return VictimCheck(
        workload=record.workload.key,
        cluster_queue=record.node.name,
        reason=target.reason,
        priority=record.priority,
        rule=target.rule,
    )
