# SPDX-License-Identifier: Apache-2.0
"""Metrics and events of a Workload's transition from one state to the next.

Metrics are those of `docs/spec/kueue-api.md §7`, events those of `docs/spec/engine.md §7.10` and §9.4. Every status
write passes here once, whoever made it, so that nothing is counted twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Protocol

from prometheus_client import Counter, Histogram

from manager.metrics import ManagerMetrics
from manager.scheduler.admission_writes import admitted_event
from manager.workload.series import QueuePlace
from manager.workload.status import Status
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import FinishedReason, WorkloadCondition, WorkloadEvent
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import Clock
from multikueue.core.conditions import TRUE
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.hub import messages
from multikueue.kube.runtime.events import Reference

_log = logging.getLogger(__name__)

MOST_CLASSES: Final = 256
"""More priority classes have no series of their own."""
OTHER_CLASS: Final = "other"


class Recorder(Protocol):
    """A recorder of events."""

    def event(self, about: Reference, type: str, reason: str, message: str) -> None:
        """Record one event."""


class MeasuredPlaces(Protocol):
    """Of which LocalQueues and cohorts there are metrics."""

    def measures(self, key: Key) -> bool:
        """Whether there are metrics of that LocalQueue."""

    def cohorts_above(self, cluster_queue: str) -> tuple[str, ...]:
        """The cohorts of a ClusterQueue that there are metrics of, up to their root."""


class Transitions:
    """Counts and records what a write changed."""

    def __init__(
        self,
        metrics: ManagerMetrics,
        recorder: Recorder,
        *,
        clock: Clock,
        measured: MeasuredPlaces | None = None,
    ) -> None:
        """`measured` says of which LocalQueues and cohorts there are metrics; without it of all LocalQueues."""
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._measured = measured
        self._classes: set[str] = set()

    def written(self, workload: JsonObject, before: Status, after: Status) -> None:
        """A write of ours took the status from `before` to `after`."""
        now, place, wanted = self._clock.now(), self._place(workload, before, after), self._class(workload)
        series, role = self._metrics.workloads, self._metrics.role
        if _newly(before, after, WorkloadCondition.QUOTA_RESERVED):
            waited = seconds_since(queued_at(workload, before), now)
            _count(series.quota_reserved.of(place, wanted, role=role))
            _observe(series.quota_reserved_wait.of(place, wanted, role=role), waited)
        if _newly(before, after, WorkloadCondition.ADMITTED):
            self._admitted(workload, before, after, place=place, now=now)
        if _newly(before, after, WorkloadCondition.PODS_READY):
            self._ready(workload, before, after, place=place, now=now)
        if _newly(before, after, WorkloadCondition.EVICTED) and before.is_true(WorkloadCondition.QUOTA_RESERVED):
            self._evicted(workload, before, after, place=place, now=now)
        self._released(before, after, place=place, now=now)
        waits = _waits_for_cluster(after)
        if waits and not _waits_for_cluster(before):
            for about in concerned(workload):
                self._recorder.event(about, "Normal", WorkloadEvent.WAITING_FOR_CLUSTER, waits)
        if _newly(before, after, WorkloadCondition.FINISHED):
            self._finished(workload, before, after, place=place, now=now)

    def _class(self, workload: JsonObject) -> str:
        """The label of its priority class. A Workload may name any, so that only the first ones have their names."""
        name = priority_class_of(workload)
        if name not in self._classes and len(self._classes) >= MOST_CLASSES:
            return OTHER_CLASS
        self._classes.add(name)
        return name

    def _place(self, workload: JsonObject, before: Status, after: Status) -> QueuePlace:
        namespace, name = workload["metadata"]["namespace"], workload["spec"].get("queueName") or ""
        return QueuePlace(
            cluster_queue=(after.admission or before.admission or {}).get("clusterQueue") or "",
            namespace=namespace,
            local_queue=name,
            by_local_queue=self._measured is None or self._measured.measures(Key(namespace, name)),
        )

    def _admitted(
        self, workload: JsonObject, before: Status, after: Status, *, place: QueuePlace, now: datetime
    ) -> None:
        series, role, wanted = self._metrics.workloads, self._metrics.role, self._class(workload)
        _count(series.admitted.of(place, wanted, role=role))
        if self._measured is not None:
            _count(series.subtree_admitted(self._measured.cohorts_above(place.cluster_queue), wanted, role=role))
        _observe(series.admission_wait.of(place, wanted, role=role), seconds_since(queued_at(workload, before), now))
        if after.checks:
            _observe(series.checks_wait.of(place, wanted, role=role), reservation_age(after, now))
        text = admitted_event(place.cluster_queue, waited=reservation_age(after, now))
        self._recorder.event(Reference.of(workload), "Normal", "Admitted", text)

    def _ready(self, workload: JsonObject, before: Status, after: Status, *, place: QueuePlace, now: datetime) -> None:
        series, role, wanted = self._metrics.workloads, self._metrics.role, self._class(workload)
        admitted = after.condition(WorkloadCondition.ADMITTED)
        _observe(series.ready_wait.of(place, wanted, role=role), seconds_since(queued_at(workload, before), now))
        if admitted is not None and admitted.status == TRUE:
            ran = seconds_since(admitted.last_transition_time, now)
            _observe(series.admitted_until_ready.of(place, wanted, role=role), ran)

    def _evicted(
        self, workload: JsonObject, before: Status, after: Status, *, place: QueuePlace, now: datetime
    ) -> None:
        series, role, wanted = self._metrics.workloads, self._metrics.role, self._class(workload)
        evicted, ready = after.condition(WorkloadCondition.EVICTED), before.condition(WorkloadCondition.PODS_READY)
        if evicted is None:
            return
        known = {(each.reason, each.underlying_cause) for each in before.evictions}
        for counted in set(after.evictions) - set(before.evictions):
            why = (counted.reason, counted.underlying_cause)
            _count(series.evicted.of(place, *why, wanted, role=role))
            if why not in known:
                _count(series.evicted_once.of(place, *why, wanted, role=role))
            if ready is not None and ready.status == TRUE:
                ran = seconds_since(ready.last_transition_time, now)
                _observe(series.ready_until_evicted.of(place, *why, role=role), ran)
        self._recorder.event(Reference.of(workload), "Normal", f"EvictedDueTo{evicted.reason}", evicted.message)
        name = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
        _log.info(
            "evicted workload=%s cluster_queue=%s reason=%s message=%s",
            name,
            place.cluster_queue,
            evicted.reason,
            evicted.message,
        )

    def _released(self, before: Status, after: Status, *, place: QueuePlace, now: datetime) -> None:
        """Quota that an evicted Workload gives back."""
        evicted = before.condition(WorkloadCondition.EVICTED)
        released = before.is_true(WorkloadCondition.QUOTA_RESERVED) and not after.is_true(
            WorkloadCondition.QUOTA_RESERVED
        )
        if released and evicted is not None and evicted.status == TRUE:
            latency = self._metrics.workloads.eviction_latency
            took = seconds_since(evicted.last_transition_time, now)
            _observe(latency.of(place, evicted.reason, role=self._metrics.role), took)

    def _finished(
        self, workload: JsonObject, before: Status, after: Status, *, place: QueuePlace, now: datetime
    ) -> None:
        series, role, wanted = self._metrics.workloads, self._metrics.role, self._class(workload)
        _count(series.finished.of(place, wanted, role=role))
        finished, admitted = after.condition(WorkloadCondition.FINISHED), before.condition(WorkloadCondition.ADMITTED)
        if finished is not None and finished.reason == FinishedReason.WORKLOAD_SLICE_REPLACED:
            _count(series.replaced_slices.of(place, role=role))
        if admitted is not None and admitted.status == TRUE:
            ran = seconds_since(admitted.last_transition_time, now)
            _observe(series.execution_time.of(place, wanted, role=role), ran)


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


def _count(counters: Iterable[Counter]) -> None:
    for counter in counters:
        counter.inc()


def _observe(histograms: Iterable[Histogram], seconds: float) -> None:
    for histogram in histograms:
        histogram.observe(seconds)
