# SPDX-License-Identifier: Apache-2.0
"""Preemption for one head: the oracle of the flavor search, and the targets of the whole workload.

Owns the choice between classical and fair sharing, and caches results while usage does not change, so that a workload
of one resource is searched for once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from multikueue.core.keys import Key
from multikueue.engine.cache import quota
from multikueue.engine.cache.cached_queue import CachedClusterQueue
from multikueue.engine.cache.quota import Amounts
from multikueue.engine.cache.tree import Cell
from multikueue.engine.flavorassigner.assignment import Mode
from multikueue.engine.preemption import classical, fair
from multikueue.engine.preemption.problem import PreemptionTarget, Problem
from multikueue.engine.settings import Settings
from multikueue.engine.topology.capacity import TopologyCapacity
from multikueue.engine.workloads import Workload


class Finder:
    """Searches victims for one workload, in one state of the tree."""

    def __init__(
        self,
        cluster_queue: CachedClusterQueue,
        *,
        workload: Workload,
        priority: int,
        cluster_queues: dict[str, CachedClusterQueue],
        settings: Settings,
        capacity: TopologyCapacity,
        excluded: Collection[Key] = (),
        usage_of: Callable[[Key], float] | None = None,
    ) -> None:
        self._cluster_queue = cluster_queue
        self._workload = workload
        self._priority = priority
        self._cluster_queues = cluster_queues
        self._settings = settings
        self._capacity = capacity
        self._excluded = excluded
        self._usage_of = usage_of
        self._known: dict[tuple[object, ...], list[PreemptionTarget]] = {}

    def simulate(self, cell: Cell, amount: int) -> tuple[Mode, int]:
        """Whether preemption could free capacity for one flavor resource, and the borrowing level that would remain."""
        targets = self.targets([(cell, amount)], [cell])
        if not targets:
            return Mode.NO_CANDIDATES, quota.level(cell, amount)[0]
        for target in targets:
            quota.remove_all(target.record.usage)
        level = quota.level(cell, amount)[0]
        for target in targets:
            quota.add_all(target.record.usage)
        own = any(target.record.node is self._cluster_queue.node for target in targets)
        return (Mode.PREEMPT if own else Mode.RECLAIM), level

    def targets(
        self, requested: Amounts, contested: Sequence[Cell], *, placed: Callable[[], bool] | None = None
    ) -> list[PreemptionTarget]:
        """The workloads to evict so that all of `requested` fits; empty if none would help."""
        key: tuple[object, ...] = (tuple(requested), tuple(contested))
        known = self._known.get(key) if placed is None else None
        if known is not None:
            return known
        problem = Problem(
            cluster_queue=self._cluster_queue,
            workload=self._workload,
            priority=self._priority,
            requested=requested,
            contested=tuple(contested),
            keys=tuple(cell.key for cell in contested),
            cluster_queues=self._cluster_queues,
            settings=self._settings,
            excluded=self._excluded,
            usage_of=self._usage_of,
            placed=placed,
            capacity=self._capacity,
        )
        found = fair.find(problem) if self._settings.fair_sharing else classical.find(problem)
        if placed is None:
            self._known[key] = found
        return found
