# SPDX-License-Identifier: Apache-2.0
"""Requests to take parked workloads back (`docs/spec/engine.md §1.7`).

Owns the batch window: the first request for a tree starts it, later ones in it change nothing. Carrying out is the
engine's.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from multikueue.engine.tree import Node


class FlushRequests:
    """Trees that are to be flushed, and when."""

    def __init__(self, window_seconds: float) -> None:
        self._window = timedelta(seconds=window_seconds)
        self._due: dict[tuple[bool, str], datetime] = {}

    def request(self, node: Node, now: datetime) -> None:
        """Ask for the whole tree of a node; trees with a cycle are ignored."""
        if node.in_cycle:
            return
        root = node.root()
        self._due.setdefault((root.is_cohort, root.name), now + self._window)

    def next(self) -> datetime | None:
        """When something is due next."""
        return min(self._due.values(), default=None)

    def take(self, now: datetime | None) -> list[tuple[bool, str]]:
        """What is due, whether a cohort or a queue and its name; everything with None. It is requested no more."""
        if not self._due:
            return []
        due = sorted(key for key, moment in self._due.items() if now is None or moment <= now)
        for key in due:
            del self._due[key]
        return due
