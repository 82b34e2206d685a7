# SPDX-License-Identifier: Apache-2.0
"""The capacity of every worker cluster, and the workloads that wait for it.

A workload is counted on a cluster from the decision to send it there, before that is written. Waiting workloads are
planned again when capacity is released, in the order of priority and time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

from multikueue.api.constants import MAILBOX_OBJECT_NAME
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_REPORTS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity, Report, report_of
from multikueue.dispatch.worker.ledger import Demand
from multikueue.kube.runtime.quarantine import Quarantine

_AT_ONCE: Final = 16  # how many waiting workloads one end wakes: few ends release more
_NONE: Final = Report()


class CapacityCache:
    """The capacity of all clusters."""

    def __init__(
        self, *, wake: Callable[[Key], None], now: Callable[[], datetime], quarantine: Quarantine | None = None
    ) -> None:
        self._quarantine = quarantine if quarantine is not None else Quarantine()
        self._wake = wake
        self._now = now
        self._capacities: dict[str, ClusterCapacity] = {}
        self._versions: dict[str, tuple[str, datetime]] = {}
        self._where: dict[Key, frozenset[str]] = {}
        self._line: dict[Key, tuple[int, datetime]] = {}
        self._queues: dict[Key, Key | None] = {}

    def of(self, cluster: str) -> ClusterCapacity:
        """The capacity of a cluster."""
        return self._capacities.setdefault(cluster, ClusterCapacity())

    def take_report(self, cluster: str, status: JsonObject, *, version: str, now: datetime) -> datetime | None:
        """Read the report; returns when it arrived, by our clock, as the agent's may be minutes off."""
        known = self._versions.get(cluster)
        if known is not None and known[0] == version:
            return known[1]
        report = self._read(cluster, status)
        if report is None:
            self._versions.pop(cluster, None)
            self.of(cluster).replace(None)
            return None
        self._versions[cluster] = (version, now)
        before = self.of(cluster).report
        if self.of(cluster).replace(report):
            self._offer(_changed_queues(before or _NONE, report))
        return now

    def settle(
        self, workload: Key, clusters: Collection[str], demands: tuple[Demand, ...], *, queue: Key | None = None
    ) -> None:
        """Count the workload on these clusters and no others, there in the LocalQueue of that name."""
        before, after = self._where.get(workload, frozenset()), frozenset(clusters)
        for cluster in after:
            self.of(cluster).hold(workload, demands, queue=queue)
        for cluster in before - after:
            capacity = self.of(cluster)
            queue = capacity.queue_of(workload) or queue
            capacity.release(workload)
            capacity.freed_at = self._now()
        if after:
            self._where[workload] = after
        else:
            self._where.pop(workload, None)
        if before - after:
            self._offer(() if queue is None else (queue,))

    def counted(self) -> tuple[Key, ...]:
        """The workloads that are counted anywhere."""
        return tuple(self._where)

    def queue(self, workload: Key, *, priority: int, since: datetime, queue: Key | None = None) -> None:
        """Wake the workload when capacity is released, on nodes or in the LocalQueue of that name."""
        self._line[workload] = (-priority, since)
        self._queues[workload] = queue

    def leave(self, workload: Key) -> None:
        """The workload no longer waits."""
        self._line.pop(workload, None)
        self._queues.pop(workload, None)

    def _read(self, cluster: str, status: JsonObject) -> Report | None:
        """The report; None if it cannot be read, which must not stop the hub from judging the cluster."""
        try:
            report = report_of(status)
        except BadInput as error:
            self._quarantine.add("dispatch", CLUSTER_REPORTS, _report_key(cluster), error)
            return None
        self._quarantine.release("dispatch", CLUSTER_REPORTS, _report_key(cluster))
        return report

    def _offer(self, queues: Collection[Key] = ()) -> None:
        """Wake the first waiting workloads, and the first in each of those LocalQueues: their quota is not shared."""
        woken = 0
        left = dict.fromkeys(queues, _AT_ONCE)
        for key in sorted(self._line, key=lambda key: (self._line[key], key)):
            queue = self._queues[key]
            if woken >= _AT_ONCE and (queue is None or not left.get(queue)):
                continue
            if queue is not None and left.get(queue):
                left[queue] -= 1
            woken += 1
            self._wake(key)


def _changed_queues(before: Report, after: Report) -> frozenset[Key]:
    """The LocalQueues that differ, or whose quota does."""
    quotas = {name for name, queue in after.cluster_queues.items() if before.cluster_queues.get(name) != queue}
    return frozenset(
        key
        for key, queue in after.local_queues.items()
        if queue.cluster_queue in quotas or before.local_queues.get(key) != queue
    )


def _report_key(cluster: str) -> Key:
    return Key(mailbox_namespace(cluster), MAILBOX_OBJECT_NAME)
