# SPDX-License-Identifier: Apache-2.0
"""The gauges of ClusterQueues and LocalQueues (`docs/spec/kueue-api.md §7`), computed when they are read.

So they are exact at each scrape, however seldom statuses are written, and a queue that is gone has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from manager.cache.views import View
from multikueue.core.keys import Key
from multikueue.engine.decisions import ClusterQueueState, LocalQueueState

_STATES: Final = ("pending", "active", "terminating")


class QueueMetrics(Collector):
    """Gauges of every queue in the two views."""

    def __init__(
        self,
        cluster_queues: View,
        local_queues: View,
        *,
        state: Callable[[Key], ClusterQueueState],
        local_state: Callable[[Key], LocalQueueState | None],
        role: Callable[[], str],
    ) -> None:
        """`local_state` is None for a LocalQueue that has no figures; `role` is the label `replica_role`."""
        self._cluster_queues = cluster_queues
        self._local_queues = local_queues
        self._state = state
        self._local_state = local_state
        self._role = role

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All of them."""
        yield from self._of_cluster_queues(self._role())
        yield from self._of_local_queues(self._role())

    def _of_cluster_queues(self, role: str) -> list[GaugeMetricFamily]:
        queue = ("cluster_queue", "replica_role")
        by_status = ("cluster_queue", "status", "replica_role")
        pending = GaugeMetricFamily("kueue_pending_workloads", "Pending workloads.", labels=by_status)
        reserving = GaugeMetricFamily("kueue_reserving_active_workloads", "Workloads that hold quota.", labels=queue)
        admitted = GaugeMetricFamily("kueue_admitted_active_workloads", "Admitted, unfinished workloads.", labels=queue)
        status = GaugeMetricFamily(
            "kueue_cluster_queue_status", "1 for the state that the ClusterQueue is in.", labels=by_status
        )
        for row in self._cluster_queues.rows():
            state = self._state(row.key)
            name = row.key.name
            pending.add_metric((name, "active", role), state.pending - state.inadmissible)
            pending.add_metric((name, "inadmissible", role), state.inadmissible)
            reserving.add_metric((name, role), state.reserving)
            admitted.add_metric((name, role), state.admitted)
            shown = "terminating" if row.deleting else "active" if state.active else "pending"
            for each in _STATES:
                status.add_metric((name, each, role), each == shown)
        return [pending, reserving, admitted, status]

    def _of_local_queues(self, role: str) -> list[GaugeMetricFamily]:
        queue = ("name", "namespace", "replica_role")
        pending = GaugeMetricFamily(
            "kueue_local_queue_pending_workloads",
            "Pending workloads.",
            labels=("name", "namespace", "status", "replica_role"),
        )
        reserving = GaugeMetricFamily(
            "kueue_local_queue_reserving_active_workloads", "Workloads that hold quota.", labels=queue
        )
        admitted = GaugeMetricFamily(
            "kueue_local_queue_admitted_active_workloads", "Admitted, unfinished workloads.", labels=queue
        )
        status = GaugeMetricFamily(
            "kueue_local_queue_status",
            "1 for the state that the LocalQueue is in.",
            labels=("name", "namespace", "active", "replica_role"),
        )
        for row in self._local_queues.rows():
            state = self._local_state(row.key)
            if state is None:
                continue
            name, namespace = row.key.name, row.key.namespace
            pending.add_metric((name, namespace, "active", role), state.pending)
            reserving.add_metric((name, namespace, role), state.reserving)
            admitted.add_metric((name, namespace, role), state.admitted)
            for value in ("True", "False"):
                status.add_metric((name, namespace, value, role), state.active is (value == "True"))
        return [pending, reserving, admitted, status]
