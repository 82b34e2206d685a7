# SPDX-License-Identifier: Apache-2.0
"""How fast the work of one lost cluster is sent elsewhere.

Owns a turn for each workload: some at once, the others one after another, so that the loss of a cluster with a thousand
workloads is neither a storm on the management cluster nor on those that take them. Nothing of it outlives the
process: a new leader paces anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from multikueue.core.keys import Key


class Pacer:
    """Turns by cluster."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._between = timedelta(seconds=1.0 / per_second)
        self._ahead = self._between * (burst - 1)
        self._next: dict[str, datetime] = {}
        self._turns: dict[Key, tuple[str, datetime]] = {}

    def turn(self, cluster: str, workload: Key, now: datetime) -> float:
        """The seconds until the workload's turn; 0 and less, and it has had it."""
        known = self._turns.get(workload)
        if known is None or known[0] != cluster:
            at = max(now - self._ahead, self._next.get(cluster, now - self._ahead))
            self._next[cluster] = at + self._between
            known = self._turns[workload] = (cluster, at)
        left = (known[1] - now).total_seconds()
        if left <= 0:
            del self._turns[workload]
        return max(0.0, left)

    def leave(self, workload: Key) -> None:
        """It does not leave after all, or is gone."""
        self._turns.pop(workload, None)
