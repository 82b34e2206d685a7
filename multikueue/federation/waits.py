# SPDX-License-Identifier: Apache-2.0
"""Why one cluster does not run a workload yet, in words.

Owns the one text for each cause, for the check's message and for `mkctl explain` alike. Promises that a text changes
when its cause does: nothing in it counts attempts or seconds. Amounts may change without the cause changing;
`same_cause` tells, so that nobody writes a Workload anew for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from multikueue.api.reasons import ClusterReason
from multikueue.api.remoteassignment import Phase
from multikueue.core.timestamps import format_time
from multikueue.federation.facts import ClusterFacts, Observation, WorkloadFacts
from multikueue.federation.ledger import amount_text
from multikueue.federation.standing_room import NODES, Fit, Lack, Level

_AMOUNT: Final = re.compile(r"(?<![\w.:-])\d+(?:\.\d+)?[A-Za-z]{0,2}(?![\w:-])")


def unavailable(cluster: ClusterFacts) -> str:
    """Of a cluster that cannot be reached, or must not be; empty for one that is available."""
    if cluster.lost_since is None:
        return ""
    if cluster.reason == ClusterReason.CLIENT_CONNECTION_FAILED:
        # Without the connection's own error: that one tells of each attempt.
        return f"not connected since {format_time(cluster.lost_since)}"
    if cluster.reason in set(ClusterReason):
        return f"{cluster.reason}: {cluster.message}"
    return cluster.message or cluster.reason


def closed(cluster: ClusterFacts) -> str:
    """Of a cluster that takes no new work; empty for one that does."""
    if cluster.takes_new_work:
        return ""
    return f"{'is being drained' if cluster.draining else 'is cordoned'} and takes no new work"


def avoided(until: datetime) -> str:
    """Of a cluster that failed this very workload."""
    return f"failed this workload, is avoided until {format_time(until)}"


def unusable(cluster: ClusterFacts, avoid: Mapping[str, datetime], now: datetime) -> str:
    """Why the cluster may not be nominated, whatever the workload wants; empty when it may."""
    until = avoid.get(cluster.name)
    return unavailable(cluster) or closed(cluster) or ("" if until is None or until <= now else avoided(until))


def shortage(workload: WorkloadFacts, fit: Fit) -> str:
    """Of a cluster whose report says that the workload does not fit; empty when it does."""
    if fit.level is Level.NOW:
        return ""
    lacks = ", ".join(_lack(workload, lack) for lack in fit.lacks)
    return f"no free quota: {lacks}" if fit.level is Level.LATER else f"not enough even when it is empty: {lacks}"


def answer(observation: Observation) -> str:
    """What the cluster said of the copy it has, as long as it does not run it; empty when it said no reason."""
    if not observation.answered or observation.phase not in (Phase.PENDING, Phase.REFUSED):
        return ""
    return observation.message or observation.reason


def same_cause(one: str, other: str) -> bool:
    """Whether two texts differ in amounts at most."""
    return one == other or _AMOUNT.sub("#", one) == _AMOUNT.sub("#", other)


def _lack(workload: WorkloadFacts, lack: Lack) -> str:
    if lack.resource == NODES:
        return "no node has the labels it selects and only taints it tolerates"
    flavor = workload.flavors.get(lack.resource)
    where = f" in flavor {flavor}" if flavor else ""
    return f"short {amount_text(lack.resource, lack.amount)} {lack.resource}{where}" + (
        " on one node" if lack.on_one_node else ""
    )
