# SPDX-License-Identifier: Apache-2.0
"""The trees whose heads wait, because quota that was freed in them is offered to all of their workloads soon.

Workloads that are inadmissible are pending before most heads, and get no part of freed quota until the next flush of
their tree. Heads that took it meanwhile, piece by piece, would leave nothing that larger ones fit in, and be preempted
by them later (ADR 0032).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from multikueue.engine.cache.tree import QuotaNode


class HeldTrees:
    """Which trees are decided, and which are held."""

    def __init__(self) -> None:
        self._deciding: Set[QuotaNode] = frozenset()

    def decided(self, trees: Collection[QuotaNode], *, is_offered_soon: Callable[[QuotaNode], bool]) -> Set[QuotaNode]:
        """Those of the trees with heads to evaluate that are decided now.

        A tree that is not held is decided until it has no more heads to evaluate, whatever is freed meanwhile: its
        heads are evaluated one of each queue in a cycle, and each flush begins again with the first.
        """
        self._deciding = {root for root in trees if root in self._deciding or not is_offered_soon(root)}
        return self._deciding
