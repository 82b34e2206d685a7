# SPDX-License-Identifier: Apache-2.0
"""Usage that lasts for one cycle (`docs/spec/engine.md §3.9` step I and §3.10).

Owns what entries of a cycle add to the tree while later ones are looked at, and how it is taken back exactly: what a
blocked preemptor holds may be negative, which the tree does not pass on to parents.
"""

from __future__ import annotations

from multikueue.api.constants import PreemptionPolicy
from multikueue.engine import quota
from multikueue.engine.nomination import Nomination
from multikueue.engine.quota import Amounts
from multikueue.engine.settings import Settings
from multikueue.engine.tree import Cell


class CycleUsage:
    """The log of what one cycle added."""

    def __init__(self) -> None:
        self._log: list[tuple[Cell, int, bool]] = []
        self._temporary = False

    def add(self, amounts: Amounts, *, lasting: bool) -> None:
        """Use more; lasting usage stays after the cycle."""
        for cell, amount in amounts:
            quota.take(cell, amount)
            self._log.append((cell, amount, lasting))
        self._temporary = self._temporary or not lasting

    def end(self) -> None:
        """Take back what was for this cycle only."""
        if self._temporary:
            for cell, amount, _ in reversed(self._log):
                if amount >= 0:
                    quota.give(cell, amount)
                else:
                    cell.usage -= amount
            for cell, amount, lasting in self._log:
                if lasting:
                    quota.take(cell, amount)
        self._log = []
        self._temporary = False


def held_for(nomination: Nomination, settings: Settings) -> Amounts:
    """What a preemptor without candidates keeps others from taking."""
    live = nomination.live
    value = live.value
    reclaims_any = value is not None and value.preemption.reclaim_within_cohort == PreemptionPolicy.ANY
    active = settings.gates.prioritize_preemptors and live.queue.is_preemptor(nomination.pending)
    if reclaims_any and not active:
        return []
    held: Amounts = []
    for cell, amount in nomination.amounts:
        if nomination.assignment.level > 0:
            limit = cell.borrowing_limit
            held.append((cell, amount if limit is None else min(amount, cell.nominal + limit - cell.usage)))
        else:
            held.append((cell, max(0, min(amount, cell.nominal - cell.usage))))
    return held
