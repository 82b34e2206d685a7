# SPDX-License-Identifier: Apache-2.0
"""Somebody else writes `status.nominatedClusterNames`; we follow it (`docs/spec/multikueue.md §1.6`)."""

from __future__ import annotations

from datetime import datetime

from multikueue.federation.actions import Waiting
from multikueue.federation.dispatchers.protocol import Nomination
from multikueue.federation.facts import ClusterFacts, Settings, WorkloadFacts


def external(
    workload: WorkloadFacts, candidates: tuple[ClusterFacts, ...], *, settings: Settings, now: datetime
) -> Nomination:
    """What stands in the status, which is left as it is; named clusters that cannot be used are told of."""
    usable = {cluster.name for cluster in candidates}
    return Nomination(
        clusters=workload.nominated,
        waiting=tuple(Waiting(name, "nominated, but not usable") for name in workload.nominated if name not in usable),
    )
