# SPDX-License-Identifier: Apache-2.0
"""The trees whose heads would be decided again as they were.

A decision about the heads of a tree depends on these heads, on what holds quota in the tree, and on configuration. The
engine reports changes of the last two with `forget`; a queue that may have another head is in `ready`. A head that
tries its flavors in several cycles (`docs/spec/engine.md §3.6`) is decided once it has tried all in the same state. If
heads never come to the end of their flavors in one cycle, they are decided once each is where all were before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.queue.pending import Pending


class EvaluatedHead(NamedTuple):
    """A head that is the head again after its cycle, and the cycle in which it tried its first flavor."""

    pending: Pending
    began: int


Position = tuple[object, ...]
"""Where the scan of a head stopped, and what else of it decides about the next cycle."""


@dataclass(slots=True)
class _Evaluated:
    heads: Mapping[str, Pending]
    since: int
    """The first cycle in this state."""
    settled: bool = False
    cycles: int = 0
    """The cycles in this state."""
    mark: tuple[Position, ...] | None = None
    """The positions of the heads after 1, 2, 4, 8, … of these cycles: one of them is in whatever is repeated."""

    def is_repeated(self, positions: tuple[Position, ...]) -> bool:
        """Whether the heads were at these positions before, and so will be again; called once for each cycle."""
        repeated = positions == self.mark
        self.cycles += 1
        if self.cycles & (self.cycles - 1) == 0:
            self.mark = positions
        return repeated


class EvaluatedTrees:
    """By root: the heads that its last cycle evaluated without effect."""

    def __init__(self) -> None:
        self._trees: dict[QuotaNode, _Evaluated] = {}

    def add(self, root: QuotaNode, heads: Mapping[str, EvaluatedHead], *, cycle: int) -> bool:
        """A cycle evaluated these heads, by queue, and changed nothing; whether the next one would decide alike."""
        pendings = {queue: head.pending for queue, head in heads.items()}
        known = self._trees.get(root)
        if known is None or known.heads != pendings:
            known = self._trees[root] = _Evaluated(pendings, cycle)
        known.settled = all(head.began >= known.since and not _scans(head.pending) for head in heads.values())
        if not known.settled and known.is_repeated(tuple(_position(pending) for pending in pendings.values())):
            known.settled = True
            for pending in pendings.values():
                pending.progress = None  # after a change each begins with its first flavor
        return known.settled

    def has(self, root: QuotaNode) -> bool:
        """Whether a cycle would decide about a tree as the last one did."""
        known = self._trees.get(root)
        return known is not None and known.settled

    def is_as_evaluated(self, root: QuotaNode, queue: str, head: Pending | None) -> bool:
        """Whether the head of a queue is the one that was evaluated; also if its tree was not."""
        known = self._trees.get(root)
        return known is None or known.heads.get(queue) is head

    def forget(self, root: QuotaNode) -> frozenset[str]:
        """Something changed in a tree: the queues whose heads are to be evaluated again."""
        known = self._trees.pop(root, None)
        return frozenset(known.heads) if known is not None else frozenset()

    def forget_all(self) -> frozenset[str]:
        """Something changed that concerns all trees: the queues whose heads are to be evaluated again."""
        names = frozenset(name for known in self._trees.values() for name in known.heads)
        self._trees = {}
        return names


def _scans(pending: Pending) -> bool:
    """Whether a workload has flavors left to try."""
    return pending.progress is not None and pending.progress.unfinished


def _position(pending: Pending) -> Position:
    progress = pending.progress
    if progress is None or not progress.unfinished:
        return (pending.preemptions,)
    return (pending.preemptions, progress.tried, progress.cycles)
