# SPDX-License-Identifier: Apache-2.0
"""Preemption under fair sharing (`docs/spec/engine.md §4.5` and §4.6).

Owns the choice of the next queue to take from, by dominant resource share from the root down, and the two strategies.
The preemptor's request counts as used during the whole search, except when testing whether it fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

from multikueue.api.reasons import PreemptedReason
from multikueue.engine.cache import quota, shares
from multikueue.engine.cache.reserved_workloads import Candidate
from multikueue.engine.cache.shares import Share
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.preemption.problem import PreemptionTarget, Problem
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import FairStrategy

Rank = tuple[bool, float, bool, bool, Candidate]


def find(problem: Problem) -> list[PreemptionTarget]:
    """The workloads to evict; empty if no eviction helps or none would be fair."""
    if problem.cluster_queue.node.parent is None or problem.cluster_queue.node.cut_off:
        return _alone(problem)
    pools = _pools(problem)
    if not pools or not _could_free(problem, pools):
        return []
    search = _Search(problem, pools)
    quota.add_all(problem.requested)
    reached = search.run()
    quota.remove_all(problem.requested)
    if reached:
        problem.fill_back(search.targets, borrowing=True)
    problem.restore(search.targets)
    return search.targets if reached else []


class Pool:
    """The remaining candidates of one queue, in order."""

    __slots__ = ("_ahead", "_rest", "node")

    def __init__(self, node: QuotaNode, candidates: Iterator[Candidate]) -> None:
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
        """All candidates one by one; unread ones stay."""
        candidate = self._ahead
        while candidate is not None:
            self._ahead = following = next(self._rest, None)
            yield candidate
            candidate = following

    def close(self) -> None:
        """Drop the rest."""
        self._ahead = None


def _alone(problem: Problem) -> list[PreemptionTarget]:
    targets: list[PreemptionTarget] = []
    for candidate in chain(problem.own(evicted=True), problem.own(evicted=False)):
        problem.remove(candidate.record)
        targets.append(_own_target(candidate))
        if problem.fits():
            problem.fill_back(targets, borrowing=True)
            problem.restore(targets)
            return targets
    problem.restore(targets)
    return []


def _pools(problem: Problem) -> dict[QuotaNode, Pool]:
    node = problem.cluster_queue.node
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
        cluster_queue = problem.preemptible(other)
        if cluster_queue is None:
            continue
        pool = Pool(
            other, chain(problem.others(cluster_queue, evicted=True), problem.others(cluster_queue, evicted=False))
        )
        if pool.first is not None:
            pools[other] = pool
    return pools


def _borrows_some(node: QuotaNode, keys: tuple[FlavorResource, ...]) -> bool:
    cells = node.cells
    for key in keys:
        cell = cells.get(key)
        if cell is not None and cell.usage > cell.quota:
            return True
    return False


def _could_free(problem: Problem, pools: dict[QuotaNode, Pool]) -> bool:
    limit = problem.reclaim_limit()
    most = None if limit is None else limit - 1
    own = problem.cluster_queue.node
    for key, short in problem.shortages():
        total = problem.own_freeable(key) if own in pools else 0
        for node in pools:
            if total >= short:
                break
            if node is not own:
                total += problem.cluster_queues[node.name].reserved.freeable(key, below=most)
        if total < short:
            return False
    return True


class _Search:
    """One run of the strategies.

    What is computed for nodes is cached, and dropped when a removal changes it. Queues compete below each cohort in a
    heap by rank; only the queue that was taken from is ranked again, so that the next choice does not visit all of
    them.
    """

    def __init__(self, problem: Problem, pools: dict[QuotaNode, Pool]) -> None:
        self.targets: list[PreemptionTarget] = []
        self._problem = problem
        self._pools = pools
        self._node = problem.cluster_queue.node
        self._line = [self._node, *self._node.ancestors()]
        self._root = self._line[-1]
        self._shares: dict[QuotaNode, Share] = {}
        self._borrowing: dict[QuotaNode, bool] = {}
        self._cohorts: dict[QuotaNode, list[QuotaNode]] = {}
        self._queues: dict[QuotaNode, list[tuple[Rank, QuotaNode]]] = {}
        self._ranks: dict[QuotaNode, Rank] = {}
        # The second pass tries each queue once, and only its first candidate.
        self._retry: dict[QuotaNode, Candidate] = {}

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

    def _take_fairly(self, node: QuotaNode, pool: Pool, strategy: FairStrategy) -> bool:
        mine, theirs = self._below_common_ancestor(node)
        new_share, old_share = self._share(mine), self._share(theirs)
        if new_share.infinite and not old_share.infinite:
            self._give_up(node, pool)
            return False
        by_initial = strategy is FairStrategy.LESS_THAN_INITIAL_SHARE
        if by_initial and not new_share < old_share:
            self._give_up(node, pool)
            return False
        # Workloads of one size leave the same share: one of them is tested for all.
        failed: set[tuple[tuple[Cell, int], ...]] = set()
        for candidate in pool.drain():
            usage = candidate.record.usage
            if usage not in failed:
                quota.remove_all(usage)
                after = shares.share(theirs)
                quota.add_all(usage)
                if by_initial or new_share <= after:
                    return self._remove(_fair_target(candidate, strategy), node)
                failed.add(usage)
            self._retry.setdefault(node, candidate)
        return False

    def _give_up(self, node: QuotaNode, pool: Pool) -> None:
        """No candidate of a queue passes, whatever its size."""
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

    def _seat(self, pools: dict[QuotaNode, Pool]) -> None:
        """The contestants below each cohort: queues with candidates, and the cohorts above them."""
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

    def _rank(self, queue: QuotaNode) -> None:
        """Rank a queue by its current share if it may compete; once out, it stays out."""
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

    def _next(self) -> QuotaNode | None:
        """The queue to take from next; None if none is left."""
        while self._root in self._cohorts:
            node: QuotaNode | None = self._root
            while node is not None and node.is_cohort:
                node = self._choose(node)
            if node is not None:
                return node
        return None

    def _choose(self, cohort: QuotaNode) -> QuotaNode | None:
        cohorts = self._cohorts[cohort]
        cohorts[:] = [
            child for child in cohorts if child in self._cohorts and (child in self._line or self._borrows(child))
        ]
        best_queue = self._first_queue(cohort)
        if not cohorts and best_queue is None:
            del self._cohorts[cohort]
            return None
        best_cohort: QuotaNode | None = None
        for child in cohorts:
            if best_cohort is None or (self._share(child), best_cohort.name) > (self._share(best_cohort), child.name):
                best_cohort = child
        if best_cohort is None:
            return best_queue
        if best_queue is not None and self._share(best_queue) > self._share(best_cohort):
            return best_queue
        return best_cohort

    def _first_queue(self, cohort: QuotaNode) -> QuotaNode | None:
        heap = self._queues[cohort]
        while heap:
            rank, queue = heap[0]
            if self._ranks.get(queue) is rank:
                return queue
            heappop(heap)
        return None

    def _share(self, node: QuotaNode) -> Share:
        share = self._shares.get(node)
        if share is None:
            share = self._shares[node] = shares.share(node)
        return share

    def _borrows(self, node: QuotaNode) -> bool:
        borrows = self._borrowing.get(node)
        if borrows is None:
            borrows = self._borrowing[node] = shares.borrows(node)
        return borrows

    def _remove(self, target: PreemptionTarget, node: QuotaNode) -> bool:
        """Evict; whether the request fits now."""
        self._problem.remove(target.record)
        self.targets.append(target)
        for changed in (node, *node.ancestors()):
            self._shares.pop(changed, None)
            self._borrowing.pop(changed, None)
        requested = self._problem.requested
        quota.remove_all(requested)
        fits = self._problem.fits()
        quota.add_all(requested)
        return fits

    def _below_common_ancestor(self, target: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """The children of the lowest common ancestor, on the preemptor's and on the target's side."""
        theirs = target
        while theirs.parent is not None and theirs.parent not in self._line:
            theirs = theirs.parent
        common = theirs.parent
        mine = next(node for node in self._line if node.parent is common)
        return mine, theirs


def _own_target(candidate: Candidate) -> PreemptionTarget:
    return PreemptionTarget(
        candidate.record,
        PreemptedReason.IN_CLUSTER_QUEUE,
        "the policy of the queue lets the preemptor go first",
    )


def _nominal_target(candidate: Candidate) -> PreemptionTarget:
    return PreemptionTarget(
        candidate.record,
        PreemptedReason.IN_COHORT_RECLAMATION,
        "the preemptor stays within its nominal quota",
    )


def _fair_target(candidate: Candidate, strategy: FairStrategy) -> PreemptionTarget:
    return PreemptionTarget(
        candidate.record, PreemptedReason.IN_COHORT_FAIR_SHARING, f"the share allows it under {strategy}"
    )
