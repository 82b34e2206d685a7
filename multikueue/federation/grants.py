# SPDX-License-Identifier: Apache-2.0
"""Which of the clusters that hold room gets the workload.

Owns the choice among reservers that answered in time for the same decision. One that runs it already, as after the
management cluster was restored from a backup, goes first. Promises that no clock of a worker
decides, that the choice is the same whenever it is repeated, and that equal clusters share the work evenly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from multikueue.api.remoteassignment import Phase
from multikueue.federation.facts import ClusterFacts, Facts, Observation, WorkloadFacts

_HOLDING: Final = frozenset({Phase.RESERVED, Phase.RUNNING, Phase.FINISHED})


def reservers(facts: Facts, workload: WorkloadFacts) -> tuple[Observation, ...]:
    """The usable clusters of the config that hold room for this very epoch."""
    usable = {cluster.name for cluster in facts.clusters if _usable(cluster)}
    return tuple(
        observation
        for name, observation in facts.observations.items()
        if name in usable
        and observation.workload_uid == workload.uid
        and observation.epoch == workload.epoch
        and observation.answered
        and observation.phase in _HOLDING
    )


def choose(workload: WorkloadFacts, candidates: Iterable[Observation]) -> Observation | None:
    """The winner: the highest of a hash over workload and cluster, which spreads workloads without any state."""

    def rank(candidate: Observation) -> tuple[bool, bytes, str]:
        return candidate.phase is not Phase.RESERVED, _weight(workload.uid, candidate.cluster), candidate.cluster

    return max(candidates, key=rank, default=None)


def _usable(cluster: ClusterFacts) -> bool:
    # A cluster that takes no new work any more must not be granted what it reserved before.
    return cluster.available and cluster.takes_new_work


def _weight(uid: str, cluster: str) -> bytes:
    return hashlib.blake2b(f"{uid}/{cluster}".encode(), digest_size=8).digest()
