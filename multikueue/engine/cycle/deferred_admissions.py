# SPDX-License-Identifier: Apache-2.0
"""Admissions of one cycle that take what others will get first, and that these would soon preempt (ADR 0032).

They are left for a later cycle. The tree counts what they would take as free: searches for victims are as without it.
"""

from __future__ import annotations

from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.cache.withheld import WithheldQuota
from multikueue.engine.cycle.nomination import NominatedHead


class DeferredAdmissions:
    """Which admissions wait: for the next cycle, or for the next flush of their tree."""

    def __init__(self, withheld: WithheldQuota) -> None:
        self._withheld = withheld
        self._owned: dict[QuotaNode, Amounts] = {}

    def makes_way(self, cluster_queue: CachedClusterQueue) -> None:
        """The head of a queue was decided: what the queue has left of its own quota is for its next one, if any."""
        if cluster_queue.queue.head() is None:
            return
        cells = cluster_queue.node.cells.values()
        left = [(cell, cell.nominal - cell.usage) for cell in cells if cell.nominal > cell.usage]
        self._owned.setdefault(cluster_queue.node.root(), []).extend(left)

    def has(self, nomination: NominatedHead) -> bool:
        """Whether an admission has to wait for others.

        A queue that borrows waits for those that have more heads for their own quota, and each for inadmissible
        workloads for which quota is withheld; but those of other queues have no better claim to a queue's own quota.
        """
        cluster_queue = nomination.cluster_queue
        root = cluster_queue.node.root()
        if nomination.assignment.level:
            owned = self._owned.get(root)
            if owned and not quota.fits_beside(owned, nomination.amounts):
                return True
        elif not cluster_queue.queue.has_inadmissible:
            return False
        return not self._withheld.leaves(root, nomination.amounts)
