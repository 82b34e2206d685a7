# SPDX-License-Identifier: Apache-2.0
"""Admissions of one cycle that take what others will get first, and that these would soon preempt (ADR 0032).

They are left for a later cycle. The tree counts what they would take as free: searches for victims are as without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from multikueue.api.constants import PreemptionPolicy
from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.offered import OfferedQuota
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.cache.withheld import WithheldQuota
from multikueue.engine.cycle.nomination import NominatedHead
from multikueue.engine.queue.pending import Pending


class _Owned(NamedTuple):
    """What a queue has not used of its own quota, and would reclaim for its next head."""

    cell: Cell
    amount: int
    reclaims_below: int | None
    """From workloads of a lower priority than this; None if from all."""


class DeferredAdmissions:
    """Which admissions of a cycle wait: for the next one, or for the next flush of their tree."""

    def __init__(self, withheld: WithheldQuota, offered: OfferedQuota) -> None:
        self._withheld = withheld
        self._offered = offered
        self._owned: dict[QuotaNode, list[_Owned]] = {}
        self._deferred: dict[QuotaNode, Amounts] = {}
        """What the heads need that wait."""

    def keep_for(self, head: Pending, cluster_queue: CachedClusterQueue, *, no_longer_fits: bool) -> None:
        """What is left of a queue's own quota is for this workload, which is its head in the next cycle.

        That is so for quota that was freed, and for a head of this cycle that fitted when the cycle began.
        """
        value, root = cluster_queue.value, cluster_queue.node.root()
        if value is None or not (no_longer_fits or self._withheld.is_offered(root)):
            return
        reclaim = value.preemption.reclaim_within_cohort
        if reclaim == PreemptionPolicy.NEVER:
            return
        below = None if reclaim == PreemptionPolicy.ANY else head.priority
        cells = cluster_queue.node.cells.values()
        left = [_Owned(cell, cell.nominal - cell.usage, below) for cell in cells if cell.nominal > cell.usage]
        if left:
            self._owned.setdefault(root, []).extend(left)

    def on_inadmissible(self, nomination: NominatedHead) -> None:
        """A head waits for quota until the next flush."""
        lacking = nomination.assignment.lacking()
        self._offered.on_inadmissible(nomination.cluster_queue.node, nomination.pending.priority, lacking)

    def on_admitted(self, nomination: NominatedHead) -> None:
        """A head takes what it needs."""
        self._offered.on_admitted(
            nomination.cluster_queue.node,
            nomination.amounts,
            priority=nomination.pending.priority,
            borrows=_borrows(nomination),
        )

    def has(self, nomination: NominatedHead) -> bool:
        """Whether an admission has to wait for others.

        A queue that borrows waits for those that have more heads for their own quota, and would reclaim it; and each
        queue for inadmissible workloads for which quota is withheld or kept, but those of other queues have no better
        claim to its own quota. No later head borrows what a deferred one needs: it would be its victim.
        """
        root = nomination.cluster_queue.node.root()
        if self._waits(root, nomination):
            self._deferred.setdefault(root, []).extend(_needed(nomination))
            return True
        return False

    def _waits(self, root: QuotaNode, nomination: NominatedHead) -> bool:
        amounts, borrows = nomination.amounts, _borrows(nomination)
        if not borrows and not nomination.cluster_queue.queue.has_inadmissible:
            return False
        if borrows:
            priority = nomination.pending.priority
            owned = [
                (each.cell, each.amount)
                for each in self._owned.get(root, ())
                if each.reclaims_below is None or priority < each.reclaims_below
            ]
            if not (_fits_beside(owned, amounts) and _fits_beside(self._deferred.get(root, []), amounts)):
                return True
        return not self._withheld.leaves(root, amounts, borrows=borrows) or not self._offered.leaves(
            nomination.cluster_queue.node,
            amounts,
            priority=nomination.pending.priority,
            borrows=borrows,
            beside=self._withheld.freed(root),
        )

    def end(self, roots: Iterable[QuotaNode]) -> None:
        """The cycle has evaluated heads of these trees."""
        for root in roots:
            if root not in self._owned:
                self._withheld.on_evaluated(root)


def _borrows(nomination: NominatedHead) -> bool:
    return nomination.assignment.level > 0


def _needed(nomination: NominatedHead) -> Amounts:
    """What an admission takes: a slice may need less of a resource than the one that it replaces."""
    return [(cell, amount) for cell, amount in nomination.amounts if amount > 0]


def _fits_beside(others: Amounts, amounts: Amounts) -> bool:
    return not others or quota.fits_beside(others, amounts)
