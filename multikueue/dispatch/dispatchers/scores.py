# SPDX-License-Identifier: Apache-2.0
"""The scores of the capacity dispatcher: functions with a value between 0 and 1.

The score of a cluster is their sum, times the weight that its administrator set. Equal clusters are ordered by a hash
of workload and cluster, so that no state is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.dispatch.dispatchers.cluster_capacity import Fit
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, Placement

Score = Callable[[DispatchedWorkload, ClusterFacts, Fit], float]


def free_capacity(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> float:
    """How much of the scarcest resource stays free or, with placement pack, how little.

    0 for quota whose nodes are full or do not exist yet.
    """
    if not fit.nodes_now:
        return 0.0
    return fit.free_after if workload.preferences.placement is Placement.SPREAD else 1.0 - fit.free_after


def preferred(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> float:
    """Whether the cluster has the labels that the user prefers."""
    preferred_clusters = workload.preferences.preferred
    return 1.0 if preferred_clusters is not None and preferred_clusters.matches(cluster.labels) else 0.0


def short_queue(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> float:
    """How few workloads wait for capacity there."""
    report = cluster.capacity.report if cluster.capacity is not None else None
    return 0.0 if report is None else 1.0 / (1.0 + report.pending)


FREE_CAPACITY: Final = "freeCapacity"
SCORES: Final[Mapping[str, Score]] = {FREE_CAPACITY: free_capacity, "preferred": preferred, "shortQueue": short_queue}


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of a cluster with its parts."""

    parts: Mapping[str, float]
    weight: float

    @property
    def total(self) -> float:
        """The sum of the parts times the weight."""
        return sum(self.parts.values()) * self.weight

    def __str__(self) -> str:
        text = ", ".join(f"{name} {value:.2f}" for name, value in self.parts.items())
        return f"score {self.total:.2f} ({text}, weight {self.weight:g})"


NO_SCORE: Final = Scored({}, 1.0)


def scored(workload: DispatchedWorkload, cluster: ClusterFacts, fit: Fit) -> Scored:
    """The score of a cluster that the workload fits."""
    return Scored({name: score(workload, cluster, fit) for name, score in SCORES.items()}, cluster.weight)


def share(workload: DispatchedWorkload, cluster: ClusterFacts) -> bytes:
    """The hash by which equal clusters are ordered."""
    return hashlib.blake2b(f"{workload.uid}/{cluster.name}".encode(), digest_size=8).digest()
