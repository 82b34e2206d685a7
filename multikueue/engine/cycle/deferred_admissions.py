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
        better claim to its own quota.
        """
        cluster_queue = nomination.cluster_queue
        root = cluster_queue.node.root()
        if nomination.assignment.level:
            priority = nomination.pending.priority
            owned = [
                (each.cell, each.amount)
                for each in self._owned.get(root, ())
                if each.reclaims_below is None or priority < each.reclaims_below
            ]
            if owned and not quota.fits_beside(owned, nomination.amounts):
                return True
        elif not cluster_queue.queue.has_inadmissible:
            return False
        return not self._withheld.leaves(root, nomination.amounts)

    def end(self, roots: Iterable[QuotaNode]) -> None:
        """The cycle has evaluated heads of these trees."""
        for root in roots:
            if root not in self._owned:
                self._withheld.on_evaluated(root)
