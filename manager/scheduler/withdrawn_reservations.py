# SPDX-License-Identifier: Apache-2.0
"""Reservations that preemptors have taken from Workloads before they were written (ADR 0026).

Pure: times are passed in, in seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from multikueue.core.keys import Key

_AGAIN_SECONDS: Final = 10.0


class WithdrawnReservations:
    """Which Workloads have lost a reservation lately.

    None loses one twice in ten seconds: two Workloads that take quota from each other would do so in each cycle, and
    nothing would be written. The second time it is evicted, as one that was written.
    """

    def __init__(self) -> None:
        self._lately: OrderedDict[Key, float] = OrderedDict()

    def may_withdraw(self, workload: Key, now: float) -> bool:
        """Whether this Workload has lost none within the last ten seconds."""
        while self._lately and next(iter(self._lately.values())) <= now - _AGAIN_SECONDS:
            self._lately.popitem(last=False)
        return workload not in self._lately

    def add(self, workload: Key, now: float) -> None:
        """A reservation of this Workload was withdrawn."""
        self._lately[workload] = now
        self._lately.move_to_end(workload)
