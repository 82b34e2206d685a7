# SPDX-License-Identifier: Apache-2.0
"""Metrics and events of a Workload's transition from one state to the next.

Metrics are those of `docs/spec/kueue-api.md §7`, events those of `docs/spec/engine.md §7.10` and §9.4. Every status
write passes here once, whoever made it, so that nothing is counted twice.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Protocol

from manager.metrics import ManagerMetrics
from manager.scheduler.admission_writes import admitted_event
from manager.workload.status import Status
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition, WorkloadEvent
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import Clock
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.hub import messages
from multikueue.kube.runtime.events import Reference

_log = logging.getLogger(__name__)


class Recorder(Protocol):
    """A recorder of events."""

    def event(self, about: Reference, type: str, reason: str, message: str) -> None:
        """Record one event."""


class Transitions:
    """Counts and records what a write changed."""

    def __init__(self, metrics: ManagerMetrics, recorder: Recorder, *, clock: Clock) -> None:
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
            for counted in set(after.evictions) - set(before.evictions):
                metrics.evicted.labels(queue, counted.reason, counted.underlying_cause, labels[1], metrics.role).inc()
            self._recorder.event(Reference.of(workload), "Normal", f"EvictedDueTo{evicted.reason}", evicted.message)
            name = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
            _log.info(
                "evicted workload=%s cluster_queue=%s reason=%s message=%s",
                name,
                queue,
                evicted.reason,
                evicted.message,
            )
        waits = _waits_for_cluster(after)
        if waits and not _waits_for_cluster(before):
            for about in concerned(workload):
                self._recorder.event(about, "Normal", WorkloadEvent.WAITING_FOR_CLUSTER, waits)
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


def concerned(workload: JsonObject) -> tuple[Reference, ...]:
    """The Workload and the job that owns it: users of either see why it waits."""
    metadata = workload["metadata"]
    owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    own = Reference.of(workload, api_version=WORKLOADS.api_version, kind=WORKLOADS.kind)
    if owner is None:
        return (own,)
    return own, Reference(owner["apiVersion"], owner["kind"], owner["name"], metadata["namespace"], owner["uid"])


def _waits_for_cluster(status: Status) -> str:
    """The message of the MultiKueue check it waits for; empty when it waits for something else."""
    pending = (check for check in status.checks if check.state is CheckState.PENDING)
    return next((check.message for check in pending if check.message.startswith(messages.WAITING)), "")


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
