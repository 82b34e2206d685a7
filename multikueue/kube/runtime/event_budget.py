# SPDX-License-Identifier: Apache-2.0
"""How many Normal events of all objects are written.

Each event costs an API server as much as a small write. Those of some reasons, the ordinary steps, say what conditions
of the object show as well, so that they get a small part of the budget.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from multikueue.core.clock import Clock
from multikueue.kube.rest.limiter import Limiter

_STEPS_QPS: Final = 0.1
_STEPS_BURST: Final = 0.5


class EventBudget:
    """`burst` Normal events at once, then `qps` a second; of these, ordinary steps are half at once, then a tenth."""

    def __init__(self, *, qps: float, burst: int, steps: Set[str], clock: Clock) -> None:
        """`steps` are the reasons of ordinary steps."""
        self._steps = frozenset(steps)
        self._all = Limiter(qps=qps, burst=burst, clock=clock)
        self._of_steps = Limiter(qps=qps * _STEPS_QPS, burst=max(1, int(burst * _STEPS_BURST)), clock=clock)

    def is_step(self, reason: str) -> bool:
        """Whether it is the reason of an ordinary step."""
        return reason in self._steps

    def take(self, reason: str) -> bool:
        """Whether an event of that reason may be written; it counts as written then."""
        return (reason not in self._steps or self._of_steps.take()) and self._all.take()
