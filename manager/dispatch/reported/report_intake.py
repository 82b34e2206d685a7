# SPDX-License-Identifier: Apache-2.0
"""The accepted report of each cluster.

A report is accepted at once after a second without one, else one per second, always the last. An agent may write its
report as often as it likes, and each accepted one may reconcile every waiting workload and write the quota of queues:
this bounds the load that one cluster can cause, whoever runs its agent.
"""

from __future__ import annotations

from typing import Final

from multikueue.api.meta import JsonObject

INTERVAL_SECONDS: Final = 1.0


class ReportIntake:
    """The reports of all clusters; `now` is of a monotonic clock."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[float, JsonObject]] = {}

    def offer(self, cluster: str, status: JsonObject, *, now: float) -> float | None:
        """Accept the report, or return the seconds after which to offer it again."""
        known = self._taken.get(cluster)
        if known is not None:
            at, current = known
            if status == current:
                return None
            # A missing report is no load: a mailbox was removed.
            if status and now - at < INTERVAL_SECONDS:
                return INTERVAL_SECONDS - (now - at)
        self._taken[cluster] = (now, status)
        return None

    def latest(self, cluster: str) -> JsonObject:
        """The last accepted report; empty while there is none."""
        known = self._taken.get(cluster)
        return {} if known is None else known[1]

    def forget(self, cluster: str) -> None:
        """The cluster is gone."""
        self._taken.pop(cluster, None)
