# SPDX-License-Identifier: Apache-2.0
"""One cycle over the heads of all queues (`docs/spec/engine.md §3`).

Owns the sequence: nominate each head on the usage at the start of the cycle, order them, and process them one by one
with the usage that earlier ones left. Only admissions change the tree; everything else that a cycle adds is removed at
its end. The engine requeues heads and records reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from multikueue.api.constants import PreemptionPolicy, QueueingStrategy
from multikueue.api.reasons import QuotaReservedReason
from multikueue.core.keys import Key
from multikueue.engine import messages
from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.offered import OfferedQuota
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.cache.withheld import WithheldQuota
from multikueue.engine.cycle import order
from multikueue.engine.cycle.deferred_admissions import DeferredAdmissions
from multikueue.engine.cycle.nomination import NominatedHead, Nominator, Rejection
from multikueue.engine.decisions import Outcome, RequeueReason
from multikueue.engine.flavorassigner.assignment import AssignmentMode
from multikueue.engine.preemption.problem import PreemptionTarget
from multikueue.engine.queue.pending import Pending
from multikueue.engine.settings import Settings
from multikueue.engine.topology.capacity import Place, Places, TopologyCapacity


@dataclass(slots=True)
class HeadVerdict:
    """The result for one head: requeued for `requeue`, otherwise admitted or dropped, by `outcome`."""

    nomination: NominatedHead
    outcome: Outcome
    reason: QuotaReservedReason | None
    message: str
    requeue: RequeueReason | None = None
    targets: Sequence[PreemptionTarget] = ()
    keeps_progress: bool = False
    gated: bool = False
    evaluated: bool = True
    again: bool = False
    """Whether it may be decided otherwise in the next cycle although nothing has changed in its tree."""
    behind: Sequence[Pending] = ()
    """Heads for which places are kept that it lost: it may be decided otherwise once they are heads no more."""


@dataclass(slots=True)
class Head:
    """A popped workload and its queue."""

    cluster_queue: CachedClusterQueue
    pending: Pending
    active: bool


class _CycleVictims:
    """Victims of this cycle, by tree; they do not affect other trees."""

    def __init__(self) -> None:
        self.keys: set[Key] = set()
        """Who they are, and the slices that others have replaced: none of them can be evicted any more."""
        self.places: list[Place] = []
        """What they free of topologies, which all trees share."""
        self._usage: dict[QuotaNode, dict[Cell, int]] = {}

    def usage(self, root: QuotaNode) -> Iterable[tuple[Cell, int]]:
        """What the victims in one tree use, as one amount for each cell: there may be thousands of them."""
        return self._usage.get(root, {}).items()

    def add(self, root: QuotaNode, targets: Iterable[PreemptionTarget]) -> None:
        """Add victims that are not among them yet."""
        usage = self._usage.setdefault(root, {})
        for target in targets:
            self.keys.add(target.record.workload.key)
            self.places.extend(target.record.places)
            for cell, amount in target.record.usage:
                usage[cell] = usage.get(cell, 0) + amount


class CycleUsage:
    """The log of the usage that one cycle added (§3.9 step I and §3.10)."""

    def __init__(self, capacity: TopologyCapacity) -> None:
        self._capacity = capacity
        self._log: list[tuple[Cell, int, bool]] = []
        self._places: list[Places] = []
        self._temporary = False
        self._kept: list[tuple[NominatedHead, Places]] = []
        """Places that are kept for heads of strict queues, which are heads in the next cycle too."""
        self.kept_once = False
        """Whether places are kept for a head that is no head in the next cycle."""

    def add(self, amounts: Amounts, places: Places = (), *, lasting: bool) -> None:
        """Use more; lasting usage stays after the cycle."""
        if places:
            self._capacity.add(places)
            if not lasting:
                self._places.append(places)
        for cell, amount in amounts:
            quota.add_usage(cell, amount)
            self._log.append((cell, amount, lasting))
        self._temporary = self._temporary or not lasting

    def keep(self, nomination: NominatedHead, amounts: Amounts) -> None:
        """Keep these amounts, and its places, for a head without candidates (§3.10)."""
        places = nomination.places if amounts else ()
        self.add(amounts, places, lasting=False)
        if places and nomination.cluster_queue.queue.strategy == QueueingStrategy.STRICT_FIFO:
            self._kept.append((nomination, places))
        elif places:
            self.kept_once = True

    def kept_in(self, root: QuotaNode) -> list[Pending]:
        """The heads of strict queues of a tree for which places are kept."""
        return [head.pending for head, _ in self._kept if head.cluster_queue.node.root() is root]

    def kept_outside(self, root: QuotaNode) -> Places:
        """The places that are kept for heads of strict queues of other trees."""
        return tuple(
            place for head, places in self._kept if head.cluster_queue.node.root() is not root for place in places
        )

    def end(self) -> None:
        """Remove the usage that was for this cycle only."""
        for places in self._places:
            self._capacity.remove(places)
        self._places = []
        if self._temporary:
            for cell, amount, _ in reversed(self._log):
                if amount >= 0:
                    quota.remove_usage(cell, amount)
                else:
                    cell.usage -= amount
            for cell, amount, lasting in self._log:
                if lasting:
                    quota.add_usage(cell, amount)
        self._log = []
        self._temporary = False


class CycleRunner:
    """Runs cycles; keeps nothing between them except the workload at which a cycle failed."""

    def __init__(
        self,
        *,
        settings: Settings,
        nominator: Nominator,
        withheld: WithheldQuota,
        offered: OfferedQuota,
        capacity: TopologyCapacity,
    ) -> None:
        self._settings = settings
        self._capacity = capacity
        self._nominator = nominator
        self._withheld = withheld
        self._offered = offered
        self.deciding: Key | None = None

    def run(self, heads: Sequence[Head], *, number: int, waits_for_pods: bool) -> tuple[list[HeadVerdict], bool]:
        """Verdicts in the order processed, rejections last; and whether admission waits for PodsReady."""
        nominations = []
        rejections = []
        for head in heads:
            self.deciding = head.pending.workload.key
            nomination = NominatedHead(head.cluster_queue, head.pending)
            rejection = self._nominator.rejection(head.cluster_queue, head.pending, active=head.active)
            if rejection is not None:
                rejections.append(_rejected(nomination, rejection))
                continue
            self._nominator.nominate(nomination, cycle=number)
            nominations.append(nomination)
        self.deciding = None
        ordered = order.tournament if self._settings.fair_sharing else order.classical
        usage = CycleUsage(self._capacity)
        gone = _CycleVictims()
        verdicts: list[HeadVerdict] = []
        blocked = False
        deferred = DeferredAdmissions(self._withheld, self._offered) if self._withheld.enabled else None
        for nomination in ordered(nominations, self._settings):
            if blocked:
                verdicts.append(_restored(nomination))
                continue
            self.deciding = nomination.pending.workload.key
            verdict = self._process(nomination, usage, gone)
            if verdict.outcome is Outcome.RESERVED and deferred is not None and deferred.has(nomination):
                verdict = _restored(nomination)
            if verdict.outcome is Outcome.RESERVED and waits_for_pods:
                blocked = True
                verdict = _waiting(nomination)
            if verdict.outcome is Outcome.RESERVED:
                usage.add(nomination.amounts, nomination.places, lasting=True)
                if nomination.replaced is not None:
                    # Only its name: the new slice has its quota from now on, and nothing is freed.
                    gone.keys.add(nomination.replaced.workload.key)
                waits_for_pods = waits_for_pods or self._blocks_admission
            if deferred is not None:
                _note(verdict, deferred)
            verdicts.append(verdict)
            self.deciding = None
        usage.end()
        if deferred is not None:
            deferred.end({nomination.cluster_queue.node.root() for nomination in nominations})
        return [*verdicts, *rejections], blocked

    @property
    def _blocks_admission(self) -> bool:
        """Whether an admission waits for the pods of all before it, whether or not their checks are ready."""
        ready = self._settings.pods_ready
        return ready is not None and ready.block_admission

    def _process(self, nomination: NominatedHead, usage: CycleUsage, gone: _CycleVictims) -> HeadVerdict:
        """Steps A to J of §3.9."""
        root = nomination.cluster_queue.node.root()
        victims = gone.usage(root)
        if _overlaps(nomination, gone) and self._settings.gates.recompute_on_overlap:
            quota.remove_all(victims)
            self._capacity.remove(tuple(gone.places))
            self._nominator.renominate(nomination, gone.keys)
            self._capacity.add(tuple(gone.places))
            quota.add_all(victims)
            nomination.assignment.deferred = nomination.assignment.mode is AssignmentMode.FIT
        elif self._lacks_only_places(nomination, victims, gone):
            return self._process_without_places(nomination, usage, gone)
        return self._verdict(nomination, usage, gone)

    def _process_without_places(self, nomination: NominatedHead, usage: CycleUsage, gone: _CycleVictims) -> HeadVerdict:
        """The same for an entry whose places an earlier one has taken; there may be others."""
        root = nomination.cluster_queue.node.root()
        nominated = nomination.assignment, nomination.targets
        self._nominator.renominate(nomination, ())
        if nomination.assignment.mode is AssignmentMode.FIT:
            return self._verdict(nomination, usage, gone)
        if usage.kept_once:
            return replace(_skipped(nomination, messages.NO_LONGER_FITS), keeps_progress=False, again=True)
        # Places are reserved for a strict head of another tree only in the cycles in which that tree is evaluated, so
        # that it would depend on the cycle whether this one fits.
        kept = usage.kept_outside(root)
        if kept:
            self._capacity.remove(kept)
            nomination.settle(*nominated)
            if not self._has_places(nomination, gone):
                self._nominator.renominate(nomination, ())
        verdict = self._verdict(nomination, usage, gone)
        self._capacity.add(kept)
        if verdict.requeue is not None and verdict.requeue.lacks_quota:
            verdict.behind = usage.kept_in(root)
        return verdict

    def _verdict(self, nomination: NominatedHead, usage: CycleUsage, gone: _CycleVictims) -> HeadVerdict:
        """Steps B to J."""
        root = nomination.cluster_queue.node.root()
        victims = gone.usage(root)
        mode = nomination.assignment.mode
        message = messages.pending(nomination.assignment)
        if mode is AssignmentMode.NO_FIT:
            return HeadVerdict(
                nomination,
                Outcome.PENDING,
                nomination.assignment.no_fit_reason(),
                message,
                RequeueReason.NO_FIT,
                keeps_progress=True,
            )
        if mode is AssignmentMode.PREEMPT and not nomination.targets:
            usage.keep(nomination, _held_for(nomination, self._settings))
            return HeadVerdict(
                nomination,
                Outcome.PENDING,
                QuotaReservedReason.WAITING_FOR_QUOTA,
                message,
                RequeueReason.PREEMPTION_NO_CANDIDATES,
                keeps_progress=True,
            )
        gated = self._settings.gates.preemption_gates and nomination.pending.workload.preemption_gate_closed
        if mode is AssignmentMode.PREEMPT and gated:
            return HeadVerdict(
                nomination,
                Outcome.PENDING,
                QuotaReservedReason.ADMISSION_GATED,
                messages.GATED,
                RequeueReason.PREEMPTION_GATED,
                gated=True,
            )
        if mode is AssignmentMode.DEFERRED:
            usage.add(nomination.amounts, nomination.places, lasting=False)
            return HeadVerdict(
                nomination,
                Outcome.PENDING,
                QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS,
                messages.DEFERRED,
                RequeueReason.PENDING_PREEMPTION,
            )
        if _overlaps(nomination, gone):
            return _skipped(nomination, messages.OVERLAPPING)
        if not self._fits(nomination, victims, gone):
            return _skipped(nomination, messages.NO_LONGER_FITS)
        gone.add(root, nomination.targets)
        if mode is AssignmentMode.FIT:
            return HeadVerdict(nomination, Outcome.RESERVED, QuotaReservedReason.QUOTA_RESERVED, "")
        usage.add(nomination.amounts, nomination.places, lasting=False)
        return HeadVerdict(
            nomination,
            Outcome.PREEMPTING,
            QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS,
            messages.pending_preemption(message, len(nomination.targets)),
            RequeueReason.PENDING_PREEMPTION,
            targets=nomination.targets,
        )

    def _fits(self, nomination: NominatedHead, victims: Iterable[tuple[Cell, int]], gone: _CycleVictims) -> bool:
        """Whether an entry fits once all victims so far and its own, which are others, are gone."""
        return self._has_quota(nomination, victims) and (not nomination.places or self._has_places(nomination, gone))

    def _has_quota(self, nomination: NominatedHead, victims: Iterable[tuple[Cell, int]]) -> bool:
        quota.remove_all(victims)
        for target in nomination.targets:
            quota.remove_all(target.record.usage)
        fits = quota.fits(nomination.amounts)
        for target in nomination.targets:
            quota.add_all(target.record.usage)
        quota.add_all(victims)
        return fits

    def _lacks_only_places(
        self, nomination: NominatedHead, victims: Iterable[tuple[Cell, int]], gone: _CycleVictims
    ) -> bool:
        """Whether an entry that had places has lost them to an earlier one, and not its quota."""
        if not nomination.places or not (nomination.targets or nomination.assignment.mode is AssignmentMode.FIT):
            return False
        return not self._has_places(nomination, gone) and self._has_quota(nomination, victims)

    def _has_places(self, nomination: NominatedHead, gone: _CycleVictims) -> bool:
        freed = (*gone.places, *(place for target in nomination.targets for place in target.record.places))
        self._capacity.remove(freed)
        found = self._capacity.fits(nomination.places)
        self._capacity.add(freed)
        return found


def required_checks(nomination: NominatedHead) -> tuple[str, ...]:
    """The admission checks that apply to the flavors of an assignment (§3.11)."""
    value = nomination.cluster_queue.value
    if value is None or not value.checks:
        return ()
    flavors = {choice.flavor for pod_set in nomination.assignment.pod_sets for choice in pod_set.choices.values()}
    return tuple(rule.name for rule in value.checks if not rule.on_flavors or rule.on_flavors & flavors)


def _note(verdict: HeadVerdict, deferred: DeferredAdmissions) -> None:
    """Note what others leave to this head, or to the one that comes after it."""
    nomination = verdict.nomination
    queue = nomination.cluster_queue.queue
    inadmissible = verdict.requeue is not None and verdict.requeue.lacks_quota
    # The first workload of a strict queue remains its head.
    if verdict.outcome is Outcome.RESERVED or (inadmissible and queue.strategy != QueueingStrategy.STRICT_FIFO):
        following = queue.head()
    else:
        following = nomination.pending if verdict.outcome is Outcome.SKIPPED and verdict.reason is not None else None
    if following is not None:
        deferred.keep_for(following, nomination.cluster_queue, no_longer_fits=following is nomination.pending)
    if verdict.outcome is Outcome.RESERVED:
        deferred.on_admitted(nomination)
    elif inadmissible and verdict.reason is QuotaReservedReason.WAITING_FOR_QUOTA:
        deferred.on_inadmissible(nomination)


def _overlaps(nomination: NominatedHead, gone: _CycleVictims) -> bool:
    """Whether a workload that this cycle evicts is also a victim of this entry, or the slice it replaces."""
    if not gone.keys:
        return False
    if nomination.replaced is not None and nomination.replaced.workload.key in gone.keys:
        return True
    return any(target.record.workload.key in gone.keys for target in nomination.targets)


def _rejected(nomination: NominatedHead, rejection: Rejection) -> HeadVerdict:
    return HeadVerdict(
        nomination, Outcome.INADMISSIBLE, rejection.reason, rejection.message, rejection.requeue, evaluated=False
    )


def _skipped(nomination: NominatedHead, message: str) -> HeadVerdict:
    return HeadVerdict(
        nomination,
        Outcome.SKIPPED,
        QuotaReservedReason.WAITING_FOR_QUOTA,
        message,
        RequeueReason.FAILED_AFTER_NOMINATION,
        keeps_progress=True,
    )


def _waiting(nomination: NominatedHead) -> HeadVerdict:
    return HeadVerdict(
        nomination,
        Outcome.PENDING,
        QuotaReservedReason.WAITING_FOR_PODS_READY,
        messages.WAITING_FOR_PODS_READY,
        RequeueReason.FAILED_AFTER_NOMINATION,
    )


def _restored(nomination: NominatedHead) -> HeadVerdict:
    """The verdict for an entry that is evaluated again: when pods are ready, or what others need is theirs."""
    return HeadVerdict(nomination, Outcome.SKIPPED, None, "", RequeueReason.FAILED_AFTER_NOMINATION)


def _held_for(nomination: NominatedHead, settings: Settings) -> Amounts:
    """The usage that a preemptor without candidates keeps from others; may be negative at its queue."""
    cluster_queue = nomination.cluster_queue
    value = cluster_queue.value
    reclaims_any = value is not None and value.preemption.reclaim_within_cohort == PreemptionPolicy.ANY
    active = settings.gates.prioritize_preemptors and cluster_queue.queue.is_preemptor(nomination.pending)
    if reclaims_any and not active:
        return []
    held: Amounts = []
    for cell, amount in nomination.amounts:
        if nomination.assignment.level > 0:
            limit = cell.borrowing_limit
            held.append((cell, amount if limit is None else min(amount, cell.nominal + limit - cell.usage)))
        else:
            held.append((cell, max(0, min(amount, cell.nominal - cell.usage))))
    return held
