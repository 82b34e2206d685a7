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
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.cache.withheld import WithheldQuota
from multikueue.engine.cycle.nomination import NominatedHead


class _Owned(NamedTuple):
    """What a queue has not used of its own quota, and would reclaim for its next head."""

    cell: Cell
    amount: int
    reclaims_below: int | None
    """From workloads of a lower priority than this; None if from all."""


class DeferredAdmissions:
    """Which admissions wait: for the next cycle, or for the next flush of their tree."""

    def __init__(self, withheld: WithheldQuota) -> None:
        self._withheld = withheld
        self._owned: dict[QuotaNode, list[_Owned]] = {}
        self._deferred: dict[QuotaNode, Amounts] = {}
        """What the heads need that wait."""

    def makes_way(self, cluster_queue: CachedClusterQueue) -> None:
        """The head of a queue was decided: what is left of the queue's own quota is for its next one, if any."""
        head, value = cluster_queue.queue.head(), cluster_queue.value
        root = cluster_queue.node.root()
        if head is None or value is None or not self._withheld.is_offered(root):
            return
        reclaim = value.preemption.reclaim_within_cohort
        if reclaim == PreemptionPolicy.NEVER:
            return
        below = None if reclaim == PreemptionPolicy.ANY else head.priority
        cells = cluster_queue.node.cells.values()
        left = [_Owned(cell, cell.nominal - cell.usage, below) for cell in cells if cell.nominal > cell.usage]
        if left:
            self._owned.setdefault(root, []).extend(left)

    def has(self, nomination: NominatedHead) -> bool:
        """Whether an admission has to wait for others.

        A queue that borrows what was freed waits for those that have more heads for their own quota, and would reclaim
        it; and each queue for inadmissible workloads for which quota is withheld, but those of other queues have no
        better claim to its own quota. No later head borrows what a deferred one needs: it would be its victim.
        """
        cluster_queue = nomination.cluster_queue
        root = cluster_queue.node.root()
        if self._waits(root, nomination, borrows=nomination.assignment.level > 0):
            # A slice may need less of a resource than the one that it replaces.
            needed = [(cell, amount) for cell, amount in nomination.amounts if amount > 0]
            self._deferred.setdefault(root, []).extend(needed)
            return True
        return False

    def _waits(self, root: QuotaNode, nomination: NominatedHead, *, borrows: bool) -> bool:
        amounts = nomination.amounts
        if not borrows and not nomination.cluster_queue.queue.has_inadmissible:
            return False
        if borrows:
            priority = nomination.pending.priority
            owned = [
                (each.cell, each.amount)
                for each in self._owned.get(root, ())
                if each.reclaims_below is None or priority < each.reclaims_below
            ]
            if any(others and not quota.fits_beside(others, amounts) for others in (owned, self._deferred.get(root))):
                return True
        return not self._withheld.leaves(root, amounts)

    def end(self, roots: Iterable[QuotaNode]) -> None:
        """The cycle has evaluated heads of these trees."""
        for root in roots:
            if root not in self._owned:
                self._withheld.on_evaluated(root)
