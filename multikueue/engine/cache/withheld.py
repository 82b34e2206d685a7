# SPDX-License-Identifier: Apache-2.0
"""Quota of workloads that have ended, which no head takes before the next flush of its tree (ADR 0032).

Inadmissible workloads come before most heads, and are evaluated after a flush only. Heads that took meanwhile what is
freed, piece by piece, would leave nothing that a larger workload fits in, and be preempted by it later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from multikueue.engine.cache import quota
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell, QuotaNode


@dataclass(slots=True, eq=False)
class FreedQuota:
    """What ended workloads of one tree used."""

    mean_run: float
    """The shortest mean run of the queues in which they ended, in seconds."""
    amounts: dict[Cell, int] = field(default_factory=dict)


class WithheldQuota:
    """What ended workloads used, by tree. The tree itself counts it as free."""

    def __init__(self) -> None:
        self.enabled = False
        """Whether admissions are left for later cycles at all; in the manager they are."""
        self._freed: dict[QuotaNode, FreedQuota] = {}
        self._offering: set[QuotaNode] = set()

    def add(self, node: QuotaNode, usage: Iterable[tuple[Cell, int]], *, mean_run: float) -> None:
        """Withhold what a workload of this queue used, whose workloads run for so many seconds on the mean."""
        freed = self._freed.setdefault(node.root(), FreedQuota(mean_run))
        freed.mean_run = min(mean_run, freed.mean_run)
        for cell, amount in usage:
            freed.amounts[cell] = freed.amounts.get(cell, 0) + amount

    def freed(self, root: QuotaNode) -> FreedQuota | None:
        """What is withheld in a tree."""
        return self._freed.get(root)

    def leaves(self, root: QuotaNode, amounts: Amounts, *, borrows: bool) -> bool:
        """Whether these amounts fit into what is free in this tree besides what is withheld.

        What a workload of the same queue held of its own quota is left as such, even if as much is free elsewhere: else
        an inadmissible workload of the queue would have to borrow, come after others that do, and preempt this one.
        """
        freed = self._freed.get(root)
        if freed is None:
            return True
        if not borrows and any(_takes_own(freed, cell, amount) for cell, amount in amounts):
            return False
        return quota.fits_beside(freed.amounts.items(), amounts)

    def release(self, root: QuotaNode) -> FreedQuota | None:
        """Offer what is withheld in a tree to all of its workloads; returns it."""
        freed = self._freed.pop(root, None)
        if freed is not None:
            self._offering.add(root)
        return freed

    def offer(self, root: QuotaNode) -> None:
        """Quota of this tree was freed that is not withheld."""
        self._offering.add(root)

    def is_offered(self, root: QuotaNode) -> bool:
        """Whether workloads have not been evaluated yet to which freed quota of this tree was offered."""
        return root in self._offering

    def on_evaluated(self, root: QuotaNode) -> None:
        """All of them are evaluated."""
        self._offering.discard(root)

    def clear(self) -> None:
        """Withhold nothing any more: the trees are others now."""
        self._freed.clear()
        self._offering.clear()


def _takes_own(freed: FreedQuota, cell: Cell, amount: int) -> bool:
    """Whether this amount takes of its queue's own quota what a workload of that queue held."""
    held = freed.amounts.get(cell, 0)
    return held > 0 and amount > 0 and cell.usage + held + amount > cell.nominal
