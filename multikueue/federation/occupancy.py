# SPDX-License-Identifier: Apache-2.0
"""On which clusters a workload takes room.

Owns the one rule by which manager and `mkctl explain` count: from the moment it is decided to send it there until the
cluster has said that it ended.
"""

from __future__ import annotations

from multikueue.federation.facts import Facts
from multikueue.federation.phases import ENDED


def occupied(facts: Facts, *, granting: str | None = None) -> frozenset[str]:
    """The clusters where the workload stands, and the one that it is about to be granted to."""
    workload = facts.workload
    standing = {name for name, seen in facts.observations.items() if seen.phase not in ENDED}
    if workload is not None and workload.quota_reserved and not workload.finished:
        chosen = granting or workload.cluster_name
        seen = facts.observations.get(chosen)
        if chosen and (seen is None or seen.phase not in ENDED or seen.epoch < workload.epoch):
            standing.add(chosen)
    return frozenset(standing)
