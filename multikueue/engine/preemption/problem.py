# SPDX-License-Identifier: Apache-2.0
"""One question of preemption, and the two steps that both ways of answering it share.

Owns who preempts, for what, at whose possible cost; the fit test; and filling back (`docs/spec/engine.md §4.4`). The
tree is changed while a search goes on and is as before when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from multikueue.api.constants import PreemptionPolicy
from multikueue.api.reasons import PreemptedReason
from multikueue.core.keys import Key
from multikueue.engine import quota
from multikueue.engine.live import LiveQueue
from multikueue.engine.pending import queue_timestamp
from multikueue.engine.quota import Amounts
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import Settings
from multikueue.engine.standing import Candidate, Reserved
from multikueue.engine.tree import Cell, Node
from multikueue.engine.values import Preemption
from multikueue.engine.workloads import Workload


class Target(NamedTuple):
    """A workload to evict, why, and by which rule it was chosen."""

    record: Reserved
    reason: PreemptedReason
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A preemptor and what it asks for.

    `requested` is all it would take, `contested` the cells that only preemption can give and `keys`
    their flavor resources. `excluded` are workloads
    that are as good as gone. `placed` tells whether the pods could be placed as usage is now, beyond quota.
    """

    live: LiveQueue
    workload: Workload
    priority: int
    requested: Amounts
    contested: tuple[Cell, ...]
    keys: tuple[FlavorResource, ...]
    lives: dict[str, LiveQueue]
    settings: Settings
    excluded: Collection[Key] = ()
    usage_of: Callable[[Key], float] | None = None
    placed: Callable[[], bool] | None = None

    def fits(self, *, borrowing: bool = True) -> bool:
        """Whether the request is there as usage is now."""
        for cell, amount in self.requested:
            if amount > 0 and amount > quota.available(cell):
                return False
            if not borrowing and cell.usage + amount > cell.nominal:
                return False
        return self.placed is None or self.placed()

    def own(self, *, evicted: bool) -> Iterator[Candidate]:
        """Candidates of the preemptor's own queue, in order."""
        policy = self._policy().within_cluster_queue
        if policy == PreemptionPolicy.LOWER_PRIORITY:
            found = self.live.standing.candidates(self.keys, evicted=evicted, below=self.priority)
        elif policy == PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            mine = queue_timestamp(self.workload, self.settings)
            found = self.live.standing.candidates(
                self.keys,
                evicted=evicted,
                below=self.priority,
                extra=lambda record: mine < queue_timestamp(record.workload, self.settings),
            )
        elif policy == PreemptionPolicy.ANY:
            found = self.live.standing.candidates(self.keys, evicted=evicted, below=None)
        else:
            return iter(())
        return self._usable(self.live, found)

    def others(self, live: LiveQueue, *, evicted: bool, below: int | None = None) -> Iterator[Candidate]:
        """Candidates of another queue, in order, within what the policy allows."""
        limit = self.reclaim_limit()
        if limit is not None:
            below = limit if below is None else min(below, limit)
        return self._usable(live, live.standing.candidates(self.keys, evicted=evicted, below=below))

    def has_others(self, live: LiveQueue, *, evicted: bool, below: int | None = None) -> bool:
        """Whether `others` may give anything."""
        limit = self.reclaim_limit()
        if limit is not None:
            below = limit if below is None else min(below, limit)
        return live.standing.has(self.keys, evicted=evicted, below=below)

    def own_freeable(self, key: FlavorResource) -> int:
        """No less than what preemption in the own queue could free."""
        policy = self._policy().within_cluster_queue
        if policy not in (
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            PreemptionPolicy.ANY,
        ):
            return 0
        below = None
        if policy == PreemptionPolicy.LOWER_PRIORITY:
            below = self.priority - 1
        elif policy == PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            below = self.priority
        return self.live.standing.freeable(key, below=below)

    def reclaims(self) -> bool:
        """Whether other queues may be asked."""
        policy = self._policy().reclaim_within_cohort
        return self.live.node.parent is not None and policy in (
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            PreemptionPolicy.ANY,
        )

    def reclaim_limit(self) -> int | None:
        """The priority that candidates of other queues must be below; None for no such limit."""
        return None if self._policy().reclaim_within_cohort == PreemptionPolicy.ANY else self.priority

    def shortages(self) -> list[tuple[FlavorResource, int]]:
        """By how much each contested cell falls short now."""
        wanted = {id(cell): amount for cell, amount in self.requested}
        found = []
        for cell in self.contested:
            short = wanted.get(id(cell), 0) - max(0, quota.available(cell))
            if short > 0:
                found.append((cell.key, short))
        return found

    def fill_back(self, targets: list[Target], *, borrowing: bool) -> None:
        """Keep those that turn out not to be needed; the last one removed always is."""
        position = len(targets) - 2
        while position >= 0:
            record = targets[position].record
            quota.take_all(record.usage)
            if self.fits(borrowing=borrowing):
                targets[position] = targets[-1]
                targets.pop()
            else:
                quota.give_all(record.usage)
            position -= 1

    def _policy(self) -> Preemption:
        value = self.live.value
        assert value is not None, f"{self.live.name}: a preemptor has a queue"
        return value.preemption

    def _usable(self, live: LiveQueue, found: Iterator[Candidate]) -> Iterator[Candidate]:
        if self.excluded:
            excluded = self.excluded
            found = (candidate for candidate in found if candidate.record.workload.key not in excluded)
        usage_of = self.usage_of
        if usage_of is not None and live.queue.usage_of is not None:
            # docs/spec/engine.md §4.2 rule 3 comes before priority, within one queue.
            found = iter(sorted(found, key=lambda candidate: (-usage_of(candidate.record.local_queue), candidate[:4])))
        return found


def restore(targets: list[Target]) -> None:
    """Put back the usage of everything that a search removed."""
    for target in targets:
        quota.take_all(target.record.usage)


def within_nominal(node: Node, keys: tuple[FlavorResource, ...]) -> bool:
    """Whether a node uses no more than its quota of any of `keys`."""
    cells = node.cells
    for key in keys:
        cell = cells.get(key)
        if cell is not None and cell.usage > cell.quota:
            return False
    return True
