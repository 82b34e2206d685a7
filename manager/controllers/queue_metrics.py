# SPDX-License-Identifier: Apache-2.0
"""The gauges of ClusterQueues and LocalQueues (`docs/spec/kueue-api.md §7`), computed when they are read.

So they are exact at each scrape, however seldom statuses are written, and a queue that is gone has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from manager.cache.ended_workloads import finished_in
from manager.cache.indexes import CLUSTER_QUEUE_INDEX
from manager.cache.views import View
from manager.controllers import quota_metrics
from manager.controllers.gauges import Gauges
from multikueue.core.keys import Key
from multikueue.engine.decisions import ClusterQueueState, LocalQueueState
from multikueue.engine.engine import Engine

_STATES: Final = ("pending", "active", "terminating")
_LOCAL_STATES: Final = ("True", "False", "Unknown")


class QueueMetrics(Collector):
    """Gauges of every queue in the two views."""

    def __init__(
        self,
        cluster_queues: View,
        local_queues: View,
        workloads: View,
        *,
        engine: Callable[[], Engine],
        state: Callable[[Key], ClusterQueueState],
        local_state: Callable[[Key], LocalQueueState | None],
        by_local_queue: Callable[[Key], bool],
        with_quota: bool,
        with_cohorts: bool,
        role: Callable[[], str],
    ) -> None:
        """`local_state` is None for a LocalQueue that has no figures; `role` is the label `replica_role`.

        `by_local_queue` tells of which LocalQueues there are gauges; those of quotas and of cohorts are optional.
        """
        self._cluster_queues = cluster_queues
        self._local_queues = local_queues
        self._workloads = workloads
        self._engine = engine
        self._state = state
        self._local_state = local_state
        self._by_local_queue = by_local_queue
        self._with_quota = with_quota
        self._with_cohorts = with_cohorts
        self._role = role

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All of them."""
        gauges, engine = Gauges(self._role()), self._engine()
        figures = {each.name: each for each in engine.queue_figures()}
        finished = {row.key: finished_in(self._workloads, row.key) for row in self._local_queues.rows()}
        inadmissible = {key: count for each in figures.values() for key, count in each.inadmissible.items()}
        targets: dict[Key, str] = {}
        for row in self._cluster_queues.rows():
            state, more = self._state(row.key), figures.get(row.key.name)
            queues = self._local_queues.indexed(CLUSTER_QUEUE_INDEX, row.key.name)
            targets |= dict.fromkeys(queues, row.key.name)
            count = sum(finished.get(key, 0) for key in queues)
            _add_cluster_queue(gauges, state, deleting=row.deleting, finished=count)
            if more is not None:
                quota_metrics.add_pending(gauges, more)
                if self._with_quota:
                    quota_metrics.add_quota(gauges, more, state)
                if self._with_cohorts:
                    quota_metrics.add_place(gauges, more)
        for row in self._local_queues.rows():
            local = self._local_state(row.key) if self._by_local_queue(row.key) else None
            if local is not None:
                blocked = inadmissible.get(row.key, 0) if local.active else local.pending
                _add_local_queue(gauges, local, inadmissible=blocked, finished=finished[row.key])
                quota_metrics.add_consumed(gauges, local, cluster_queue=targets.get(row.key, ""))
        for cohort in engine.cohort_figures() if self._with_cohorts else ():
            quota_metrics.add_cohort(gauges, cohort)
        yield from gauges.families()


def _add_cluster_queue(gauges: Gauges, state: ClusterQueueState, *, deleting: bool, finished: int) -> None:
    queue = {"cluster_queue": state.name}
    blocked = state.inadmissible if state.active else state.pending
    waiting = {"active": state.pending - blocked, "inadmissible": blocked}
    for status, count in waiting.items():
        gauges.add("pending_workloads", "Pending workloads.", count, **queue, status=status)
    gauges.add("reserving_active_workloads", "Workloads that hold quota.", state.reserving, **queue)
    gauges.add("admitted_active_workloads", "Admitted, unfinished workloads.", state.admitted, **queue)
    gauges.add("finished_workloads", "Finished workloads that are still stored.", finished, **queue)
    shown = "terminating" if deleting else "active" if state.active else "pending"
    for status in _STATES:
        text = "1 for the state that the ClusterQueue is in."
        gauges.add("cluster_queue_status", text, status == shown, **queue, status=status)


def _add_local_queue(gauges: Gauges, state: LocalQueueState, *, inadmissible: int, finished: int) -> None:
    queue = {"name": state.key.name, "namespace": state.key.namespace}
    waiting = {"active": max(0, state.pending - inadmissible), "inadmissible": inadmissible}
    for status, count in waiting.items():
        gauges.add("local_queue_pending_workloads", "Pending workloads.", count, **queue, status=status)
    gauges.add("local_queue_reserving_active_workloads", "Workloads that hold quota.", state.reserving, **queue)
    gauges.add("local_queue_admitted_active_workloads", "Admitted, unfinished workloads.", state.admitted, **queue)
    gauges.add("local_queue_finished_workloads", "Finished workloads that are still stored.", finished, **queue)
    for active in _LOCAL_STATES:
        text = "1 for the state that the LocalQueue is in."
        gauges.add("local_queue_status", text, str(state.active) == active, **queue, active=active)
    for name, text, usage in (
        ("local_queue_resource_reservation", "Reserved.", state.reservation),
        ("local_queue_resource_usage", "Used by admitted workloads.", state.usage),
    ):
        quota_metrics.add_usage(gauges, name, text, usage, **queue)
