# SPDX-License-Identifier: Apache-2.0
"""Quota that a flush has offered, and that lower priorities leave for a while to inadmissible workloads (ADR 0032).

What one flush offers is often too little for a larger workload. If smaller ones of lower priorities took the rest each
time, what is freed would never be enough, and the larger one would preempt them as soon as its queue may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Final

from multikueue.engine.cache import quota
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.cache.withheld import FreedQuota
from multikueue.engine.resources import FlavorResource

_PART_OF_A_RUN: Final = 0.5
_LONGEST: Final = 15.0


@dataclass(slots=True, eq=False)
class _Offer:
    root: QuotaNode
    amounts: dict[Cell, int]
    """What is left of it."""


@dataclass(slots=True, eq=False)
class _Tree:
    offers: deque[_Offer] = field(default_factory=deque)
    inadmissible: dict[QuotaNode, dict[FlavorResource, int]] = field(default_factory=dict)
    """What each queue's workloads lacked that were inadmissible since the last flush, with their highest priority."""
    highest: dict[FlavorResource, int] = field(default_factory=dict)
    """The same for all queues."""
    waits: bool = False
    """Whether a workload left it to others since the last offer ended."""

    def add_inadmissible(self, node: QuotaNode, priority: int, lacking: Iterable[FlavorResource]) -> None:
        """A workload of this queue lacks these."""
        of_queue = self.inadmissible.setdefault(node, {})
        for key in lacking:
            for priorities in (of_queue, self.highest):
                priorities[key] = max(priority, priorities.get(key, priority))

    def kept_from(self, node: QuotaNode, *, priority: int, borrows: bool) -> Collection[FlavorResource]:
        """What a workload leaves to others: one that borrows to all queues, another one to its own queue."""
        priorities = self.highest if borrows else self.inadmissible.get(node, {})
        return {key for key, highest in priorities.items() if priority < highest}


class OfferedQuota:
    """What was offered in each tree, and for whom it is kept. The tree itself counts it as free."""

    def __init__(self) -> None:
        self._trees: dict[QuotaNode, _Tree] = {}
        self._ends: list[tuple[datetime, int, _Offer]] = []
        self._number = 0

    def offer(self, root: QuotaNode, freed: FreedQuota, now: datetime) -> None:
        """A flush offers what was freed. It is kept for half of the mean run of what ended, fifteen seconds at most."""
        seconds = min(_PART_OF_A_RUN * freed.mean_run, _LONGEST)
        if seconds <= 0:
            return
        offer = _Offer(root, dict(freed.amounts))
        self._number += 1
        heappush(self._ends, (now + timedelta(seconds=seconds), self._number, offer))
        self._trees.setdefault(root, _Tree()).offers.append(offer)

    def on_flush(self, root: QuotaNode) -> None:
        """All workloads of a tree are admissible again."""
        tree = self._trees.get(root)
        if tree is not None:
            tree.inadmissible.clear()
            tree.highest.clear()

    def on_inadmissible(self, node: QuotaNode, priority: int, lacking: Iterable[FlavorResource]) -> None:
        """A workload of this queue waits for quota of these until the next flush."""
        tree = self._trees.get(node.root())
        if tree is not None:
            tree.add_inadmissible(node, priority, lacking)

    def on_admitted(self, node: QuotaNode, amounts: Amounts, *, priority: int, borrows: bool) -> None:
        """A workload of this queue takes quota: what was offered first, unless it has left that to others."""
        tree = self._trees.get(node.root())
        if tree is None:
            return
        kept = tree.kept_from(node, priority=priority, borrows=borrows)
        for cell, amount in amounts:
            left = 0 if cell.key in kept else amount
            for offer in tree.offers:
                if left <= 0:
                    break
                left -= _take(offer.amounts, cell, left)

    def leaves(
        self, node: QuotaNode, amounts: Amounts, *, priority: int, borrows: bool, beside: FreedQuota | None
    ) -> bool:
        """Whether a workload of this queue may take these amounts, or others come first; `beside` is withheld."""
        tree = self._trees.get(node.root())
        if tree is None:
            return True
        keys = tree.kept_from(node, priority=priority, borrows=borrows)
        kept = [(cell, amount) for offer in tree.offers for cell, amount in offer.amounts.items() if cell.key in keys]
        if not kept:
            return True
        if beside is not None:
            kept.extend(beside.amounts.items())
        found = quota.fits_beside(kept, amounts)
        tree.waits = tree.waits or not found
        return found

    def end(self, now: datetime) -> Iterable[QuotaNode]:
        """The trees in which something is not kept any more for which a workload has waited."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            offer = heappop(self._ends)[2]
            tree = self._trees[offer.root]
            tree.offers.remove(offer)
            if tree.waits:
                ended.append(offer.root)
                tree.waits = False
            if not tree.offers:
                del self._trees[offer.root]
        return ended

    def next_end(self) -> datetime | None:
        """When something is not kept any more, if a workload waits for that."""
        if not any(tree.waits for tree in self._trees.values()):
            return None
        return self._ends[0][0] if self._ends else None

    def clear(self) -> None:
        """Keep nothing any more: the trees are others now."""
        self._trees.clear()
        self._ends.clear()


def _take(amounts: dict[Cell, int], cell: Cell, amount: int) -> int:
    """Take up to this amount of the same flavor resource, of whatever queue; returns what was taken."""
    left = amount
    for found in [found for found in amounts if found.key == cell.key]:
        taken = min(left, amounts[found])
        amounts[found] -= taken
        left -= taken
        if not amounts[found]:
            del amounts[found]
    return amount - left
