# SPDX-License-Identifier: Apache-2.0
"""One preemption problem, and the two steps that both ways of solving it share.

Owns the preemptor, its request and its possible victims; the fit test; and filling back (`docs/spec/engine.md §4.4`). A
search changes the tree and restores it at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from multikueue.api.constants import PreemptionPolicy
from multikueue.api.reasons import PreemptedReason
from multikueue.core.keys import Key
from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.reserved_workloads import Candidate, Reserved
from multikueue.engine.cache.tree import Cell, QuotaNode
from multikueue.engine.queue.pending import queue_timestamp
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import Settings
from multikueue.engine.topology.capacity import TopologyCapacity
from multikueue.engine.values import PreemptionRules
from multikueue.engine.workloads import Workload


class PreemptionTarget(NamedTuple):
    """A workload to evict, why, and by which rule it was chosen."""

    record: Reserved
    reason: PreemptedReason
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A preemptor and its request.

    `requested` is everything it would take, `contested` the cells that need preemption and `keys` their flavor
    resources. `excluded` are workloads that are already being evicted. `placed` says whether the pods could be placed
    with current usage of `capacity`, quota aside.
    """

    cluster_queue: CachedClusterQueue
    workload: Workload
    priority: int
    requested: Amounts
    contested: tuple[Cell, ...]
    keys: tuple[FlavorResource, ...]
    cluster_queues: dict[str, CachedClusterQueue]
    settings: Settings
    excluded: Collection[Key] = ()
    usage_of: Callable[[Key], float] | None = None
    placed: Callable[[], bool] | None = None
    capacity: TopologyCapacity

    def fits(self, *, borrowing: bool = True) -> bool:
        """Whether the request fits with current usage."""
        for cell, amount in self.requested:
            if amount > 0 and amount > quota.available(cell):
                return False
            if not borrowing and cell.usage + amount > cell.nominal:
                return False
        return self.placed is None or self.placed()

    def preemptible(self, node: QuotaNode) -> CachedClusterQueue | None:
        """Another queue, if its workloads may be preempted: it is active, as those in the snapshot, and has some."""
        found = self.cluster_queues.get(node.name)
        return found if found is not None and found.active and found.reserved.records else None

    def own(self, *, evicted: bool) -> Iterator[Candidate]:
        """Candidates of the preemptor's queue, in order."""
        policy = self._policy().within_cluster_queue
        if policy == PreemptionPolicy.LOWER_PRIORITY:
            found = self.cluster_queue.reserved.candidates(self.keys, evicted=evicted, below=self.priority)
        elif policy == PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            mine = queue_timestamp(self.workload, self.settings)
            found = self.cluster_queue.reserved.candidates(
                self.keys,
                evicted=evicted,
                below=self.priority,
                extra=lambda record: mine < queue_timestamp(record.workload, self.settings),
            )
        elif policy == PreemptionPolicy.ANY:
            found = self.cluster_queue.reserved.candidates(self.keys, evicted=evicted, below=None)
        else:
            return iter(())
        return self._usable(self.cluster_queue, found)

    def others(
        self, cluster_queue: CachedClusterQueue, *, evicted: bool, below: int | None = None
    ) -> Iterator[Candidate]:
        """Candidates of another queue, in order, within the policy."""
        limit = self.reclaim_limit()
        if limit is not None:
            below = limit if below is None else min(below, limit)
        return self._usable(cluster_queue, cluster_queue.reserved.candidates(self.keys, evicted=evicted, below=below))

    def has_others(self, cluster_queue: CachedClusterQueue, *, evicted: bool, below: int | None = None) -> bool:
        """Whether `others` may yield anything."""
        limit = self.reclaim_limit()
        if limit is not None:
            below = limit if below is None else min(below, limit)
        return cluster_queue.reserved.has(self.keys, evicted=evicted, below=below)

    def own_freeable(self, key: FlavorResource) -> int:
        """An upper bound of what preemption in the preemptor's queue could free."""
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
        return self.cluster_queue.reserved.freeable(key, below=below)

    def reclaims(self) -> bool:
        """Whether workloads of other queues may be preempted."""
        policy = self._policy().reclaim_within_cohort
        return self.cluster_queue.node.parent is not None and policy in (
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            PreemptionPolicy.ANY,
        )

    def reclaim_limit(self) -> int | None:
        """The priority that candidates of other queues must be below; None for no limit."""
        return None if self._policy().reclaim_within_cohort == PreemptionPolicy.ANY else self.priority

    def shortages(self) -> list[tuple[FlavorResource, int]]:
        """The current shortage of each contested cell."""
        wanted = {id(cell): amount for cell, amount in self.requested}
        found = []
        for cell in self.contested:
            short = wanted.get(id(cell), 0) - max(0, quota.available(cell))
            if short > 0:
                found.append((cell.key, short))
        return found

    def fill_back(self, targets: list[PreemptionTarget], *, borrowing: bool) -> None:
        """Remove from `targets` those that turn out not to be needed; the last one is always needed."""
        position = len(targets) - 2
        while position >= 0:
            record = targets[position].record
            self.add(record)
            if self.fits(borrowing=borrowing):
                targets[position] = targets[-1]
                targets.pop()
            else:
                self.remove(record)
            position -= 1

    def remove(self, record: Reserved) -> None:
        """Take away what a victim uses."""
        remove_record(record, self.capacity)

    def add(self, record: Reserved) -> None:
        """Add it again."""
        add_record(record, self.capacity)

    def restore(self, targets: list[PreemptionTarget]) -> None:
        """Restore the usage of everything that a search removed."""
        for target in targets:
            self.add(target.record)

    def _policy(self) -> PreemptionRules:
        value = self.cluster_queue.value
        assert value is not None, f"{self.cluster_queue.name}: a preemptor needs a ClusterQueue object"
        return value.preemption

    def _usable(self, cluster_queue: CachedClusterQueue, found: Iterator[Candidate]) -> Iterator[Candidate]:
        if self.excluded:
            excluded = self.excluded
            found = (candidate for candidate in found if candidate.record.workload.key not in excluded)
        usage_of = self.usage_of
        if usage_of is not None and cluster_queue.queue.usage_of is not None:
            # docs/spec/engine.md §4.2 rule 3 comes before priority, within one queue.
            found = iter(sorted(found, key=lambda candidate: (-usage_of(candidate.record.local_queue), candidate[:4])))
        return found


def remove_record(record: Reserved, capacity: TopologyCapacity) -> None:
    """Take away the quota and the places of a workload, for a search."""
    quota.remove_all(record.usage)
    if record.places:
        capacity.remove(record.places)


def add_record(record: Reserved, capacity: TopologyCapacity) -> None:
    """Add them again."""
    quota.add_all(record.usage)
    if record.places:
        capacity.add(record.places)


def within_nominal(node: QuotaNode, keys: tuple[FlavorResource, ...]) -> bool:
    """Whether a node uses no more than its quota of any of `keys`."""
    cells = node.cells
    for key in keys:
        cell = cells.get(key)
        if cell is not None and cell.usage > cell.quota:
            return False
    return True
