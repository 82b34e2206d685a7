# SPDX-License-Identifier: Apache-2.0
"""Why one cluster does not run a workload yet: one text per cause, for the check's message and `mkctl explain`.

A text changes only if its cause does: it counts neither attempts nor seconds. Amounts may change; `same_cause` ignores
them, so that a changed amount does not cause a write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from multikueue.api.reasons import ClusterReason
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.timestamps import format_time
from multikueue.dispatch.dispatchers.cluster_capacity import FLAVORS, NODES, Fit, Lack, Level
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, Observation
from multikueue.dispatch.worker.ledger import amount_text

_SHORTAGE: Final = re.compile(
    r"\binsufficient\b| requested, at most |^no node is ready|^none of \d+ ready nodes |^removing the job "
)
_AMOUNT: Final = re.compile(r"(?<![\w.:-])\d+(?:\.\d+)?[A-Za-z]{0,2}(?![\w:-])")


def unavailable(cluster: ClusterFacts) -> str:
    """Of a cluster that is not available; empty if it is."""
    if cluster.lost_since is None:
        return ""
    if cluster.reason == ClusterReason.CLIENT_CONNECTION_FAILED:
        # Without the error of the connection, which changes with each attempt.
        return f"not connected since {format_time(cluster.lost_since)}"
    if cluster.reason in set(ClusterReason):
        return f"{cluster.reason}: {cluster.message}"
    return cluster.message or cluster.reason


def closed(cluster: ClusterFacts) -> str:
    """Of a cluster that takes no new work; empty if it does."""
    if cluster.takes_new_work:
        return ""
    return f"{'is being drained' if cluster.draining else 'is cordoned'} and takes no new work"


def avoided(until: datetime) -> str:
    """Of a cluster that failed this workload."""
    return f"failed this workload, is avoided until {format_time(until)}"


def unusable(cluster: ClusterFacts, avoid: Mapping[str, datetime], now: datetime, *, forbidden: str = "") -> str:
    """Why the cluster may not be nominated for any workload; empty if it may.

    `forbidden` is the objection of a dispatch policy.
    """
    if forbidden:
        return forbidden
    until = avoid.get(cluster.name)
    return unavailable(cluster) or closed(cluster) or ("" if until is None or until <= now else avoided(until))


def kind_served(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """Why jobs of that kind cannot be sent to the cluster; empty if they can, or if its report does not list kinds."""
    report = cluster.capacity.report if cluster.capacity is not None else None
    if report is None or report.kinds is None:
        return ""
    kinds = {(api_version.rpartition("/")[0], kind) for api_version, kind in report.kinds}
    group, _, _ = workload.owner.api_version.rpartition("/")
    served = (group, workload.owner.kind) in kinds
    return "" if served else f"kind {workload.owner.kind} is not served by the cluster's agent"


def queues_admit(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    """Why the queueing engine of the cluster cannot admit the pods of the workload; empty if it can, or if it has none.

    An engine admits a group once all of its pods exist, and a job by a Workload of one size, so that the agent refuses
    others.
    """
    report = cluster.capacity.report if cluster.capacity is not None else None
    if report is None or not report.engine:
        return ""
    if workload.elastic:
        return "has queues of its own, which cannot admit an elastic job"
    if workload.members_follow:
        return "has queues of its own, which cannot admit pods that are created one after another"
    return ""


def shortage(fit: Fit) -> str:
    """Of a cluster whose report shows that the workload does not fit; empty if it fits."""
    if fit.level is Level.NOW:
        return ""
    what = "quota" if fit.queue else "capacity"
    lacks = ", ".join(map(_lack, fit.lacks))
    detail = f"{fit.queue}, {lacks}" if fit.queue else lacks
    if fit.level is Level.LATER:
        return f"insufficient free {what}: {detail}"
    return f"insufficient {what} even when it is empty: {detail}"


def answer(observation: Observation) -> str:
    """Why the cluster does not run its assignment, as it reported; empty without a reason."""
    if not observation.answered or observation.phase not in (AssignmentPhase.PENDING, AssignmentPhase.REFUSED):
        return ""
    return observation.message or observation.reason


def ends_by_itself(text: str) -> bool:
    """Whether a reason is of a cluster that may take the workload when capacity there is free.

    Of clusters that the manager connects to itself, `mkctl explain` sees only the texts in the check's message.
    """
    return _SHORTAGE.search(text) is not None


def same_cause(one: str, other: str) -> bool:
    """Whether two texts differ in amounts at most."""
    return one == other or _AMOUNT.sub("#", one) == _AMOUNT.sub("#", other)


def _lack(lack: Lack) -> str:
    if lack.resource == NODES:
        return "no node matches its node selector, affinity and tolerations"
    if lack.resource == FLAVORS:
        return "no flavor of it matches the node selector, affinity, tolerations and topology of the pods"
    where = " on one node" if lack.on_one_node else ""
    return f"short {amount_text(lack.resource, lack.amount)} {lack.resource}{where}"
