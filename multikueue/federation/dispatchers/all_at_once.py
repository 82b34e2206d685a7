# SPDX-License-Identifier: Apache-2.0
"""Every usable cluster gets a copy at once; the first to reserve is granted (`docs/spec/multikueue.md §1.6`)."""

from __future__ import annotations

from datetime import datetime

from multikueue.federation.dispatchers.protocol import Nomination
from multikueue.federation.facts import ClusterFacts, Settings, WorkloadFacts

MAX_NOMINATED = 20  # the API takes no more in status.nominatedClusterNames


def all_at_once(
    workload: WorkloadFacts, candidates: tuple[ClusterFacts, ...], *, settings: Settings, now: datetime
) -> Nomination:
    """All candidates, sorted by name as upstream writes them."""
    return Nomination(clusters=tuple(sorted(cluster.name for cluster in candidates))[:MAX_NOMINATED])
