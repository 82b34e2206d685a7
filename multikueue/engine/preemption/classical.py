# SPDX-License-Identifier: Apache-2.0
"""Preemption without fair sharing (`docs/spec/engine.md §4.3` and §4.4).

Owns which queues candidates come from, hierarchical advantage, and the attempts with and without borrowing. Candidates
are read one by one from the queues' indexes: a preemptor that needs three of ten thousand reads three.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from multikueue.api.reasons import PreemptedReason
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.reserved_workloads import Candidate, Reserved
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.preemption.problem import PreemptionTarget, Problem, within_nominal
from multikueue.engine.resources import FlavorResource


class Source(NamedTuple):
    """Another queue with candidates, and the nodes between it and the ancestor shared with the preemptor."""

    cluster_queue: CachedClusterQueue
    path: tuple[QuotaNode, ...]


class Sources(NamedTuple):
    """Other queues: those that use quota of the preemptor's part of the tree, and the rest."""

    hierarchy: list[Source]
    priority: list[Source]

    def __bool__(self) -> bool:
        return bool(self.hierarchy or self.priority)


def find(problem: Problem) -> list[PreemptionTarget]:
    """The workloads to evict; empty if no eviction helps."""
    sources = _sources(problem)
    policy = problem.cluster_queue.value.preemption if problem.cluster_queue.value is not None else None
    forbidden = policy is None or not policy.may_borrow
    under = all(cell.usage < cell.nominal for cell in problem.contested)
    others = _has_candidates(problem, sources)
    if not others or (forbidden and not under):
        attempts = [True]
    elif forbidden and not _any(problem, sources.hierarchy):
        attempts = [False, True]
    else:
        attempts = [True, False]
    shortages = problem.shortages()
    for borrowing in attempts:
        if not _could_free(problem, sources, shortages, borrowing=borrowing):
            continue
        targets = _attempt(problem, sources, borrowing=borrowing)
        if targets:
            return targets
    return []


def _sources(problem: Problem) -> Sources:
    sources = Sources([], [])
    if not problem.reclaims():
        return sources
    keys = problem.keys
    node = problem.cluster_queue.node
    at: list[tuple[Cell, int]] = list(problem.requested)
    advantage = all(cell.usage + amount <= cell.quota for cell, amount in at)
    below = node
    for ancestor in node.ancestors():
        at = [(cell.parent, max(0, amount - max(0, cell.local - cell.usage))) for cell, amount in at if cell.parent]
        _collect(problem, ancestor, below, (sources.hierarchy if advantage else sources.priority), keys)
        advantage = advantage or all(cell.usage + amount <= cell.quota for cell, amount in at)
        below = ancestor
    return sources


def _collect(
    problem: Problem, ancestor: QuotaNode, visited: QuotaNode, found: list[Source], keys: tuple[FlavorResource, ...]
) -> None:
    stack: list[tuple[QuotaNode, tuple[QuotaNode, ...]]] = [(ancestor, ())]
    while stack:
        node, path = stack.pop()
        for child in node.children():
            if child is visited or within_nominal(child, keys):
                continue
            if child.is_cohort:
                stack.append((child, (child, *path)))
                continue
            cluster_queue = problem.preemptible(child)
            if cluster_queue is not None:
                found.append(Source(cluster_queue, (child, *path)))


def _split(problem: Problem) -> int | None:
    """The priority below which others may be preempted while the preemptor borrows; None if none may."""
    value = problem.cluster_queue.value
    if value is None or not value.preemption.may_borrow:
        return None
    threshold = value.preemption.max_priority_threshold
    return problem.priority if threshold is None else min(problem.priority, threshold + 1)


def _any(problem: Problem, sources: list[Source]) -> bool:
    return any(
        next(problem.others(source.cluster_queue, evicted=evicted), None) is not None
        for source in sources
        for evicted in (False, True)
    )


def _has_candidates(problem: Problem, sources: Sources) -> bool:
    return _any(problem, sources.hierarchy) or _any(problem, sources.priority)


def _could_free(
    problem: Problem, sources: Sources, shortages: list[tuple[FlavorResource, int]], *, borrowing: bool
) -> bool:
    """Whether all candidates together free enough; a cheap check before the walks."""
    split = _split(problem)
    limit = problem.reclaim_limit()
    most = None if limit is None else limit - 1
    for key, short in shortages:
        total = problem.own_freeable(key)
        for source in sources.hierarchy:
            total += source.cluster_queue.reserved.freeable(key, below=most)
        for source in sources.priority:
            if not borrowing:
                total += source.cluster_queue.reserved.freeable(key, below=most)
            elif split is not None:
                total += source.cluster_queue.reserved.freeable(key, below=split - 1)
        if total < short:
            return False
    return True


def _sequence(problem: Problem, sources: Sources, *, borrowing: bool) -> Iterator[tuple[Reserved, Source | None, bool]]:
    """Candidates in the order tried; the flag marks those of the hierarchy."""
    below = _split(problem) if borrowing else None
    skips_priority = borrowing and below is None
    for evicted in (True, False):
        for group, hierarchical in ((sources.hierarchy, True), (sources.priority, False)):
            if not group or (skips_priority and not hierarchical):
                continue
            by_queue = {source.cluster_queue.node: source for source in group}
            limit = None if hierarchical else below
            streams: list[Iterator[Candidate]] = [
                _while_borrowing(
                    problem.others(source.cluster_queue, evicted=evicted, below=limit), source, problem.keys
                )
                for source in group
                if problem.has_others(source.cluster_queue, evicted=evicted, below=limit)
            ]
            for candidate in streams[0] if len(streams) == 1 else merge(*streams):
                yield candidate.record, by_queue[candidate.record.node], hierarchical
        for candidate in problem.own(evicted=evicted):
            yield candidate.record, None, False


def _while_borrowing(
    candidates: Iterator[Candidate], source: Source, keys: tuple[FlavorResource, ...]
) -> Iterator[Candidate]:
    """The candidates of a queue until it borrows no more: in an attempt usage only falls."""
    for candidate in candidates:
        yield candidate
        if any(within_nominal(node, keys) for node in source.path):
            return


def _attempt(problem: Problem, sources: Sources, *, borrowing: bool) -> list[PreemptionTarget]:
    targets: list[PreemptionTarget] = []
    keys = problem.keys
    for record, source, hierarchical in _sequence(problem, sources, borrowing=borrowing):
        if source is not None and any(within_nominal(node, keys) for node in source.path):
            continue
        problem.remove(record)
        targets.append(_target(problem, record, source, hierarchical=hierarchical))
        if problem.fits(borrowing=borrowing):
            problem.fill_back(targets, borrowing=borrowing)
            problem.restore(targets)
            return targets
    problem.restore(targets)
    return []


def _target(problem: Problem, record: Reserved, source: Source | None, *, hierarchical: bool) -> PreemptionTarget:
    if source is None:
        return PreemptionTarget(
            record, PreemptedReason.IN_CLUSTER_QUEUE, "the policy of the queue lets the preemptor go first"
        )
    if hierarchical:
        return PreemptionTarget(
            record,
            PreemptedReason.IN_COHORT_RECLAMATION,
            f"{source.cluster_queue.name} borrows quota from a part of the tree that the preemptor fits into",
        )
    split = _split(problem)
    if split is not None and record.priority < split:
        return PreemptionTarget(
            record,
            PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
            "borrowWithinCohort lets the preemptor evict lower priority while it borrows",
        )
    return PreemptionTarget(
        record,
        PreemptedReason.IN_COHORT_RECLAMATION,
        f"{source.cluster_queue.name} borrows, and the preemptor stays within its nominal quota",
    )
