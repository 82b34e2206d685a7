# SPDX-License-Identifier: Apache-2.0
"""What is counted and told when a Workload passes from one state to the next.

Owns the metrics (`docs/spec/kueue-api.md §7`) and the events (`docs/spec/engine.md §7.10`, §9.4) that follow from a
change of status. Every write of status goes through one place and is told here once, so that nothing is counted twice,
whoever wrote.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Protocol

from manager.admission_writes import admitted_event
from manager.metrics import Metrics
from manager.workload_status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.clock import Clock
from multikueue.core.timestamps import parse_time
from multikueue.kube.events import Reference

_log = logging.getLogger(__name__)


class Recorder(Protocol):
    """Where events go."""

    def event(self, about: Reference, type: str, reason: str, message: str) -> None:
        """Record one."""


class Transitions:
    """Counts and tells what a write changed."""

    def __init__(self, metrics: Metrics, recorder: Recorder, *, clock: Clock) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock

    def written(self, workload: JsonObject, before: Status, after: Status) -> None:
        """A write of ours took the status from `before` to `after`."""
        metrics, now = self._metrics, self._clock.now()
        queue = (after.admission or before.admission or {}).get("clusterQueue") or ""
        labels = (queue, priority_class_of(workload), metrics.role)
        if _newly(before, after, WorkloadCondition.QUOTA_RESERVED):
            metrics.quota_reserved.labels(*labels).inc()
            metrics.quota_reserved_wait.labels(*labels).observe(seconds_since(queued_at(workload, before), now))
        if _newly(before, after, WorkloadCondition.ADMITTED):
            self._admitted(workload, before, after, labels=labels, now=now)
        evicted = after.condition(WorkloadCondition.EVICTED)
        if evicted is not None and _newly(before, after, WorkloadCondition.EVICTED):
            causes = {eviction.underlying_cause for eviction in set(after.evictions) - set(before.evictions)}
            metrics.evicted.labels(queue, evicted.reason, "".join(sorted(causes)), labels[1], metrics.role).inc()
            self._recorder.event(Reference.of(workload), "Normal", f"EvictedDueTo{evicted.reason}", evicted.message)
            name = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
            _log.info("%s evicted from %s: %s: %s", name, queue, evicted.reason, evicted.message)
        if _newly(before, after, WorkloadCondition.FINISHED):
            metrics.finished.labels(*labels).inc()
            admitted = before.condition(WorkloadCondition.ADMITTED)
            if admitted is not None and admitted.status == "True":
                metrics.execution_time.labels(*labels).observe(seconds_since(admitted.last_transition_time, now))

    def _admitted(
        self, workload: JsonObject, before: Status, after: Status, *, labels: tuple[str, str, str], now: datetime
    ) -> None:
        metrics = self._metrics
        metrics.admitted.labels(*labels).inc()
        metrics.admission_wait.labels(*labels).observe(seconds_since(queued_at(workload, before), now))
        metrics.checks_wait.labels(*labels).observe(reservation_age(after, now))
        queue, namespace = workload["spec"].get("queueName") or "", workload["metadata"]["namespace"]
        text = admitted_event(labels[0], waited=reservation_age(after, now))
        self._recorder.event(Reference.of(workload), "Normal", "Admitted", text)
        metrics.local_admitted.labels(queue, namespace, labels[1], metrics.role).inc()


def priority_class_of(workload: JsonObject) -> str:
    """The name of its priority class, for labels of metrics."""
    reference: JsonObject = workload["spec"].get("priorityClassRef") or {}
    return reference.get("name") or ""


def queued_at(workload: JsonObject, status: Status) -> datetime:
    """From when the wait for quota counts: the requeue, or else the creation (`docs/spec/engine.md §9.4`)."""
    requeued = status.condition(WorkloadCondition.REQUEUED)
    if requeued is not None:
        return requeued.last_transition_time
    return parse_time(workload["metadata"]["creationTimestamp"])


def reservation_age(status: Status, now: datetime) -> float:
    """Seconds since quota was reserved; 0 without a reservation."""
    reserved = status.condition(WorkloadCondition.QUOTA_RESERVED)
    return 0.0 if reserved is None or reserved.status != "True" else seconds_since(reserved.last_transition_time, now)


def seconds_since(moment: datetime, now: datetime) -> float:
    """Seconds from `moment` to `now`, none when clocks differ."""
    return max(0.0, (now - moment).total_seconds())


def _newly(before: Status, after: Status, kind: WorkloadCondition) -> bool:
    return after.is_true(kind) and not before.is_true(kind)
