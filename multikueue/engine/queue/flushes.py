# SPDX-License-Identifier: Apache-2.0
"""Requests to flush inadmissible workloads back into the heap (`docs/spec/engine.md §1.7`).

Owns when each tree is flushed: almost at once if it was quiet for a window, so that freed capacity is not left idle;
after that at most once per window, however much is freed. The engine carries the flushes out.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from multikueue.engine.cache.tree import QuotaNode


class FlushRequests:
    """Trees to flush, and when."""

    def __init__(self, *, window_seconds: float, gather_seconds: float) -> None:
        self._window = timedelta(seconds=window_seconds)
        self._gather = timedelta(seconds=min(gather_seconds, window_seconds))
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
        self._due[key] = soon if done is None else max(soon, done + self._window)

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
