# SPDX-License-Identifier: Apache-2.0
"""Which of the clusters that have room is best: small named functions, each between 0 and 1.

Owns the scores of the capacity dispatcher and how they are put together: their sum, times the weight that the admin
gave the cluster. Equal clusters share the work by a hash of workload and cluster, so that no choice needs a memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.federation.facts import ClusterFacts, Placement, WorkloadFacts
from multikueue.federation.standing_room import Fit

Score = Callable[[WorkloadFacts, ClusterFacts, Fit], float]


def room(workload: WorkloadFacts, cluster: ClusterFacts, fit: Fit) -> float:
    """How much of the scarcest resource stays free, or with placement pack how little."""
    return fit.free_after if workload.preferences.placement is Placement.SPREAD else 1.0 - fit.free_after


def preferred(workload: WorkloadFacts, cluster: ClusterFacts, fit: Fit) -> float:
    """Whether the cluster's labels are those that the user would like."""
    wish = workload.preferences.preferred
    return 1.0 if wish is not None and wish.matches(cluster.labels) else 0.0


def short_queue(workload: WorkloadFacts, cluster: ClusterFacts, fit: Fit) -> float:
    """How few wait there for room already."""
    report = cluster.room.report if cluster.room is not None else None
    return 0.0 if report is None else 1.0 / (1.0 + report.pending)


SCORES: Final[Mapping[str, Score]] = {"room": room, "preferred": preferred, "shortQueue": short_queue}


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of a cluster, and how it came to be."""

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


def scored(workload: WorkloadFacts, cluster: ClusterFacts, fit: Fit) -> Scored:
    """The score of a cluster that the workload fits."""
    return Scored({name: score(workload, cluster, fit) for name, score in SCORES.items()}, cluster.weight)


def share(workload: WorkloadFacts, cluster: ClusterFacts) -> bytes:
    """What equal clusters are told apart by."""
    return hashlib.blake2b(f"{workload.uid}/{cluster.name}".encode(), digest_size=8).digest()
