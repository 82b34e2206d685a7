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
from multikueue.engine import quota
from multikueue.engine.live import LiveQueue
from multikueue.engine.preemption.problem import Problem, Target, restore, within_nominal
from multikueue.engine.resources import FlavorResource
from multikueue.engine.standing import Candidate, Reserved
from multikueue.engine.tree import Cell, Node


class Source(NamedTuple):
    """Another queue with candidates, and the nodes between it and the ancestor shared with the preemptor."""

    live: LiveQueue
    path: tuple[Node, ...]


class Sources(NamedTuple):
    """Other queues: those that hold what belongs to the preemptor's part of the tree, and the rest."""

    hierarchy: list[Source]
    priority: list[Source]

    def __bool__(self) -> bool:
        return bool(self.hierarchy or self.priority)


def find(problem: Problem) -> list[Target]:
    """The workloads to evict; empty where no eviction helps."""
    sources = _sources(problem)
    policy = problem.live.value.preemption if problem.live.value is not None else None
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
    node = problem.live.node
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
    problem: Problem, ancestor: Node, visited: Node, found: list[Source], keys: tuple[FlavorResource, ...]
) -> None:
    stack: list[tuple[Node, tuple[Node, ...]]] = [(ancestor, ())]
    while stack:
        node, path = stack.pop()
        for child in node.queues.values():
            if child is visited or within_nominal(child, keys):
                continue
            live = problem.lives.get(child.name)
            if live is not None and live.standing.records:
                found.append(Source(live, (child, *path)))
        for child in node.cohorts.values():
            if child is not visited and not within_nominal(child, keys):
                stack.append((child, (child, *path)))


def _split(problem: Problem) -> int | None:
    """Below which priority others may be preempted while the preemptor borrows; None for nobody."""
    value = problem.live.value
    if value is None or not value.preemption.may_borrow:
        return None
    threshold = value.preemption.max_priority_threshold
    return problem.priority if threshold is None else min(problem.priority, threshold + 1)


def _any(problem: Problem, sources: list[Source]) -> bool:
    return any(
        next(problem.others(source.live, evicted=evicted), None) is not None
        for source in sources
        for evicted in (False, True)
    )


def _has_candidates(problem: Problem, sources: Sources) -> bool:
    return _any(problem, sources.hierarchy) or _any(problem, sources.priority)


def _could_free(
    problem: Problem, sources: Sources, shortages: list[tuple[FlavorResource, int]], *, borrowing: bool
) -> bool:
    """Whether all candidates together free enough: a cheap way to know that none of the walks would succeed."""
    split = _split(problem)
    limit = problem.reclaim_limit()
    most = None if limit is None else limit - 1
    for key, short in shortages:
        total = problem.own_freeable(key)
        for source in sources.hierarchy:
            total += source.live.standing.freeable(key, below=most)
        for source in sources.priority:
            if not borrowing:
                total += source.live.standing.freeable(key, below=most)
            elif split is not None:
                total += source.live.standing.freeable(key, below=split - 1)
        if total < short:
            return False
    return True


def _sequence(problem: Problem, sources: Sources, *, borrowing: bool) -> Iterator[tuple[Reserved, Source | None, bool]]:
    """Candidates in the order tried; the flag tells those of the hierarchy."""
    below = _split(problem) if borrowing else None
    skips_priority = borrowing and below is None
    for evicted in (True, False):
        for group, hierarchical in ((sources.hierarchy, True), (sources.priority, False)):
            if not group or (skips_priority and not hierarchical):
                continue
            by_queue = {source.live.node: source for source in group}
            limit = None if hierarchical else below
            streams: list[Iterator[Candidate]] = [
                problem.others(source.live, evicted=evicted, below=limit)
                for source in group
                if problem.has_others(source.live, evicted=evicted, below=limit)
            ]
            for candidate in streams[0] if len(streams) == 1 else merge(*streams):
                yield candidate.record, by_queue[candidate.record.node], hierarchical
        for candidate in problem.own(evicted=evicted):
            yield candidate.record, None, False


def _attempt(problem: Problem, sources: Sources, *, borrowing: bool) -> list[Target]:
    targets: list[Target] = []
    keys = problem.keys
    for record, source, hierarchical in _sequence(problem, sources, borrowing=borrowing):
        if source is not None and any(within_nominal(node, keys) for node in source.path):
            continue
        quota.give_all(record.usage)
        targets.append(_target(problem, record, source, hierarchical=hierarchical))
        if problem.fits(borrowing=borrowing):
            problem.fill_back(targets, borrowing=borrowing)
            restore(targets)
            return targets
    restore(targets)
    return []


def _target(problem: Problem, record: Reserved, source: Source | None, *, hierarchical: bool) -> Target:
    if source is None:
        return Target(record, PreemptedReason.IN_CLUSTER_QUEUE, "its own queue lets the preemptor go first (§4.1)")
    if hierarchical:
        return Target(
            record,
            PreemptedReason.IN_COHORT_RECLAMATION,
            f"{source.live.name} borrows quota of a part of the tree that the preemptor fits into (§4.3)",
        )
    split = _split(problem)
    if split is not None and record.priority < split:
        return Target(
            record,
            PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
            "borrowWithinCohort lets the preemptor take from lower priority and borrow (§4.3)",
        )
    return Target(
        record,
        PreemptedReason.IN_COHORT_RECLAMATION,
        f"{source.live.name} borrows, and the preemptor stays within its nominal quota (§4.3)",
    )
