# SPDX-License-Identifier: Apache-2.0
"""The order in which the heads of a cycle are processed under fair sharing (`docs/spec/engine.md §5`).

Owns the tournament: in every cohort the entries of its queues and the winners of its child cohorts compete by what
their share would be with the entry let in. Processing an entry changes usage on one path only, so that only the
contests on that path are held again: an order over n queues costs n log n.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heappop, heappush

from multikueue.engine import quota, shares
from multikueue.engine.nomination import Nomination
from multikueue.engine.settings import Settings
from multikueue.engine.shares import Share
from multikueue.engine.tree import Node

Rank = tuple[bool, bool, Share, int, datetime, str]


def tournament(nominations: Iterable[Nomination], settings: Settings) -> Iterator[Nomination]:
    """Entries one by one; each is chosen with the usage that processing those before it left."""
    trees: dict[Node, list[Nomination]] = {}
    for nomination in nominations:
        trees.setdefault(nomination.live.node.root(), []).append(nomination)
    for root, entries in trees.items():
        if not root.is_cohort:
            yield from entries
            continue
        contest = Tournament(entries, settings)
        while (winner := contest.pop()) is not None:
            yield winner
            contest.processed(winner)


class Tournament:
    """The contests of one tree. A cohort's heap holds the rank of each contestant; stale ones are passed over."""

    def __init__(self, entries: Iterable[Nomination], settings: Settings) -> None:
        self._settings = settings
        self._entries: dict[Node, Nomination] = {}
        self._heaps: dict[Node, list[tuple[Rank, int, Node, Nomination]]] = {}
        self._current: dict[Node, int] = {}
        self._number = 0
        self._root: Node | None = None
        below: dict[Node, list[Node]] = {}
        for entry in entries:
            node = entry.live.node
            self._entries[node] = entry
            self._root = node.root()
            child = node
            for cohort in node.ancestors():
                children = below.setdefault(cohort, [])
                children.append(child)
                if len(children) > 1:
                    break
                child = cohort
        if self._root is not None:
            self._hold(self._root, below)

    def pop(self) -> Nomination | None:
        """The winner at the root; None when all entries were taken."""
        return self._winner(self._root) if self._root is not None else None

    def processed(self, winner: Nomination) -> None:
        """An entry was taken and usage along its path may be another."""
        node = winner.live.node
        self._entries.pop(node, None)
        self._current.pop(node, None)
        child = node
        for cohort in node.ancestors():
            if child is not node:
                self._enter(cohort, child)
            child = cohort

    def _hold(self, top: Node, below: dict[Node, list[Node]]) -> None:
        order = [top]
        for cohort in order:
            order.extend(child for child in below.get(cohort, ()) if child.is_cohort)
        for cohort in reversed(order):
            self._heaps[cohort] = []
            for child in below.get(cohort, ()):
                self._enter(cohort, child)

    def _winner(self, cohort: Node) -> Nomination | None:
        heap = self._heaps.get(cohort)
        while heap:
            _, number, child, entry = heap[0]
            if self._current.get(child) == number:
                return entry
            heappop(heap)
        return None

    def _enter(self, cohort: Node, child: Node) -> None:
        """Let `child` compete in `cohort`, with its own entry or its winner's."""
        entry = self._winner(child) if child.is_cohort else self._entries.get(child)
        if entry is None:
            self._current.pop(child, None)
            return
        self._number += 1
        self._current[child] = self._number
        heappush(self._heaps[cohort], (self._rank(child, entry), self._number, child, entry))

    def _rank(self, node: Node, entry: Nomination) -> Rank:
        """How an entry competes as a contestant of `node`, with its usage counted."""
        quota.take_all(entry.amounts)
        share = shares.share(node)
        borrows = False
        if self._settings.gates.fair_prioritize_non_borrowing:
            for cell, amount in entry.amounts:
                at = node.cells.get(cell.key)
                if amount > 0 and at is not None and at.usage > at.quota:
                    borrows = True
                    break
        quota.give_all(entry.amounts)
        pending = entry.pending
        gates = self._settings.gates
        return (
            gates.prioritize_preemptors and not entry.live.queue.is_preemptor(pending),
            borrows,
            share,
            -pending.priority if gates.priority_sorting_within_cohort else 0,
            pending.since,
            pending.workload.uid,
        )
