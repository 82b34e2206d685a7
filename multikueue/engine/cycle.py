# SPDX-License-Identifier: Apache-2.0
"""One cycle over the heads of all queues (`docs/spec/engine.md §3`).

Owns the sequence: nominate each head on the usage of the cycle's start, order, process one by one with what earlier
ones took. Changes the tree only by what is admitted; everything else of the cycle is taken back at its end. Requeuing
and recording reservations are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import entry_order, fair_order, messages, quota
from multikueue.engine.assignment import AssignmentMode
from multikueue.engine.decisions import Outcome, RequeueReason
from multikueue.engine.live import LiveQueue
from multikueue.engine.nomination import Nomination, Nominator, Rejection
from multikueue.engine.pending import Pending
from multikueue.engine.preemption.problem import Target
from multikueue.engine.reserving import CycleUsage, held_for
from multikueue.engine.settings import Settings
from multikueue.engine.standing import Reserved
from multikueue.engine.tree import Node


@dataclass(slots=True)
class Verdict:
    """What a cycle says of one head. Without a requeue reason it is admitted, or dropped when `drop` says so."""

    nomination: Nomination
    outcome: Outcome
    reason: QuotaReservedReason | None
    message: str
    requeue: RequeueReason | None = None
    targets: Sequence[Target] = ()
    keeps_progress: bool = False
    gated: bool = False
    looked_at: bool = True


@dataclass(slots=True)
class Head:
    """A popped workload and its queue."""

    live: LiveQueue
    pending: Pending
    active: bool


@dataclass(slots=True)
class _Gone:
    """Victims of this cycle, by tree: other trees never feel them."""

    keys: set[Key] = field(default_factory=set)
    records: dict[Node, dict[Key, Reserved]] = field(default_factory=dict)

    def of(self, root: Node) -> dict[Key, Reserved]:
        """Those of one tree."""
        return self.records.get(root, {})

    def add(self, root: Node, targets: Iterable[Target]) -> None:
        """Count more."""
        known = self.records.setdefault(root, {})
        for target in targets:
            known[target.record.workload.key] = target.record
            self.keys.add(target.record.workload.key)


class CycleRunner:
    """Runs cycles; keeps nothing between them but whom it was deciding about, if a cycle broke."""

    def __init__(self, *, settings: Settings, nominator: Nominator) -> None:
        self._settings = settings
        self._nominator = nominator
        self.deciding: Key | None = None

    def run(self, heads: Sequence[Head], *, number: int, waits_for_pods: bool) -> tuple[list[Verdict], bool]:
        """Verdicts in the order taken, rejections last; and whether admission waits for pods to be ready."""
        nominations = []
        rejections = []
        for head in heads:
            self.deciding = head.pending.workload.key
            nomination = Nomination(head.live, head.pending)
            rejection = self._nominator.rejection(head.live, head.pending, active=head.active)
            if rejection is not None:
                rejections.append(_rejected(nomination, rejection))
                continue
            self._nominator.nominate(nomination, cycle=number)
            nominations.append(nomination)
        self.deciding = None
        order = fair_order.tournament if self._settings.fair_sharing else entry_order.classical
        usage = CycleUsage()
        gone = _Gone()
        verdicts: list[Verdict] = []
        blocked = False
        for nomination in order(nominations, self._settings):
            if blocked:
                verdicts.append(_put_back(nomination))
                continue
            self.deciding = nomination.pending.workload.key
            verdict = self._process(nomination, usage, gone)
            if verdict.outcome is Outcome.RESERVED and waits_for_pods:
                blocked = True
                verdict = _waiting(nomination)
            if verdict.outcome is Outcome.RESERVED:
                self._occupy(nomination, usage, lasting=True)
                waits_for_pods = waits_for_pods or self._would_wait(nomination)
            verdicts.append(verdict)
            self.deciding = None
        usage.end()
        return [*verdicts, *rejections], blocked

    def _would_wait(self, nomination: Nomination) -> bool:
        """Whether the next admission waits for the pods of this one, which is admitted at once."""
        ready = self._settings.pods_ready
        if ready is None or not ready.block_admission:
            return False
        return not required_checks(nomination)

    def _process(self, nomination: Nomination, usage: CycleUsage, gone: _Gone) -> Verdict:
        """Steps A to J of §3.9."""
        root = nomination.live.node.root()
        victims = gone.of(root)
        deferred = False
        if _overlaps(nomination, gone) and self._settings.gates.recompute_on_overlap:
            for record in victims.values():
                quota.give_all(record.usage)
            self._nominator.renominate(nomination, gone.keys)
            for record in victims.values():
                quota.take_all(record.usage)
            deferred = nomination.assignment.mode is AssignmentMode.FIT
        mode = AssignmentMode.DEFERRED if deferred else nomination.assignment.mode
        nomination.assignment.deferred = deferred
        message = messages.pending(nomination.assignment)
        if mode is AssignmentMode.NO_FIT:
            return Verdict(
                nomination,
                Outcome.PENDING,
                nomination.assignment.no_fit_reason(),
                message,
                RequeueReason.NO_FIT,
                keeps_progress=True,
            )
        if mode is AssignmentMode.PREEMPT and not nomination.targets:
            usage.add(held_for(nomination, self._settings), lasting=False)
            return Verdict(
                nomination,
                Outcome.PENDING,
                QuotaReservedReason.WAITING_FOR_QUOTA,
                message,
                RequeueReason.PREEMPTION_NO_CANDIDATES,
                keeps_progress=True,
            )
        if mode is AssignmentMode.PREEMPT and nomination.pending.workload.preemption_gate_closed:
            return Verdict(
                nomination,
                Outcome.PENDING,
                QuotaReservedReason.ADMISSION_GATED,
                messages.GATED,
                RequeueReason.PREEMPTION_GATED,
                gated=True,
            )
        if mode is AssignmentMode.DEFERRED:
            self._occupy(nomination, usage, lasting=False)
            return Verdict(
                nomination,
                Outcome.PENDING,
                QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS,
                messages.DEFERRED,
                RequeueReason.PENDING_PREEMPTION,
            )
        if _overlaps(nomination, gone):
            return _skipped(nomination, messages.OVERLAPPING)
        if not self._fits(nomination, victims):
            return _skipped(nomination, messages.NO_LONGER_FITS)
        gone.add(root, nomination.targets)
        if mode is AssignmentMode.FIT:
            return Verdict(nomination, Outcome.RESERVED, QuotaReservedReason.QUOTA_RESERVED, "")
        self._occupy(nomination, usage, lasting=False)
        return Verdict(
            nomination,
            Outcome.PREEMPTING,
            QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS,
            messages.pending_preemption(message, len(nomination.targets)),
            RequeueReason.PENDING_PREEMPTION,
            targets=nomination.targets,
        )

    def _fits(self, nomination: Nomination, victims: dict[Key, Reserved]) -> bool:
        """Whether an entry's usage is there, with all victims so far and its own gone."""
        own = {target.record.workload.key: target.record for target in nomination.targets}
        if nomination.replaced is not None:
            own[nomination.replaced.workload.key] = nomination.replaced
        absent = list({**victims, **own}.values())
        for record in absent:
            quota.give_all(record.usage)
        fits = quota.fits(nomination.amounts)
        for record in absent:
            quota.take_all(record.usage)
        return fits

    def _occupy(self, nomination: Nomination, usage: CycleUsage, *, lasting: bool) -> None:
        amounts = nomination.amounts
        if nomination.replaced is not None:
            # Until the old slice is taken off, what it holds is counted already.
            old = {id(cell): amount for cell, amount in nomination.replaced.usage}
            amounts = [(cell, max(0, amount - old.get(id(cell), 0))) for cell, amount in amounts]
        nomination.occupied = amounts
        usage.add(amounts, lasting=lasting)


def required_checks(nomination: Nomination) -> tuple[str, ...]:
    """The admission checks that apply to the flavors of an assignment (§3.11)."""
    value = nomination.live.value
    if value is None or not value.checks:
        return ()
    flavors = {choice.flavor for pod_set in nomination.assignment.pod_sets for choice in pod_set.choices.values()}
    return tuple(rule.name for rule in value.checks if not rule.on_flavors or rule.on_flavors & flavors)


def _overlaps(nomination: Nomination, gone: _Gone) -> bool:
    return bool(gone.keys) and any(target.record.workload.key in gone.keys for target in nomination.targets)


def _rejected(nomination: Nomination, rejection: Rejection) -> Verdict:
    return Verdict(
        nomination, Outcome.INADMISSIBLE, rejection.reason, rejection.message, rejection.requeue, looked_at=False
    )


def _skipped(nomination: Nomination, message: str) -> Verdict:
    return Verdict(
        nomination,
        Outcome.SKIPPED,
        QuotaReservedReason.WAITING_FOR_QUOTA,
        message,
        RequeueReason.FAILED_AFTER_NOMINATION,
        keeps_progress=True,
    )


def _waiting(nomination: Nomination) -> Verdict:
    return Verdict(
        nomination,
        Outcome.PENDING,
        QuotaReservedReason.WAITING_FOR_PODS_READY,
        messages.WAITING_FOR_PODS_READY,
        RequeueReason.FAILED_AFTER_NOMINATION,
    )


def _put_back(nomination: Nomination) -> Verdict:
    """An entry behind one that waits for pods: it is looked at again when that is over."""
    return Verdict(nomination, Outcome.SKIPPED, None, "", RequeueReason.FAILED_AFTER_NOMINATION)
