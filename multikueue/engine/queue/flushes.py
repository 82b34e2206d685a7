# SPDX-License-Identifier: Apache-2.0
"""When the inadmissible workloads of a tree are evaluated again: after something was freed in it.

A tree that was quiet for a window is flushed almost at once, so that freed quota is not left idle. After that it is
flushed once per window, however much is freed; and sooner while an allowance lasts that all trees share. A flush is
paid for by the number of heads that are evaluated after it (`docs/spec/engine.md §1.7`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from multikueue.engine.cache.tree import QuotaNode


class FlushRequests:
    """Trees to flush, and when."""

    def __init__(
        self,
        *,
        window_seconds: float,
        gather_seconds: float,
        early_seconds: float,
        heads_of: Callable[[QuotaNode], int],
    ) -> None:
        """Flushes sooner than a window after the last one are `early_seconds` apart.

        `heads_of` is how many heads are evaluated after a flush of the tree of this root.
        """
        self._window = timedelta(seconds=window_seconds)
        self._gather = timedelta(seconds=min(gather_seconds, window_seconds))
        self._early = timedelta(seconds=min(early_seconds, window_seconds))
        self._heads_of = heads_of
        self.allowance = 0.0
        """How many heads a second may be evaluated for early flushes; none as in Kueue."""
        self._left = 0.0
        self._counted: datetime | None = None
        self._due: dict[tuple[bool, str], datetime] = {}
        self._done: dict[tuple[bool, str], datetime] = {}

    def request(self, node: QuotaNode, now: datetime) -> None:
        """Request a flush of the whole tree of a node; ignored for a node that is cut off."""
        if node.cut_off:
            return
        root = node.root()
        key = (root.is_cohort, root.name)
        if key in self._due:
            return
        soon, done = now + self._gather, self._done.get(key)
        if done is None or done + self._window <= soon:
            self._due[key] = soon
        elif self._take_allowance(root, now):
            self._due[key] = max(soon, done + self._early)
        else:
            self._due[key] = done + self._window

    def next(self) -> datetime | None:
        """When the next flush is due."""
        return min(self._due.values(), default=None)

    def take(self, until: datetime | None, now: datetime) -> list[tuple[bool, str]]:
        """The flushes that are due (all with None), as (is a cohort, name); they are no longer requested."""
        if not self._due:
            return []
        due = sorted(key for key, moment in self._due.items() if until is None or moment <= until)
        if due:
            self._done = {key: moment for key, moment in self._done.items() if moment + self._window > now}
        for key in due:
            self._done[key] = min(self._due.pop(key), now)
        return due

    def _take_allowance(self, root: QuotaNode, now: datetime) -> bool:
        """Pay for an early flush; what is not used within a second is lost."""
        if not self.allowance:
            return False
        passed = 1.0 if self._counted is None else max(0.0, (now - self._counted).total_seconds())
        self._left = min(self.allowance, self._left + passed * self.allowance)
        self._counted = now
        heads = self._heads_of(root)
        if heads > self._left:
            return False
        self._left -= heads
        return True
