# SPDX-License-Identifier: Apache-2.0
"""Why dispatch leaves a workload where it is, cluster by cluster: the dispatch part of `mkctl explain`.

Decides nothing: the rule is the one that `plan` would apply now, each cluster's reason is the text of the check's
message, and its score is that of the dispatcher.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from multikueue.api.constants import DISPATCHER_CAPACITY, CheckState, PartitionPolicy
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.duration import format_duration
from multikueue.core.timestamps import format_time
from multikueue.dispatch.dispatchers.capacity import Judgement, Scored, judge
from multikueue.dispatch.dispatchers.cluster_capacity import Lack
from multikueue.dispatch.dispatchers.registry import DISPATCHERS
from multikueue.dispatch.hub import messages, waits
from multikueue.dispatch.hub.actions import DispatchPlan, Rule
from multikueue.dispatch.hub.availability import gone_after, policy_on
from multikueue.dispatch.hub.cluster_facts import NOT_IN_CONFIG
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchFacts, Observation
from multikueue.dispatch.hub.nomination import of_replicas
from multikueue.dispatch.hub.plan import plan


class DispatchState(StrEnum):
    """The state of a workload on one cluster."""

    RUNS = "Runs"
    NOT_STARTED = "NotStarted"
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
    FORBIDDEN = "Forbidden"
    UNSUITABLE = "Unsuitable"
    NO_CAPACITY = "NoCapacity"
    HAS_CAPACITY = "HasCapacity"
    UNKNOWN_CAPACITY = "UnknownCapacity"
    NOT_NOMINATED = "NotNominated"
    NOT_NEEDED = "NotNeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterExplanation:
    """One cluster; `score` is set if the capacity dispatcher computed one.

    Since when a cluster is out of the config is known to the manager only, so that it has no `lost_since`.
    """

    cluster: str
    state: DispatchState
    reason: str = ""
    nominated: bool = False
    exists: bool = True
    """Whether there is a MultiKueueCluster of that name."""
    listed: bool = True
    """Whether it exists and the config lists it."""
    lost_since: datetime | None = None
    avoided_until: datetime | None = None
    lacks: tuple[Lack, ...] = ()
    score: Scored | None = None
    observation: Observation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchExplanation:
    """The rule that applies now, the latest time of the next plan if it is known, and the clusters.

    The clusters are in the order of the config.
    """

    rule: Rule
    next_look: datetime | None
    dispatcher: str
    epoch: int
    cluster_name: str
    partition_policy: PartitionPolicy
    clusters: tuple[ClusterExplanation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedClusters:
    """The clusters that the manager connects to itself, whose assignments are only in its memory.

    An observation of such a cluster is assumed, and not shown as reported. `reasons` are those of the check's message,
    by cluster.
    """

    clusters: Collection[str] = ()
    reasons: Mapping[str, str] | None = None


def explain_dispatch(
    facts: DispatchFacts, now: datetime, *, hosted: HostedClusters = HostedClusters()
) -> DispatchExplanation | None:
    """The explanation for a workload; None if it was deleted or has no MultiKueue check."""
    workload = facts.workload
    if workload is None or workload.check is None:
        return None
    decision = plan(facts, now)
    known = (*facts.clusters, *facts.others.values())
    chosen = facts.cluster(workload.cluster_name)
    after = decision.requeue_after if chosen is None or _is_listed(chosen) else None
    return DispatchExplanation(
        rule=decision.rule,
        next_look=None
        if after is None or (chosen is not None and not _is_listed(chosen))
        else now + timedelta(seconds=after),
        dispatcher=facts.settings.dispatcher,
        epoch=workload.epoch,
        cluster_name=workload.cluster_name,
        partition_policy=policy_on(facts, workload.cluster_name),
        clusters=tuple(_of(cluster, facts, workload, decision, now=now, hosted=hosted) for cluster in known),
    )


def _of(
    cluster: ClusterFacts,
    facts: DispatchFacts,
    workload: DispatchedWorkload,
    decision: DispatchPlan,
    *,
    now: datetime,
    hosted: HostedClusters,
) -> ClusterExplanation:
    observation = facts.observations.get(cluster.name)
    hidden = cluster.name in hosted.clusters
    score: Scored | None = None
    lacks: tuple[Lack, ...] = ()
    if workload.finished:
        state, reason = _after_the_end(cluster, workload)
    elif cluster.name == workload.cluster_name:
        policy = policy_on(facts, cluster.name)
        state, reason = _chosen(cluster, observation, facts, decision, workload, policy=policy, now=now, hidden=hidden)
    elif workload.cluster_name or workload.check is None or workload.check.state is not CheckState.PENDING:
        state, reason = _elsewhere(observation, workload)
    else:
        # Without quota it has no demands yet, and would seem to fit everywhere.
        judgement = _judgement(cluster, facts, workload, now)
        if workload.quota_reserved and judgement is not None and judgement.fit is not None:
            score, lacks = judgement.score, judgement.fit.lacks
        state, reason = _candidate(cluster, facts, workload, judgement, now=now)
        if hidden and state in (DispatchState.ASKED, DispatchState.UNKNOWN_CAPACITY, DispatchState.NOT_NOMINATED):
            reported = (hosted.reasons or {}).get(cluster.name)
            reason = reported or f"{reason}; {_HOSTED}"
            if reported:  # the check has such reasons only while every cluster has one
                state = DispatchState.NO_CAPACITY if waits.ends_by_itself(reported) else DispatchState.REFUSED
    avoided_until = facts.avoided.get(cluster.name)
    return ClusterExplanation(
        cluster=cluster.name,
        state=state,
        reason=reason,
        nominated=cluster.name in workload.nominated,
        exists=cluster.exists,
        listed=_is_listed(cluster),
        lost_since=cluster.lost_since if _is_listed(cluster) else None,
        avoided_until=avoided_until if avoided_until is not None and now < avoided_until else None,
        lacks=lacks,
        score=score,
        observation=None if hidden else observation,
    )


_HOSTED: Final = "the manager connects to this cluster itself, and the hub does not store its status"
_GRANTED: Final[Mapping[AssignmentPhase, tuple[DispatchState, str]]] = {
    AssignmentPhase.PENDING: (DispatchState.CHOSEN, "was chosen; the job is waiting to be created there"),
    AssignmentPhase.PROVISIONING: (DispatchState.CHOSEN, "was chosen; its capacity is being provisioned again"),
    AssignmentPhase.PROVISIONED: (DispatchState.CHOSEN, "was chosen; the job is about to be created there"),
    AssignmentPhase.RESERVED: (DispatchState.CHOSEN, "was chosen; the job is about to be created there"),
    AssignmentPhase.RUNNING: (DispatchState.RUNS, "runs there"),
    AssignmentPhase.FINISHED: (DispatchState.FINISHED, "has ended there"),
    AssignmentPhase.EVICTED: (DispatchState.EVICTED, "was stopped there"),
    AssignmentPhase.REFUSED: (DispatchState.REFUSED, "was refused there"),
}


def _is_listed(cluster: ClusterFacts) -> bool:
    return cluster.reason != NOT_IN_CONFIG


def _after_the_end(cluster: ClusterFacts, workload: DispatchedWorkload) -> tuple[DispatchState, str]:
    """The state of a workload that finished: where it ran, whatever the state of that cluster is now."""
    if cluster.name != workload.cluster_name:
        return DispatchState.NOT_NEEDED, "the workload has finished"
    return (
        DispatchState.FINISHED,
        "it ran there" if cluster.exists else "it ran there; the cluster has been removed since",
    )


def _chosen(
    cluster: ClusterFacts,
    observation: Observation | None,
    facts: DispatchFacts,
    decision: DispatchPlan,
    workload: DispatchedWorkload,
    *,
    policy: PartitionPolicy,
    now: datetime,
    hidden: bool,
) -> tuple[DispatchState, str]:
    away = waits.unavailable(cluster)
    if away:
        since_notice = None if _is_listed(cluster) else gone_after(policy, facts.settings)
        then = _consequence(decision, cluster.name, policy=policy, now=now, since_notice=since_notice)
        return DispatchState.UNAVAILABLE, f"{away}; {then}"
    shown = workload.not_started
    if shown is not None:
        return (
            DispatchState.NOT_STARTED,
            f"its pods do not start: {shown.reason}: {messages.start_detail(shown.message)}",
        )
    if hidden:
        return DispatchState.CHOSEN, f"was chosen; {_HOSTED}: see the status of the job"
    if observation is None:
        return DispatchState.CHOSEN, "was chosen; its assignment is not written yet"
    if not observation.answered:
        return DispatchState.CHOSEN, "was chosen; its agent has not responded yet"
    state, text = _GRANTED[observation.phase]
    reported = observation.message or observation.reason
    return state, f"{text}: {reported}" if reported else text


def _consequence(
    decision: DispatchPlan,
    chosen: str,
    *,
    policy: PartitionPolicy,
    now: datetime,
    since_notice: timedelta | None,
) -> str:
    """What happens to the work on an unavailable cluster, at what time.

    `since_notice` is set if only the manager knows since when: how long it takes from then.
    """
    held = next((entry.reason for entry in decision.waiting if entry.cluster == chosen), "")
    if held:
        return held
    if decision.check is not None:
        return f"its work moves to another cluster now (policy {policy})"
    if decision.requeue_after is None:
        return f"its work stays there (policy {policy})"
    if since_notice is not None:
        return (
            f"its work moves to another cluster at most {format_duration(since_notice)} after the manager noticed that,"
            f" or after its last restart (policy {policy})"
        )
    moves_at = format_time(now + timedelta(seconds=decision.requeue_after))
    return f"its work moves to another cluster at {moves_at} (policy {policy})"


def _elsewhere(observation: Observation | None, workload: DispatchedWorkload) -> tuple[DispatchState, str]:
    if observation is None:
        other = (
            f"{workload.cluster_name} was chosen"
            if workload.cluster_name
            else "not nominated while the check is Retry or Rejected"
        )
        return DispatchState.NOT_NEEDED, other
    if observation.intent is Intent.EVICT:
        return DispatchState.LEAVING, "is asked to stop it"
    return DispatchState.LEAVING, "its assignment is being removed"


def _judgement(
    cluster: ClusterFacts, facts: DispatchFacts, workload: DispatchedWorkload, now: datetime
) -> Judgement | None:
    if facts.settings.dispatcher != DISPATCHER_CAPACITY:
        return None
    return judge(workload, cluster, settings=facts.settings, now=now)


def _candidate(
    cluster: ClusterFacts,
    facts: DispatchFacts,
    workload: DispatchedWorkload,
    judgement: Judgement | None,
    *,
    now: datetime,
) -> tuple[DispatchState, str]:
    """A cluster that may still be chosen: what excludes it, else what it reported, else its judgement."""
    forbidden = facts.policy.on(cluster.name)
    if forbidden:
        return DispatchState.FORBIDDEN, forbidden
    unusable = waits.unusable(cluster, facts.avoided, now)
    if unusable:
        if not cluster.available:
            return DispatchState.UNAVAILABLE, unusable
        return (DispatchState.AVOIDED if cluster.takes_new_work else DispatchState.CLOSED), unusable
    followed = of_replicas(facts, workload, cluster.name)
    if followed:
        return DispatchState.UNSUITABLE, followed
    if judgement is not None and not judgement.suitable:
        return DispatchState.UNSUITABLE, judgement.reason
    observation = facts.observations.get(cluster.name)
    if not workload.quota_reserved:
        return DispatchState.NOT_NEEDED, "is considered once quota is reserved"
    if observation is not None and observation.workload_uid == workload.uid:
        state, reported = _asked(observation)
        if state is DispatchState.WAITS_THERE and judgement is not None and judgement.fit is not None:
            return state, f"{reported}; {judgement.reason}"
        return state, reported
    if cluster.name in workload.nominated:
        return DispatchState.ASKED, "is nominated; its agent has not responded yet"
    if judgement is None:
        by = "" if facts.settings.dispatcher in DISPATCHERS else f" by {facts.settings.dispatcher}"
        return DispatchState.NOT_NOMINATED, f"is not nominated{by} yet"
    if judgement.fit is None:
        return (
            DispatchState.UNKNOWN_CAPACITY,
            f"{judgement.reason}: it is asked unless another cluster is known to have capacity",
        )
    return (DispatchState.HAS_CAPACITY if judgement.has_capacity else DispatchState.NO_CAPACITY), judgement.reason


def _asked(observation: Observation) -> tuple[DispatchState, str]:
    if not observation.answered:
        return DispatchState.ASKED, "was asked; its agent has not responded yet"
    reported = waits.answer(observation)
    if observation.phase is AssignmentPhase.PENDING:
        return (
            (DispatchState.WAITS_THERE, f"waits there: {reported}")
            if reported
            else (DispatchState.ASKED, "is looking for free capacity")
        )
    if observation.phase is AssignmentPhase.REFUSED:
        return DispatchState.REFUSED, reported
    if observation.phase is AssignmentPhase.PROVISIONING:
        return DispatchState.ASKED, f"provisions capacity: {observation.message}"
    if observation.phase is AssignmentPhase.PROVISIONED:
        return DispatchState.RESERVED, "has provisioned capacity; waits to be chosen"
    return DispatchState.RESERVED, "has reserved capacity; waits to be chosen"
