# SPDX-License-Identifier: Apache-2.0
"""Preemption for one head: the oracle of the flavor search, and the targets of the whole workload.

Owns the choice between classical and fair sharing, and remembers answers as long as usage does not change, so that a
workload of one resource is searched for once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from multikueue.core.keys import Key
from multikueue.engine import quota
from multikueue.engine.assignment import Mode
from multikueue.engine.live import LiveQueue
from multikueue.engine.preemption import classical, fair
from multikueue.engine.preemption.problem import Problem, Target
from multikueue.engine.quota import Amounts
from multikueue.engine.settings import Settings
from multikueue.engine.tree import Cell
from multikueue.engine.workloads import Workload


class Finder:
    """Looks for victims on behalf of one workload, in one state of the tree."""

    def __init__(
        self,
        live: LiveQueue,
        *,
        workload: Workload,
        priority: int,
        lives: dict[str, LiveQueue],
        settings: Settings,
        excluded: Collection[Key] = (),
        usage_of: Callable[[Key], float] | None = None,
    ) -> None:
        self._live = live
        self._workload = workload
        self._priority = priority
        self._lives = lives
        self._settings = settings
        self._excluded = excluded
        self._usage_of = usage_of
        self._known: dict[tuple[object, ...], list[Target]] = {}

    def ask(self, cell: Cell, amount: int) -> tuple[Mode, int]:
        """Whether preemption could make room for one flavor resource, and the level that would be left."""
        targets = self.targets([(cell, amount)], [cell])
        if not targets:
            return Mode.NO_CANDIDATES, quota.level(cell, amount)[0]
        for target in targets:
            quota.give_all(target.record.usage)
        level = quota.level(cell, amount)[0]
        for target in targets:
            quota.take_all(target.record.usage)
        own = any(target.record.node is self._live.node for target in targets)
        return (Mode.PREEMPT if own else Mode.RECLAIM), level

    def targets(
        self, requested: Amounts, contested: Sequence[Cell], *, placed: Callable[[], bool] | None = None
    ) -> list[Target]:
        """The workloads to evict so that all of `requested` fits; empty where none would do."""
        key: tuple[object, ...] = (tuple(requested), tuple(contested))
        known = self._known.get(key) if placed is None else None
        if known is not None:
            return known
        problem = Problem(
            live=self._live,
            workload=self._workload,
            priority=self._priority,
            requested=requested,
            contested=tuple(contested),
            keys=tuple(cell.key for cell in contested),
            lives=self._lives,
            settings=self._settings,
            excluded=self._excluded,
            usage_of=self._usage_of,
            placed=placed,
        )
        found = fair.find(problem) if self._settings.fair_sharing else classical.find(problem)
        if placed is None:
            self._known[key] = found
        return found
