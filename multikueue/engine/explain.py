# SPDX-License-Identifier: Apache-2.0
"""Why a workload stands where it stands, for a person or a program.

Owns the explanation: where the workload is, and for one that waits what a cycle would find, flavor by flavor and
resource by resource, with the figures that were compared. Computed when asked by looking at the workload once more;
cycles keep nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multikueue.api.reasons import PreemptedReason, QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import messages, quota, resources
from multikueue.engine.assignment import AssignmentMode, Attempt, PodSetResult
from multikueue.engine.live import LiveQueue
from multikueue.engine.nomination import Nomination, Nominator
from multikueue.engine.preemption.problem import Target
from multikueue.engine.tree import is_unlimited

if TYPE_CHECKING:
    from multikueue.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCheck:
    """What was compared for one resource of one flavor; amounts as text, None where there is no limit."""

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
    """One flavor that was looked at."""

    flavor: str
    mode: str
    level: int
    chosen: bool
    reasons: tuple[str, ...]
    resources: tuple[ResourceCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetCheck:
    """One pod set, and the flavors that were looked at for it in order; `ended` says why the search ended."""

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
    """The whole answer. `standing` is one of Reserved, Admitted, Pending, Parked, Finished, NotQueued, Unknown."""

    workload: Key
    standing: str
    cluster_queue: str = ""
    position: int | None = None
    mode: str = ""
    reason: QuotaReservedReason | None = None
    message: str = ""
    borrowing_level: int = 0
    pod_sets: tuple[PodSetCheck, ...] = ()
    victims: tuple[VictimCheck, ...] = ()


def explain(world: World, nominator: Nominator, key: Key) -> Explanation:
    """Look at a workload as a cycle would, and take everything back."""
    workload = world.workloads.get(key)
    record = world.reservations.records.get(key)
    if record is not None:
        standing = "Admitted" if record.admitted else "Reserved"
        return Explanation(
            workload=key,
            standing=standing,
            cluster_queue=record.node.name,
            reason=QuotaReservedReason.QUOTA_RESERVED,
            message=messages.quota_reserved(record.node.name),
        )
    if workload is None:
        return Explanation(workload=key, standing="Unknown", message=f"Workload {key} is not known")
    pending = world.waiting.pending.get(key)
    if pending is None:
        if workload.finished:
            return Explanation(workload=key, standing="Finished")
        reason, message = not_queued(world, key)
        return Explanation(workload=key, standing="NotQueued", reason=reason, message=message)
    live = world.waiting.live_of(pending)
    position = next((place for place, other in enumerate(live.queue.in_order()) if other.workload.key == key), None)
    standing = "Parked" if live.queue.is_parked(pending) else "Pending"
    if live.value is None:
        reason, message = not_queued(world, key)
        return Explanation(workload=key, standing="NotQueued", reason=reason, message=message)
    rejection = nominator.rejection(live, pending, active=world.active.get(live.name, False))
    if rejection is not None:
        return Explanation(
            workload=key,
            standing=standing,
            cluster_queue=live.name,
            position=position,
            mode="Rejected",
            reason=rejection.reason,
            message=rejection.message,
        )
    progress = pending.progress
    pending.progress = None
    nomination = Nomination(live, pending)
    nominator.nominate(nomination, cycle=0)
    pending.progress = progress
    assignment = nomination.assignment
    mode = assignment.mode
    return Explanation(
        workload=key,
        standing=standing,
        cluster_queue=live.name,
        position=position,
        mode=messages.assignment_mode_text(mode),
        reason=assignment.no_fit_reason() if mode is AssignmentMode.NO_FIT else _reason(nomination),
        message=messages.pending(assignment),
        borrowing_level=assignment.level,
        pod_sets=tuple(_pod_set(live, pod_set) for pod_set in assignment.pod_sets),
        victims=tuple(_victim(target) for target in nomination.targets),
    )


def not_queued(world: World, key: Key) -> tuple[QuotaReservedReason, str]:
    """Why a workload is in no queue, for its status (`docs/spec/engine.md §7.12`)."""
    workload = world.workloads[key]
    if not workload.active:
        return QuotaReservedReason.DEACTIVATED, messages.DEACTIVATED
    name = workload.queue_name
    local_queue = world.waiting.local_queues.get(Key(key.namespace, name))
    if local_queue is None:
        return QuotaReservedReason.MISCONFIGURED, f"LocalQueue {name} doesn't exist"
    live = world.lives.get(local_queue.cluster_queue)
    if local_queue.stop_policy != "None":
        return QuotaReservedReason.SUSPENDED, f"LocalQueue {name} is inactive"
    if live is None or live.value is None:
        return QuotaReservedReason.MISCONFIGURED, f"ClusterQueue {local_queue.cluster_queue} doesn't exist"
    if not world.active.get(live.name, False):
        return QuotaReservedReason.SUSPENDED, f"ClusterQueue {live.name} is inactive"
    problem = world.counter.problem(workload)
    if problem:
        return QuotaReservedReason.MISCONFIGURED, problem
    if workload.gated_by:
        return QuotaReservedReason.ADMISSION_GATED, f"Admission is gated by: {','.join(workload.gated_by)}"
    return QuotaReservedReason.PENDING_EVALUATION, messages.PENDING_EVALUATION


def _reason(nomination: Nomination) -> QuotaReservedReason | None:
    if nomination.assignment.mode is AssignmentMode.FIT:
        return None
    if nomination.targets:
        return QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS
    return QuotaReservedReason.WAITING_FOR_QUOTA


def _pod_set(live: LiveQueue, result: PodSetResult) -> PodSetCheck:
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
        ended=_ended(live, result),
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


def _ended(live: LiveQueue, result: PodSetResult) -> str:
    if not result.attempts:
        return "no flavor was looked at"
    tried = {choice.tried for choice in result.choices.values()}
    value = live.value
    if not result.choices:
        return "no flavor gives what is asked"
    if tried == {-1} or value is None:
        return "the last flavor was looked at"
    policy = value.fungibility
    return (
        f"the flavor is good enough for whenCanBorrow={policy.when_can_borrow},"
        f" whenCanPreempt={policy.when_can_preempt}"
    )


def _victim(target: Target) -> VictimCheck:
    record = target.record
    return VictimCheck(
        workload=record.workload.key,
        cluster_queue=record.node.name,
        reason=target.reason,
        priority=record.priority,
        rule=target.rule,
    )
