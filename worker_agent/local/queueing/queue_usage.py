# SPDX-License-Identifier: Apache-2.0
"""The usage of each ClusterQueue of the worker, split into assignments and other work.

The status of a ClusterQueue lags behind its Workloads, so that their difference is right only when neither has just
changed. The usage of other work is therefore computed when the status changes, and again after a quiet period; the
usage of assignments is always current. A wrong difference would make the hub dispatch too much or too little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multikueue.core.keys import Key
from multikueue.engine.resources import FlavorResource

QUIET_SECONDS: Final = 2.0
"""After this time without a change, status and Workloads are consistent."""

Amounts = Mapping[FlavorResource, int]
_NOTHING: Final[Amounts] = {}


class QueueUsage:
    """The usage of all ClusterQueues; `now` is of a monotonic clock."""

    def __init__(self) -> None:
        self._status: dict[str, Amounts] = {}
        self._others: dict[str, Amounts] = {}
        self._own: dict[Key, tuple[str, Amounts]] = {}
        self._sums: dict[str, dict[FlavorResource, int]] = {}
        self._touched: dict[str, float] = {}

    def set_status(self, queue: str, used: Amounts, *, now: float) -> bool:
        """Set the usage in the status of the queue; whether the usage of other work changed."""
        if self._status.get(queue) == used:
            return False
        self._status[queue] = used
        self._touched[queue] = now
        return self._divide(queue)

    def forget(self, queue: str) -> None:
        """Remove a queue that is gone."""
        for known in (self._status, self._others, self._touched):
            known.pop(queue, None)

    def set_own(self, workload: Key, queue: str, used: Amounts, *, now: float) -> None:
        """Set the quota that the Workload of an assignment has reserved, and in which queue."""
        before = self._own.pop(workload, ("", _NOTHING))
        if used:
            self._own[workload] = (queue, used)
        if before == (queue, used) or not (before[1] or used):
            return
        for name, amounts, sign in ((*before, -1), (queue, used, 1)):
            self._touched[name] = now
            total = self._sums.setdefault(name, {})
            for key, amount in amounts.items():
                total[key] = total.get(key, 0) + sign * amount
            if not any(total.values()):
                del self._sums[name]

    def settle(self, *, now: float) -> None:
        """Compute the usage of other work again for queues without a recent change."""
        for queue in [queue for queue, touched in self._touched.items() if now - touched >= QUIET_SECONDS]:
            del self._touched[queue]
            if queue in self._status:
                self._divide(queue)

    def own(self, queue: str) -> Amounts:
        """The usage of the queue by assignments."""
        return self._sums.get(queue, _NOTHING)

    def used(self, queue: str) -> Amounts:
        """The whole usage of the queue."""
        others, own = self._others.get(queue, _NOTHING), self.own(queue)
        return {key: others.get(key, 0) + own.get(key, 0) for key in {*others, *own}}

    def _divide(self, queue: str) -> bool:
        before, own = self._others.get(queue), self.own(queue)
        others = {key: max(0, amount - own.get(key, 0)) for key, amount in self._status[queue].items()}
        self._others[queue] = others
        return before != others
