# SPDX-License-Identifier: Apache-2.0
"""Why a cluster is out of the question for a workload: small named functions, each with one reason.

Owns the filters of the capacity dispatcher and their order. A filter answers with an objection, or with nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from multikueue.federation.facts import ClusterFacts, WorkloadFacts

Filter = Callable[[WorkloadFacts, ClusterFacts], str]


def readable(workload: WorkloadFacts, cluster: ClusterFacts) -> str:
    """Nowhere is safe for a workload whose wishes cannot be read."""
    return workload.preferences.problem


def pinned(workload: WorkloadFacts, cluster: ClusterFacts) -> str:
    """The user named the clusters that may run it."""
    pins = workload.preferences.pinned
    return "" if not pins or cluster.name in pins else f"pinned to {', '.join(sorted(pins))}"


def selected(workload: WorkloadFacts, cluster: ClusterFacts) -> str:
    """The user asked for labels of the cluster."""
    selector = workload.preferences.selector
    return "" if selector.matches(cluster.labels) else f"its labels do not match {selector}"


def kind_served(workload: WorkloadFacts, cluster: ClusterFacts) -> str:
    """The cluster has the kind of the job installed."""
    report = cluster.room.report if cluster.room is not None else None
    if report is None or not report.kinds:
        return ""
    kind = (workload.owner.api_version, workload.owner.kind)
    return "" if kind in report.kinds else f"kind {workload.owner.kind} is not installed"


def namespace_there(workload: WorkloadFacts, cluster: ClusterFacts) -> str:
    """The cluster has the namespace of the job."""
    report = cluster.room.report if cluster.room is not None else None
    if report is None or not report.namespaces:
        return ""
    return "" if workload.key.namespace in report.namespaces else f'no namespace "{workload.key.namespace}"'


def queue_served(workload: WorkloadFacts, cluster: ClusterFacts) -> str:
    """Where a queueing engine admits, it needs a LocalQueue of that name."""
    report = cluster.room.report if cluster.room is not None else None
    if report is None or not report.engine or workload.queue is None:
        return ""
    return "" if workload.queue in report.queues else f"no LocalQueue {workload.queue}"


FILTERS: Final[tuple[Filter, ...]] = (readable, pinned, selected, kind_served, namespace_there, queue_served)


def objection(workload: WorkloadFacts, cluster: ClusterFacts) -> str:
    """The first objection; empty when there is none."""
    return next((text for each in FILTERS if (text := each(workload, cluster))), "")
