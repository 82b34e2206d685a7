# SPDX-License-Identifier: Apache-2.0
"""The `ClusterFacts` of a MultiKueueCluster, from its object, its registration and how it is judged.

Used by the manager and by `mkctl explain`. What each of them finds out in its own way (since when a cluster is lost,
when its report arrived) is an argument.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.dispatchers.cluster_capacity import ClusterCapacity
from multikueue.dispatch.hub.facts import ClusterFacts
from multikueue.dispatch.policy.dispatch_policy import cluster_rules
from multikueue.dispatch.protocol.annotations import weight_of

NOT_IN_CONFIG: Final = "NotInConfig"


def cluster_facts(
    cluster: JsonObject,
    registration: JsonObject | None,
    *,
    lost_since: datetime | None,
    agent_lost_since: datetime | None,
    cannot_stop: bool,
    fences: bool,
    reason: str,
    message: str,
    capacity: ClusterCapacity,
    reported_at: datetime | None,
) -> ClusterFacts:
    """The facts of a cluster that exists. Raises `BadInput` for a drain deadline that is not a time."""
    metadata: JsonObject = cluster["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    spec: JsonObject = (registration or {}).get("spec") or {}
    return ClusterFacts(
        name=metadata["name"],
        lost_since=lost_since,
        agent_lost_since=agent_lost_since,
        cannot_stop=cannot_stop,
        fences=fences,
        reason=reason,
        message=message,
        takes_new_work=not (spec.get("cordoned") or spec.get("drain")),
        draining=bool(spec.get("drain")),
        drain_deadline=parse_time(spec["drainDeadline"]) if spec.get("drainDeadline") else None,
        labels=metadata.get("labels") or {},
        weight=weight_of(annotations),
        rules=cluster_rules(annotations),
        capacity=capacity,
        reported_at=reported_at,
    )


def outside_config(
    name: str,
    known: ClusterFacts | None,
    *,
    lost_since: datetime,
    agent_lost_since: datetime | None,
    fences: bool,
    why: str,
) -> ClusterFacts:
    """The facts of a cluster that no config of the check lists, or that does not exist (`known` is None)."""
    return ClusterFacts(
        name=name,
        exists=known is not None,
        lost_since=lost_since,
        agent_lost_since=agent_lost_since,
        cannot_stop=known is not None and known.cannot_stop,
        fences=fences,
        reason=NOT_IN_CONFIG,
        message=why,
        takes_new_work=False,
    )
