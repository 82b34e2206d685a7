# SPDX-License-Identifier: Apache-2.0
"""What is measured of a scheduling cycle."""

from __future__ import annotations

from collections import Counter
from typing import Final

from manager.metrics import ManagerMetrics
from multikueue.engine import messages
from multikueue.engine.decisions import Cycle

_SKIPPED: Final = frozenset({messages.OVERLAPPING, messages.DEFERRED})


def report_cycle(metrics: ManagerMetrics, cycle: Cycle, *, seconds: float) -> None:
    """Count a cycle that took so long, and which preemptions it left to a later one."""
    if not cycle.decisions:
        return
    result = "success" if cycle.success else "inadmissible"
    metrics.admission_attempts.labels(result, metrics.role).inc()
    metrics.admission_attempt_duration.labels(result, metrics.role).observe(seconds)
    skipped = Counter(each.cluster_queue for each in cycle.decisions if each.message in _SKIPPED)
    metrics.preemption_skips.clear()
    for queue, count in skipped.items():
        metrics.preemption_skips.labels(queue, metrics.role).set(count)
