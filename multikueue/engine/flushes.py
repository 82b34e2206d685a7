# SPDX-License-Identifier: Apache-2.0
"""Requests to take parked workloads back (`docs/spec/engine.md §1.7`).

Owns when each tree is flushed: a tree that was quiet for a window almost at once, so that room which came free is not
left idle, and after that at most once a window, however much comes free. Carrying out is the engine's.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from multikueue.engine.tree import Node


class FlushRequests:
    """Trees that are to be flushed, and when."""

    def __init__(self, *, window_seconds: float, gather_seconds: float) -> None:
        self._window = timedelta(seconds=window_seconds)
        self._gather = timedelta(seconds=min(gather_seconds, window_seconds))
        self._due: dict[tuple[bool, str], datetime] = {}
        self._done: dict[tuple[bool, str], datetime] = {}

    def request(self, node: Node, now: datetime) -> None:
        """Ask for the whole tree of a node; trees with a cycle are ignored."""
        if node.in_cycle:
            return
        root = node.root()
        key = (root.is_cohort, root.name)
        if key in self._due:
            return
        soon, done = now + self._gather, self._done.get(key)
        self._due[key] = soon if done is None else max(soon, done + self._window)

    def next(self) -> datetime | None:
        """When something is due next."""
        return min(self._due.values(), default=None)

    def take(self, until: datetime | None, now: datetime) -> list[tuple[bool, str]]:
        """What is due, whether a cohort or a queue and its name; everything with None. It is requested no more."""
        if not self._due:
            return []
        due = sorted(key for key, moment in self._due.items() if until is None or moment <= until)
        if due:
            self._done = {key: moment for key, moment in self._done.items() if moment + self._window > now}
        for key in due:
            self._done[key] = min(self._due.pop(key), now)
        return due
