# SPDX-License-Identifier: Apache-2.0
"""Why dispatch leaves a workload where it is, cluster by cluster.

Owns what `mkctl explain` says of dispatch. Decides nothing: the rule is the one that `plan` would apply now, each
cluster's reason is the text that the check's message has for it, its score the one that the dispatcher would count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from multikueue.api.constants import DISPATCHER_CAPACITY, CheckState, PartitionPolicy
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.core.timestamps import format_time
from multikueue.federation import waits
from multikueue.federation.actions import Plan, Rule
from multikueue.federation.dispatchers.capacity import Judgement, judge
from multikueue.federation.dispatchers.registry import DISPATCHERS
from multikueue.federation.dispatchers.scores import Scored
from multikueue.federation.facts import ClusterFacts, Facts, Observation, WorkloadFacts
from multikueue.federation.plan import plan
from multikueue.federation.standing_room import Lack


class Standing(StrEnum):
    """How a workload stands with one cluster."""

    RUNS = "Runs"
    FINISHED = "Finished"
    CHOSEN = "Chosen"
    RESERVED = "Reserved"
    ASKED = "Asked"
    WAITS_THERE = "WaitsThere"
    REFUSED = "Refused"
    EVICTED = "Evicted"
    LEAVING = "Leaving"
    UNAVAILABLE = "Unavailable"
    CLOSED = "Closed"
    AVOIDED = "Avoided"
    UNSUITABLE = "Unsuitable"
    NO_ROOM = "NoRoom"
    HAS_ROOM = "HasRoom"
    UNKNOWN_ROOM = "UnknownRoom"
    NOT_NOMINATED = "NotNominated"
    NOT_NEEDED = "NotNeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOutlook:
    """One cluster; `score` is there where the capacity dispatcher counted one."""

    cluster: str
    standing: Standing
    reason: str = ""
    nominated: bool = False
    lost_since: datetime | None = None
    avoided_until: datetime | None = None
    lacks: tuple[Lack, ...] = ()
    score: Scored | None = None
    observation: Observation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The rule that applies now, when it is looked at again at the latest, and the clusters in the config's order."""

    rule: Rule
    next_look: datetime | None
    dispatcher: str
    epoch: int
    cluster_name: str
    partition_policy: PartitionPolicy
    clusters: tuple[ClusterOutlook, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """What the hub's objects do not show: the copies on clusters that the manager reaches itself are in its memory.

    An observation of such a cluster is a belief and not shown as its word. `told` is what the check's message says of
    each cluster.
    """

    clusters: Collection[str] = ()
    told: Mapping[str, str] | None = None


def outlook(facts: Facts, now: datetime, *, unseen: Unseen = Unseen()) -> Outlook | None:
    """The outlook of a workload; None of one that is gone or is none of dispatch's business."""
    workload = facts.workload
    if workload is None or workload.check is None:
        return None
    decision = plan(facts, now)
    known = (*facts.clusters, *facts.others.values())
    after = decision.requeue_after
    return Outlook(
        rule=decision.rule,
        next_look=None if after is None else now + timedelta(seconds=after),
        dispatcher=facts.settings.dispatcher,
        epoch=workload.epoch,
        cluster_name=workload.cluster_name,
        partition_policy=workload.partition_policy,
        clusters=tuple(_of(cluster, facts, workload, decision, now=now, unseen=unseen) for cluster in known),
    )


def _of(
    cluster: ClusterFacts, facts: Facts, workload: WorkloadFacts, decision: Plan, *, now: datetime, unseen: Unseen
) -> ClusterOutlook:
    observation = facts.observations.get(cluster.name)
    hidden = cluster.name in unseen.clusters
    score: Scored | None = None
    lacks: tuple[Lack, ...] = ()
    if cluster.name == workload.cluster_name:
        standing, reason = _chosen(cluster, observation, decision, workload, now=now, hidden=hidden)
    elif workload.cluster_name or workload.check is None or workload.check.state is not CheckState.PENDING:
        standing, reason = _elsewhere(observation)
    else:
        # Without quota it wants nothing of any cluster yet, and would seem to fit everywhere.
        judgement = _judgement(cluster, facts, workload, now)
        if workload.quota_reserved and judgement is not None and judgement.fit is not None:
            score, lacks = judgement.score, judgement.fit.lacks
        standing, reason = _candidate(cluster, facts, workload, judgement, now=now)
        if hidden and standing in (Standing.ASKED, Standing.UNKNOWN_ROOM, Standing.NOT_NOMINATED):
            told = (unseen.told or {}).get(cluster.name)
            reason = told or f"{reason}; the manager reaches this cluster itself and keeps what it says in memory"
    return ClusterOutlook(
        cluster=cluster.name,
        standing=standing,
        reason=reason,
        nominated=cluster.name in workload.nominated,
        lost_since=cluster.lost_since,
        avoided_until=facts.avoided.get(cluster.name),
        lacks=lacks,
        score=score,
        observation=None if hidden else observation,
    )


_GRANTED: Final[Mapping[Phase, tuple[Standing, str]]] = {
    Phase.PENDING: (Standing.CHOSEN, "was granted, waits there to start"),
    Phase.RESERVED: (Standing.CHOSEN, "was granted, is about to start"),
    Phase.RUNNING: (Standing.RUNS, "runs there"),
    Phase.FINISHED: (Standing.FINISHED, "has ended there"),
    Phase.EVICTED: (Standing.EVICTED, "was stopped there"),
    Phase.REFUSED: (Standing.REFUSED, "was refused there"),
}


def _chosen(
    cluster: ClusterFacts,
    observation: Observation | None,
    decision: Plan,
    workload: WorkloadFacts,
    *,
    now: datetime,
    hidden: bool,
) -> tuple[Standing, str]:
    away = waits.unavailable(cluster)
    if away:
        return Standing.UNAVAILABLE, f"{away}; {_what_becomes_of_it(decision, workload, now)}"
    if hidden:
        return Standing.CHOSEN, "was granted; the manager reaches this cluster itself, see the status of the job"
    if observation is None:
        return Standing.CHOSEN, "was granted, has not been told yet"
    if not observation.answered:
        return Standing.CHOSEN, "was granted, has not answered yet"
    standing, text = _GRANTED[observation.phase]
    said = observation.message or observation.reason
    return standing, f"{text}: {said}" if said else text


def _what_becomes_of_it(decision: Plan, workload: WorkloadFacts, now: datetime) -> str:
    held = next((entry.reason for entry in decision.waiting if entry.cluster == workload.cluster_name), "")
    if held:
        return held
    policy = f"policy {workload.partition_policy}"
    if decision.check is not None:
        return f"its work goes elsewhere now ({policy})"
    if decision.requeue_after is None:
        return f"its work stays there ({policy})"
    return f"its work goes elsewhere at {format_time(now + timedelta(seconds=decision.requeue_after))} ({policy})"


def _elsewhere(observation: Observation | None) -> tuple[Standing, str]:
    if observation is None:
        return Standing.NOT_NEEDED, ""
    if observation.intent is Intent.EVICT:
        return Standing.LEAVING, "was told to stop"
    return Standing.LEAVING, "its copy is taken back"


def _judgement(cluster: ClusterFacts, facts: Facts, workload: WorkloadFacts, now: datetime) -> Judgement | None:
    if facts.settings.dispatcher != DISPATCHER_CAPACITY:
        return None
    return judge(workload, cluster, settings=facts.settings, now=now)


def _candidate(
    cluster: ClusterFacts, facts: Facts, workload: WorkloadFacts, judgement: Judgement | None, *, now: datetime
) -> tuple[Standing, str]:
    """A cluster that may be chosen yet: what stands in the way first, then what it said, then what is thought of it."""
    unusable = waits.unusable(cluster, facts.avoided, now)
    if unusable:
        if not cluster.available:
            return Standing.UNAVAILABLE, unusable
        return (Standing.AVOIDED if cluster.takes_new_work else Standing.CLOSED), unusable
    if judgement is not None and not judgement.suitable:
        return Standing.UNSUITABLE, judgement.says
    observation = facts.observations.get(cluster.name)
    if not workload.quota_reserved:
        return Standing.NOT_NEEDED, "comes into question when quota is reserved"
    if observation is not None and observation.workload_uid == workload.uid:
        standing, said = _asked(observation)
        if standing is Standing.WAITS_THERE and judgement is not None and judgement.fit is not None:
            return standing, f"{said}; {judgement.says}"
        return standing, said
    if cluster.name in workload.nominated:
        return Standing.ASKED, "is nominated, has not answered yet"
    if judgement is None:
        by = "" if facts.settings.dispatcher in DISPATCHERS else f" by {facts.settings.dispatcher}"
        return Standing.NOT_NOMINATED, f"is not nominated{by} yet"
    if judgement.fit is None:
        return Standing.UNKNOWN_ROOM, f"{judgement.says}: it is asked unless another is known to have room"
    return (Standing.HAS_ROOM if judgement.has_room else Standing.NO_ROOM), judgement.says


def _asked(observation: Observation) -> tuple[Standing, str]:
    if not observation.answered:
        return Standing.ASKED, "was asked, has not answered yet"
    said = waits.answer(observation)
    if observation.phase is Phase.PENDING:
        return (Standing.WAITS_THERE, f"waits there: {said}") if said else (Standing.ASKED, "looks for room")
    if observation.phase is Phase.REFUSED:
        return Standing.REFUSED, said
    return Standing.RESERVED, "has reserved, waits to be granted"
