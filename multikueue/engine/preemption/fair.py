# SPDX-License-Identifier: Apache-2.0
"""Preemption under fair sharing (`docs/spec/engine.md §4.5` and §4.6).

Owns the choice of the next queue to take from, by dominant resource share from the root down, and the two strategies.
The preemptor's request counts as used during the whole search, except in fit tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

from multikueue.api.reasons import PreemptedReason
from multikueue.engine import quota, shares
from multikueue.engine.preemption.problem import Problem, Target, restore
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import FairStrategy
from multikueue.engine.shares import Share
from multikueue.engine.standing import Candidate
from multikueue.engine.tree import Cell, Node

Rank = tuple[bool, float, bool, bool, Candidate]


def find(problem: Problem) -> list[Target]:
    """The workloads to evict; empty where no eviction helps or none would be fair."""
    if problem.live.node.parent is None or problem.live.node.in_cycle:
        return _alone(problem)
    pools = _pools(problem)
    if not pools or not _could_free(problem, pools):
        return []
    search = _Search(problem, pools)
    quota.take_all(problem.requested)
    reached = search.run()
    quota.give_all(problem.requested)
    if reached:
        problem.fill_back(search.targets, borrowing=True)
    restore(search.targets)
    return search.targets if reached else []


class Pool:
    """The candidates of one queue that are left, in order."""

    __slots__ = ("_ahead", "_rest", "node")

    def __init__(self, node: Node, candidates: Iterator[Candidate]) -> None:
        self.node = node
        self._rest = candidates
        self._ahead: Candidate | None = next(candidates, None)

    @property
    def first(self) -> Candidate | None:
        """The next candidate, which stays."""
        return self._ahead

    def pop(self) -> Candidate | None:
        """The next candidate."""
        candidate = self._ahead
        if candidate is not None:
            self._ahead = next(self._rest, None)
        return candidate

    def drain(self) -> Iterator[Candidate]:
        """All candidates one by one; those not asked for stay."""
        candidate = self._ahead
        while candidate is not None:
            self._ahead = following = next(self._rest, None)
            yield candidate
            candidate = following

    def close(self) -> None:
        """Forget the rest."""
        self._ahead = None


def _alone(problem: Problem) -> list[Target]:
    targets: list[Target] = []
    for candidate in chain(problem.own(evicted=True), problem.own(evicted=False)):
        quota.give_all(candidate.record.usage)
        targets.append(_own_target(candidate))
        if problem.fits():
            problem.fill_back(targets, borrowing=True)
            restore(targets)
            return targets
    restore(targets)
    return []


def _pools(problem: Problem) -> dict[Node, Pool]:
    node = problem.live.node
    pools = {}
    own = Pool(node, chain(problem.own(evicted=True), problem.own(evicted=False)))
    if own.first is not None:
        pools[node] = own
    if not problem.reclaims():
        return pools
    keys = problem.keys
    for other in node.root().all_queues():
        if other is node or not _borrows_some(other, keys):
            continue
        live = problem.lives.get(other.name)
        if live is None or not live.standing.records:
            continue
        pool = Pool(other, chain(problem.others(live, evicted=True), problem.others(live, evicted=False)))
        if pool.first is not None:
            pools[other] = pool
    return pools


def _borrows_some(node: Node, keys: tuple[FlavorResource, ...]) -> bool:
    cells = node.cells
    for key in keys:
        cell = cells.get(key)
        if cell is not None and cell.usage > cell.quota:
            return True
    return False


def _could_free(problem: Problem, pools: dict[Node, Pool]) -> bool:
    limit = problem.reclaim_limit()
    most = None if limit is None else limit - 1
    own = problem.live.node
    for key, short in problem.shortages():
        total = problem.own_freeable(key) if own in pools else 0
        for node in pools:
            if total >= short:
                break
            if node is not own:
                total += problem.lives[node.name].standing.freeable(key, below=most)
        if total < short:
            return False
    return True


class _Search:
    """One run of the strategies.

    What is known of nodes is kept and forgotten where a removal changes it. Queues compete below each cohort in a heap
    by rank; only the queue that was taken from gets a new one, so that the next choice does not look at all of them.
    """

    def __init__(self, problem: Problem, pools: dict[Node, Pool]) -> None:
        self.targets: list[Target] = []
        self._problem = problem
        self._pools = pools
        self._node = problem.live.node
        self._line = [self._node, *self._node.ancestors()]
        self._root = self._line[-1]
        self._shares: dict[Node, Share] = {}
        self._borrowing: dict[Node, bool] = {}
        self._cohorts: dict[Node, list[Node]] = {}
        self._queues: dict[Node, list[tuple[Rank, Node]]] = {}
        self._ranks: dict[Node, Rank] = {}
        # The second pass looks at each queue once, and there at its first candidate only.
        self._retry: dict[Node, Candidate] = {}

    def run(self) -> bool:
        """Whether the request fits after the removals in `targets`."""
        problem = self._problem
        strategies = problem.settings.fair_strategies
        within = problem.settings.gates.fair_preempt_within_nominal and all(
            cell.usage <= cell.quota for cell in problem.contested
        )
        if self._first_pass(strategies[0], within_nominal=within):
            return True
        return len(strategies) > 1 and self._second_pass()

    def _first_pass(self, strategy: FairStrategy, *, within_nominal: bool) -> bool:
        self._seat(self._pools)
        while (node := self._next()) is not None:
            pool = self._pools[node]
            if node is self._node:
                candidate = pool.pop()
                if candidate is not None and self._remove(_own_target(candidate), node):
                    return True
            elif within_nominal:
                candidate = pool.pop()
                if candidate is not None and self._remove(_nominal_target(candidate), node):
                    return True
            elif self._take_fairly(node, pool, strategy):
                return True
            self._rank(node)
        return False

    def _take_fairly(self, node: Node, pool: Pool, strategy: FairStrategy) -> bool:
        mine, theirs = self._below_common_ancestor(node)
        new_share, old_share = self._share(mine), self._share(theirs)
        if new_share.infinite and not old_share.infinite:
            self._give_up(node, pool)
            return False
        by_initial = strategy is FairStrategy.LESS_THAN_INITIAL_SHARE
        if by_initial and not new_share < old_share:
            self._give_up(node, pool)
            return False
        # Workloads of one size leave the same share behind: one of them is tested for all.
        failed: set[tuple[tuple[Cell, int], ...]] = set()
        for candidate in pool.drain():
            usage = candidate.record.usage
            if usage not in failed:
                quota.give_all(usage)
                after = shares.share(theirs)
                quota.take_all(usage)
                if by_initial or new_share <= after:
                    return self._remove(_fair_target(candidate, strategy), node)
                failed.add(usage)
            self._retry.setdefault(node, candidate)
        return False

    def _give_up(self, node: Node, pool: Pool) -> None:
        """None of a queue's candidates passes, whatever its size."""
        first = pool.pop()
        if first is not None:
            self._retry.setdefault(node, first)
        pool.close()

    def _second_pass(self) -> bool:
        self._pools = {node: Pool(node, iter((first,))) for node, first in self._retry.items()}
        self._seat(self._pools)
        while (node := self._next()) is not None:
            pool = self._pools.pop(node)
            mine, theirs = self._below_common_ancestor(node)
            candidate = pool.first
            if candidate is not None and self._share(mine) < self._share(theirs):
                target = _fair_target(candidate, FairStrategy.LESS_THAN_INITIAL_SHARE)
                if self._remove(target, node):
                    return True
            self._rank(node)
        return False

    def _seat(self, pools: dict[Node, Pool]) -> None:
        """Who may be chosen below each cohort: queues with candidates, and the cohorts above them."""
        self._cohorts = {}
        self._queues = {}
        self._ranks = {}
        for queue in pools:
            below = queue
            for cohort in queue.ancestors():
                known = cohort in self._cohorts
                children = self._cohorts.setdefault(cohort, [])
                self._queues.setdefault(cohort, [])
                if below.is_cohort:
                    children.append(below)
                if known:
                    break
                below = cohort
            self._rank(queue)

    def _rank(self, queue: Node) -> None:
        """Let a queue compete as it is now, if it may at all; once out, it stays out."""
        self._ranks.pop(queue, None)
        pool = self._pools.get(queue)
        first = pool.first if pool is not None else None
        if first is None or queue.parent is None or not (queue is self._node or self._borrows(queue)):
            return
        share = self._share(queue)
        record = first.record
        rank = (not share.infinite, -share.value, not record.evicted, record.node is self._node, first)
        self._ranks[queue] = rank
        heappush(self._queues[queue.parent], (rank, queue))

    def _next(self) -> Node | None:
        """The queue to take from next; None when nobody is left."""
        while self._root in self._cohorts:
            node: Node | None = self._root
            while node is not None and node.is_cohort:
                node = self._choose(node)
            if node is not None:
                return node
        return None

    def _choose(self, cohort: Node) -> Node | None:
        cohorts = self._cohorts[cohort]
        cohorts[:] = [
            child for child in cohorts if child in self._cohorts and (child in self._line or self._borrows(child))
        ]
        best_queue = self._first_queue(cohort)
        if not cohorts and best_queue is None:
            del self._cohorts[cohort]
            return None
        best_cohort: Node | None = None
        for child in cohorts:
            if best_cohort is None or (self._share(child), best_cohort.name) > (self._share(best_cohort), child.name):
                best_cohort = child
        if best_cohort is None:
            return best_queue
        if best_queue is not None and self._share(best_queue) > self._share(best_cohort):
            return best_queue
        return best_cohort

    def _first_queue(self, cohort: Node) -> Node | None:
        heap = self._queues[cohort]
        while heap:
            rank, queue = heap[0]
            if self._ranks.get(queue) is rank:
                return queue
            heappop(heap)
        return None

    def _share(self, node: Node) -> Share:
        share = self._shares.get(node)
        if share is None:
            share = self._shares[node] = shares.share(node)
        return share

    def _borrows(self, node: Node) -> bool:
        borrows = self._borrowing.get(node)
        if borrows is None:
            borrows = self._borrowing[node] = shares.borrows(node)
        return borrows

    def _remove(self, target: Target, node: Node) -> bool:
        """Evict; whether the request fits now."""
        quota.give_all(target.record.usage)
        self.targets.append(target)
        for changed in (node, *node.ancestors()):
            self._shares.pop(changed, None)
            self._borrowing.pop(changed, None)
        requested = self._problem.requested
        quota.give_all(requested)
        fits = self._problem.fits()
        quota.take_all(requested)
        return fits

    def _below_common_ancestor(self, target: Node) -> tuple[Node, Node]:
        """The children of the lowest common ancestor, on the preemptor's and on the target's side."""
        theirs = target
        while theirs.parent is not None and theirs.parent not in self._line:
            theirs = theirs.parent
        common = theirs.parent
        mine = next(node for node in self._line if node.parent is common)
        return mine, theirs


def _own_target(candidate: Candidate) -> Target:
    return Target(
        candidate.record,
        PreemptedReason.IN_CLUSTER_QUEUE,
        "its own queue lets the preemptor go first (§4.6)",
    )


def _nominal_target(candidate: Candidate) -> Target:
    return Target(
        candidate.record,
        PreemptedReason.IN_COHORT_RECLAMATION,
        "the preemptor stays within its nominal quota (§4.6)",
    )


def _fair_target(candidate: Candidate, strategy: FairStrategy) -> Target:
    return Target(
        candidate.record, PreemptedReason.IN_COHORT_FAIR_SHARING, f"the share allows it under {strategy} (§4.6)"
    )
