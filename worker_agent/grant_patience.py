# SPDX-License-Identifier: Apache-2.0
"""How long an assignment that was granted may wait for capacity before it is refused.

The hub grants by what the cluster has reported as free. The pods of removed work may take a while to end, and the
engine of the worker's queues to give their quota to the next Workload.
"""

from __future__ import annotations

from typing import Final

from multikueue.api.remoteassignment import Intent
from multikueue.core.clock import Clock
from multikueue.dispatch.worker.assignment_state import AssignmentFacts

GRANT_PATIENCE_SECONDS: Final = 10.0


class GrantPatience:
    """Since when each granted assignment has been short of capacity."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[int, float]] = {}

    def left(self, assignment: AssignmentFacts) -> float:
        """The seconds left for an assignment that is short of capacity now; all of them before it is granted."""
        if assignment.intent is not Intent.RUN:
            self.forget(assignment.name)
            return GRANT_PATIENCE_SECONDS
        now = self._clock.monotonic()
        epoch, since = self._since.get(assignment.name, (0, 0.0))
        if epoch != assignment.epoch:
            since = now
            self._since[assignment.name] = (assignment.epoch, now)
        return since + GRANT_PATIENCE_SECONDS - now

    def forget(self, assignment: str) -> None:
        """The assignment is gone."""
        self._since.pop(assignment, None)
