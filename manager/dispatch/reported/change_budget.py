# SPDX-License-Identifier: Apache-2.0
"""How many changes of one condition of one workload a worker may cause: five at once, then one a minute.

A worker may change its report each second, and each change is a write of the Workload and an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHANGES_AT_ONCE: Final = 5
SECONDS_PER_CHANGE: Final = 60.0


@dataclass(slots=True)
class ChangeBudget:
    """What is left of it; `at` is of a monotonic clock."""

    at: float
    left: float = CHANGES_AT_ONCE

    def wait(self, now: float) -> float:
        """The seconds until the next change may be written; not above zero if it may be now."""
        self.left = min(CHANGES_AT_ONCE, self.left + (now - self.at) / SECONDS_PER_CHANGE)
        self.at = now
        return (1.0 - self.left) * SECONDS_PER_CHANGE

    def spend(self) -> None:
        """One change is written."""
        self.left -= 1.0
