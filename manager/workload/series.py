# SPDX-License-Identifier: Apache-2.0
"""Counters and histograms of Workloads by their queues (`docs/spec/kueue-api.md §7`).

Most have a sibling by LocalQueue. The series of a queue end with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

Metric = TypeVar("Metric", Counter, Histogram)

_WAIT_BUCKETS: Final = (1.0, *(2.5 * 2**power for power in range(13)))
_LONG_BUCKETS: Final = (1.0, *(2.5 * 2**power for power in range(15)))
_ROLE: Final = "replica_role"
_QUEUE: Final = ("cluster_queue",)
_LOCAL_QUEUE: Final = ("name", "namespace")
_CLASS: Final = ("priority_class",)
_REASONS: Final = ("reason", "underlying_cause")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """The queues of a Workload, as they are in labels."""

    cluster_queue: str
    namespace: str
    local_queue: str
    by_local_queue: bool
    """Whether series of that LocalQueue are wanted."""


class QueueSeries(Generic[Metric]):
    """One series by ClusterQueue, and its sibling by LocalQueue if it has one."""

    def __init__(self, of_queues: Metric, of_local_queues: Metric | None) -> None:
        self._of_queues: Metric = of_queues
        self._of_local_queues: Metric | None = of_local_queues
        self._known: dict[str, set[tuple[str, ...]]] = {}
        self._known_local: dict[tuple[str, str], set[tuple[str, ...]]] = {}

    def of(self, place: QueuePlace, *labels: str, role: str) -> Iterator[Metric]:
        """What is counted up, or observes."""
        values = (place.cluster_queue, *labels, role)
        self._known.setdefault(place.cluster_queue, set()).add(values)
        yield self._of_queues.labels(*values)
        if self._of_local_queues is not None and place.by_local_queue:
            local = (place.local_queue, place.namespace, *labels, role)
            self._known_local.setdefault((place.local_queue, place.namespace), set()).add(local)
            yield self._of_local_queues.labels(*local)

    def forget_cluster_queue(self, name: str) -> None:
        """The series of a ClusterQueue end."""
        for values in self._known.pop(name, ()):
            self._of_queues.remove(*values)

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """The series of a LocalQueue end."""
        for values in self._known_local.pop((name, namespace), ()):
            if self._of_local_queues is not None:
                self._of_local_queues.remove(*values)


class WorkloadSeries:
    """All series of Workloads by queue."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._all: list[QueueSeries[Counter] | QueueSeries[Histogram]] = []
        self.finished = self._counter("finished_workloads", "Workloads that finished.")
        self.quota_reserved = self._counter("quota_reserved_workloads", "Reservations.")
        self.admitted = self._counter("admitted_workloads", "Admissions.")
        self._subtree_admitted = Counter(
            "kueue_cohort_subtree_admitted_workloads",
            "Admissions in its tree.",
            ("cohort", *_CLASS, _ROLE),
            registry=registry,
        )
        self._cohorts: dict[str, set[tuple[str, ...]]] = {}
        self.evicted = self._counter("evicted_workloads", "Evictions.", (*_REASONS, *_CLASS))
        self.evicted_once = self._counter(
            "evicted_workloads_once",
            "First evictions of a workload for a reason.",
            (*_REASONS, *_CLASS),
            sibling=False,
        )
        self.replaced_slices = self._counter(
            "replaced_workload_slices", "Slices of elastic jobs that a newer one replaced.", (), sibling=False
        )
        self.quota_reserved_wait = self._histogram(
            "quota_reserved_wait_time_seconds", "From creation or requeue to the reservation."
        )
        self.admission_wait = self._histogram(
            "admission_wait_time_seconds", "From creation or requeue to admission.", long=True
        )
        self.checks_wait = self._histogram("admission_checks_wait_time_seconds", "From the reservation to admission.")
        self.ready_wait = self._histogram("ready_wait_time_seconds", "From creation or requeue until pods are ready.")
        self.admitted_until_ready = self._histogram(
            "admitted_until_ready_wait_time_seconds", "From admission until pods are ready."
        )
        self.execution_time = self._histogram("execution_time_seconds", "From admission to the end.", long=True)
        self.ready_until_evicted = self._histogram(
            "pods_ready_to_evicted_time_seconds", "From ready pods to the eviction.", _REASONS, sibling=False
        )
        self.eviction_latency = self._histogram(
            "workload_eviction_latency_seconds",
            "From the eviction until the quota is released.",
            ("reason",),
            sibling=False,
        )

    def subtree_admitted(self, cohorts: Iterable[str], *labels: str, role: str) -> Iterator[Counter]:
        """What counts the admissions in the trees of these cohorts."""
        for cohort in cohorts:
            values = (cohort, *labels, role)
            self._cohorts.setdefault(cohort, set()).add(values)
            yield self._subtree_admitted.labels(*values)

    def forget_cohort(self, name: str) -> None:
        """A cohort is gone; one that ClusterQueues still name begins anew."""
        for values in self._cohorts.pop(name, ()):
            self._subtree_admitted.remove(*values)

    def forget_cluster_queue(self, name: str) -> None:
        """A ClusterQueue is gone."""
        for series in self._all:
            series.forget_cluster_queue(name)

    def forget_local_queue(self, namespace: str, name: str) -> None:
        """A LocalQueue is gone."""
        for series in self._all:
            series.forget_local_queue(namespace, name)

    def _counter(
        self, name: str, text: str, labels: Sequence[str] = _CLASS, *, sibling: bool = True
    ) -> QueueSeries[Counter]:
        of_queues = Counter(f"kueue_{name}", text, (*_QUEUE, *labels, _ROLE), registry=self._registry)
        local = (
            Counter(f"kueue_local_queue_{name}", text, (*_LOCAL_QUEUE, *labels, _ROLE), registry=self._registry)
            if sibling
            else None
        )
        made = QueueSeries(of_queues, local)
        self._all.append(made)
        return made

    def _histogram(
        self, name: str, text: str, labels: Sequence[str] = _CLASS, *, sibling: bool = True, long: bool = False
    ) -> QueueSeries[Histogram]:
        """`long` is one of waits and runs that may take a day; those by LocalQueue have fewer buckets."""
        of_queues = Histogram(
            f"kueue_{name}",
            text,
            (*_QUEUE, *labels, _ROLE),
            buckets=_LONG_BUCKETS if long else _WAIT_BUCKETS,
            registry=self._registry,
        )
        local = (
            Histogram(
                f"kueue_local_queue_{name}",
                text,
                (*_LOCAL_QUEUE, *labels, _ROLE),
                buckets=_WAIT_BUCKETS,
                registry=self._registry,
            )
            if sibling
            else None
        )
        made = QueueSeries(of_queues, local)
        self._all.append(made)
        return made
