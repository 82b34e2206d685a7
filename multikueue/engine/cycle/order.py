# SPDX-License-Identifier: Apache-2.0
"""The order in which the heads of a cycle are processed (`docs/spec/engine.md §3.8`, with fair sharing §5).

Owns the tournament of fair sharing: in every cohort the entries of its queues and the winners of its child cohorts
compete by the share that they would have with the entry admitted. Processing an entry changes usage on one path only,
so that only the contests on that path are repeated: ordering n queues costs n log n. In both orders a workload comes
after the one that preempted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heappop, heappush

from multikueue.core.keys import Key
from multikueue.engine.cache import quota, shares
from multikueue.engine.cache.shares import Share
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.cycle.nomination import NominatedHead
from multikueue.engine.settings import Settings

FairRank = tuple[bool, bool, Share, int, datetime, str]
ClassicalRank = tuple[bool, int, int, datetime, str]


def classical(nominations: Iterable[NominatedHead], settings: Settings) -> Iterator[NominatedHead]:
    """Active preemptors (by gate), then lower borrowing level, priority, time; ties by uid (§12 row 18)."""
    ordered = sorted(nominations, key=lambda nomination: _classical_rank(nomination, settings))
    victims = _Victims(ordered)
    for entry in ordered:
        if not victims.hold(entry):
            yield entry
            # They would have come before it: now it is their turn.
            following = victims.after(entry)
            for released in following:
                yield released
                following.extend(victims.after(released))
    yield from victims.rest()


def _classical_rank(nomination: NominatedHead, settings: Settings) -> ClassicalRank:
    """What the order compares."""
    pending = nomination.pending
    gates = settings.gates
    return (
        gates.prioritize_preemptors and not nomination.cluster_queue.queue.is_preemptor(pending),
        nomination.assignment.level,
        -pending.priority if gates.priority_sorting_within_cohort else 0,
        pending.since,
        pending.workload.uid,
    )


def tournament(nominations: Iterable[NominatedHead], settings: Settings) -> Iterator[NominatedHead]:
    """Entries one by one; each is chosen with the usage after processing those before it."""
    trees: dict[QuotaNode, list[NominatedHead]] = {}
    for nomination in nominations:
        trees.setdefault(nomination.cluster_queue.node.root(), []).append(nomination)
    for root, entries in trees.items():
        if not root.is_cohort:
            yield from entries
            continue
        victims = _Victims(entries)
        contest = Tournament(entries, settings)
        for entry in entries:
            if victims.hold(entry):
                contest.remove(entry)
        while (winner := contest.pop()) is not None:
            yield winner
            contest.remove(winner)
            for released in victims.after(winner):
                contest.add(released)
        yield from victims.rest()


class _Victims:
    """Which entries were preempted by others of the same cycle.

    Where such a victim borrows less, or its share is lower, it would get the quota back that it was preempted for, and
    would be preempted again, for ever.
    """

    def __init__(self, entries: Iterable[NominatedHead]) -> None:
        found = {entry.pending.workload.key: entry for entry in entries}
        self._preemptors: dict[Key, set[Key]] = {}
        self._held: dict[Key, NominatedHead] = {}
        for preemptor, entry in found.items():
            for victim in entry.pending.preemptions.victims:
                if victim in found:
                    self._preemptors.setdefault(victim, set()).add(preemptor)

    def hold(self, entry: NominatedHead) -> bool:
        """Whether an entry must wait for another one."""
        key = entry.pending.workload.key
        if not self._preemptors.get(key):
            return False
        self._held[key] = entry
        return True

    def after(self, entry: NominatedHead) -> list[NominatedHead]:
        """An entry was processed: those that waited for it, and for no other one, in their order."""
        if not self._preemptors:
            return []
        self._preemptors.pop(entry.pending.workload.key, None)
        for preemptors in self._preemptors.values():
            preemptors.discard(entry.pending.workload.key)
        return [self._held.pop(key) for key in list(self._held) if not self._preemptors.get(key)]

    def rest(self) -> list[NominatedHead]:
        """What is left if workloads of the same names have preempted each other."""
        return list(self._held.values())


class Tournament:
    """The contests of one tree. A cohort's heap holds the rank of each contestant; stale ones are skipped."""

    def __init__(self, entries: Iterable[NominatedHead], settings: Settings) -> None:
        self._settings = settings
        self._entries: dict[QuotaNode, NominatedHead] = {}
        self._heaps: dict[QuotaNode, list[tuple[FairRank, int, QuotaNode, NominatedHead]]] = {}
        self._current: dict[QuotaNode, int] = {}
        self._number = 0
        self._root: QuotaNode | None = None
        below: dict[QuotaNode, list[QuotaNode]] = {}
        for entry in entries:
            node = entry.cluster_queue.node
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

    def pop(self) -> NominatedHead | None:
        """The winner at the root; None when all entries were taken."""
        return self._winner(self._root) if self._root is not None else None

    def remove(self, winner: NominatedHead) -> None:
        """An entry was processed, so that usage along its path may have changed, or is to come later."""
        self._entries.pop(winner.cluster_queue.node, None)
        self._climb(winner.cluster_queue.node)

    def add(self, entry: NominatedHead) -> None:
        """An entry takes part again."""
        self._entries[entry.cluster_queue.node] = entry
        self._climb(entry.cluster_queue.node)

    def _climb(self, node: QuotaNode) -> None:
        child = node
        for cohort in node.ancestors():
            self._enter(cohort, child)
            child = cohort

    def _hold(self, top: QuotaNode, below: dict[QuotaNode, list[QuotaNode]]) -> None:
        order = [top]
        for cohort in order:
            order.extend(child for child in below.get(cohort, ()) if child.is_cohort)
        for cohort in reversed(order):
            self._heaps[cohort] = []
            for child in below.get(cohort, ()):
                self._enter(cohort, child)

    def _winner(self, cohort: QuotaNode) -> NominatedHead | None:
        heap = self._heaps.get(cohort)
        while heap:
            _, number, child, entry = heap[0]
            if self._current.get(child) == number:
                return entry
            heappop(heap)
        return None

    def _enter(self, cohort: QuotaNode, child: QuotaNode) -> None:
        """Let `child` compete in `cohort`, with its own entry or its winner's."""
        entry = self._winner(child) if child.is_cohort else self._entries.get(child)
        if entry is None:
            self._current.pop(child, None)
            return
        self._number += 1
        self._current[child] = self._number
        heappush(self._heaps[cohort], (self._rank(child, entry), self._number, child, entry))

    def _rank(self, node: QuotaNode, entry: NominatedHead) -> FairRank:
        """The rank of an entry as a contestant of `node`, with its usage counted."""
        quota.add_all(entry.amounts)
        share = shares.share(node)
        borrows = False
        if self._settings.gates.fair_prioritize_non_borrowing:
            for cell, amount in entry.amounts:
                at = node.cells.get(cell.key)
                if amount > 0 and at is not None and at.usage > at.quota:
                    borrows = True
                    break
        quota.remove_all(entry.amounts)
        pending = entry.pending
        gates = self._settings.gates
        return (
            gates.prioritize_preemptors and not entry.cluster_queue.queue.is_preemptor(pending),
            borrows,
            share,
            -pending.priority if gates.priority_sorting_within_cohort else 0,
            pending.since,
            pending.workload.uid,
        )
