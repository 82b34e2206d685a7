# SPDX-License-Identifier: Apache-2.0
"""Reserved workloads that get a second scheduling pass for their topology (`docs/spec/engine.md §1.12`).

Owns which are eligible and the delay before each further pass.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from multikueue.api.constants import CheckState, DelayedTopology
from multikueue.core.keys import Key
from multikueue.engine.workloads import Workload

_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 30.0


class SecondPassQueue:
    """Workloads that wait for a second pass."""

    def __init__(self) -> None:
        self._ready_at: dict[Key, datetime] = {}
        self._passes: dict[Key, int] = {}

    def offer(self, workload: Workload, now: datetime) -> None:
        """Queue a workload if it is eligible, otherwise drop it."""
        if not eligible(workload):
            self.forget(workload.key)
            return
        if workload.key not in self._ready_at:
            passes = self._passes[workload.key] = self._passes.get(workload.key, 0) + 1
            seconds = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(passes - 1, 8))
            self._ready_at[workload.key] = now + timedelta(seconds=seconds)

    def forget(self, key: Key) -> None:
        """A workload no longer needs a second pass."""
        self._ready_at.pop(key, None)
        self._passes.pop(key, None)

    def take(self, now: datetime) -> list[Key]:
        """Take those whose delay is over."""
        ready = sorted(key for key, moment in self._ready_at.items() if moment <= now)
        for key in ready:
            del self._ready_at[key]
        return ready

    def next(self) -> datetime | None:
        """When the next delay is over."""
        return min(self._ready_at.values(), default=None)


def eligible(workload: Workload) -> bool:
    """Whether a workload that holds quota still needs a topology assignment, or a new one."""
    if not workload.reserved or workload.evicted or workload.admission is None:
        return False
    pod_sets = workload.admission.pod_sets
    if workload.admitted:
        return bool(workload.unhealthy_nodes) and any(pod_set.topology is not None for pod_set in pod_sets)
    return (
        bool(workload.checks)
        and all(check.state == CheckState.READY for check in workload.checks)
        and any(
            pod_set.delayed_topology == DelayedTopology.PENDING and pod_set.topology is None for pod_set in pod_sets
        )
    )
