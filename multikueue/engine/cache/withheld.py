# SPDX-License-Identifier: Apache-2.0
"""Quota of workloads that have ended, which no head takes before the next flush of its tree (ADR 0032).

Inadmissible workloads come before most heads, and are evaluated after a flush only. Heads that took meanwhile what is
freed, piece by piece, would leave nothing that a larger workload fits in, and be preempted by it later.
"""

from __future__ import annotations

from collections.abc import Iterable

from multikueue.engine.cache import quota
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell, QuotaNode


class WithheldQuota:
    """What ended workloads used, by tree. The tree itself counts it as free."""

    def __init__(self) -> None:
        self._amounts: dict[QuotaNode, dict[Cell, int]] = {}
        self._offering: set[QuotaNode] = set()

    def add(self, node: QuotaNode, usage: Iterable[tuple[Cell, int]]) -> None:
        """Withhold what a workload of this queue used."""
        amounts = self._amounts.setdefault(node.root(), {})
        for cell, amount in usage:
            amounts[cell] = amounts.get(cell, 0) + amount

    def leaves(self, root: QuotaNode, amounts: Amounts) -> bool:
        """Whether these amounts fit into what is free in this tree besides what is withheld."""
        withheld = self._amounts.get(root)
        return withheld is None or quota.fits_beside(withheld.items(), amounts)

    def release(self, root: QuotaNode) -> bool:
        """Offer what is withheld in a tree to all of its workloads; whether there was anything."""
        if self._amounts.pop(root, None) is None:
            return False
        self._offering.add(root)
        return True

    def is_offered(self, root: QuotaNode) -> bool:
        """Whether workloads have not been evaluated yet to which freed quota of this tree was offered."""
        return root in self._offering

    def on_evaluated(self, root: QuotaNode) -> None:
        """All of them are evaluated."""
        self._offering.discard(root)

    def clear(self) -> None:
        """Withhold nothing any more: the trees are others now."""
        self._amounts.clear()
        self._offering.clear()
