# SPDX-License-Identifier: Apache-2.0
"""What is reported about an eviction for a preemptor that was written: a log line, a metric, and an event for both."""

from __future__ import annotations

import logging

from manager.context import ManagerContext
from multikueue.api.meta import JsonObject
from multikueue.engine.decisions import Decision, Victim
from multikueue.kube.runtime.events import Reference

_log = logging.getLogger(__name__)


def report_preemption(context: ManagerContext, decision: Decision, victim: Victim, *, evicted: JsonObject) -> None:
    """Report that `evicted` was preempted for the workload of `decision`, which may be gone by now."""
    _log.info(
        "preempted workload=%s cluster_queue=%s preemptor=%s reason=%s rule=%s",
        victim.workload,
        victim.cluster_queue,
        decision.workload,
        victim.reason,
        victim.rule,
    )
    metrics, recorder = context.metrics, context.recorder
    metrics.preempted.labels(decision.cluster_queue, str(victim.reason), metrics.role).inc()
    recorder.event(Reference.of(evicted), "Normal", "Preempted", f"{victim.message}; {victim.priorities}")
    preemptor = context.statuses.current(decision.workload)
    if preemptor is not None:
        recorder.event(
            Reference.of(preemptor),
            "Normal",
            "PreemptedWorkload",
            f"Preempted workload {victim.workload} (UID: {victim.uid}) in ClusterQueue {victim.cluster_queue};"
            f" {victim.priorities}",
        )
