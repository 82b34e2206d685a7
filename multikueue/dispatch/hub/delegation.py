# SPDX-License-Identifier: Apache-2.0
"""Rule 8 for a workload whose provisioning checks are delegated to a worker cluster (ADR 0018).

Owns which clusters are asked to provision, which of those that have is granted, and the states of these checks. A
cluster with free capacity by its report is granted without a request. A cluster that failed in this epoch is not asked
again, so that with one cluster at a time no more than one provisions. Nor is another one asked while a restarted hub
waits for the cluster that it had asked.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from multikueue.api.constants import DISPATCHER_CAPACITY, CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.dispatchers.capacity import objection, share
from multikueue.dispatch.dispatchers.protocol import MAX_NOMINATED, Nomination
from multikueue.dispatch.dispatchers.registry import dispatcher
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.actions import (
    Action,
    Assign,
    DelegatedUpdate,
    DispatchPlan,
    PlannedEvent,
    RemoveAssignment,
    Rule,
    WaitingReason,
)
from multikueue.dispatch.hub.facts import ClusterFacts, Delegation, DispatchedWorkload, DispatchFacts, Observation
from multikueue.dispatch.hub.nomination import (
    PROVISIONED,
    choose,
    earliest,
    end_of_avoidance,
    grant,
    grant_at_once,
    of_replicas,
    pending_message,
    reservers,
    unusable_clusters,
    why_unusable,
)


def delegate(facts: DispatchFacts, workload: DispatchedWorkload, delegation: Delegation, now: datetime) -> DispatchPlan:
    """The plan for a workload with quota, Pending provisioning checks and no cluster."""
    if not workload.others_ready:
        # Capacity that is provisioned now would cost money while another check may take long or fail.
        return DispatchPlan(rule=Rule.NOT_YET, actions=tuple(map(RemoveAssignment, facts.observations)))
    winner = choose(workload, reservers(facts, workload, holding=PROVISIONED))
    if winner is not None:
        return grant(facts, workload, winner)
    candidates = tuple(cluster for cluster in facts.clusters if not why_unusable(facts, workload, cluster, now))
    failed = {name: seen for name, seen in facts.observations.items() if _failed(seen, workload)}
    nomination = _nomination(facts, workload, candidates, now)
    if nomination.grant:
        return grant_at_once(facts, workload, nomination)
    against = {cluster.name: _objection(workload, cluster) for cluster in candidates}
    left = tuple(cluster for cluster in candidates if not against[cluster.name] and cluster.name not in failed)
    awaited = _awaited(facts, workload, now)
    asked = _asked(facts, workload, left, nomination, waiting_for=len(awaited))
    refusals = tuple(WaitingReason(name, seen.message or seen.reason) for name, seen in failed.items())
    if failed and not left and not awaited and not _waits_for_replica(workload):
        return _failed_everywhere(delegation, refusals)
    actions: list[Action] = [
        Assign(name, Intent.PROVISION) for name in asked if not _is_current(facts.observations.get(name), workload)
    ]
    kept = {*asked, *failed}
    actions += (RemoveAssignment(name) for name in facts.observations if name not in kept)
    objections = (WaitingReason(name, why) for name, why in against.items() if why)
    waiting = (*unusable_clusters(facts, workload, now), *objections, *refusals)
    text = messages.provisioning((*(_progress(name, facts.observations.get(name)) for name in asked), *refusals))
    capacity = facts.settings.dispatcher == DISPATCHER_CAPACITY
    nominated = (*asked, *awaited) if capacity else nomination.clusters
    return DispatchPlan(
        rule=Rule.PROVISION,
        actions=tuple(actions),
        nominated=nominated if set(nominated) != set(workload.nominated) else None,
        check=pending_message(workload, waiting, no_cluster=not asked, everywhere=facts.policy.everywhere),
        delegated=_pending(delegation, text),
        waiting=waiting,
        verdicts=tuple(map(str, nomination.verdicts)),
        round=nomination.round,
        # A cluster that gets free capacity meanwhile is granted; the assignment of the other is removed.
        held_back=capacity,
        requeue_after=earliest(nomination.requeue_after, end_of_avoidance(facts, now), *awaited.values()),
    )


def _waits_for_replica(workload: DispatchedWorkload) -> bool:
    """Whether another replica of its owner chooses first, so that no cluster can be asked yet."""
    leader = None if workload.replica is None else workload.replica.leader
    return leader is not None and not leader.cluster_name


def _nomination(
    facts: DispatchFacts, workload: DispatchedWorkload, candidates: tuple[ClusterFacts, ...], now: datetime
) -> Nomination:
    """What the dispatcher nominates, and the cluster with free capacity if it knows one.

    Not one that was asked in this dispatch: its free capacity may be what is provisioned for this workload, and would
    be lost with the request.
    """
    if facts.settings.dispatcher == DISPATCHER_CAPACITY:
        asked = {name for name, seen in facts.observations.items() if _of_this_dispatch(seen, workload)}
        candidates = tuple(cluster for cluster in candidates if cluster.name not in asked)
    # One with free capacity is granted without a question, or capacity would be provisioned meanwhile. If an object is
    # missing there, it refuses the grant, and is avoided for a while.
    unasked = replace(workload, dependency_kinds=frozenset())
    return dispatcher(facts.settings.dispatcher)(unasked, candidates, settings=facts.settings, now=now)


def _awaited(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> dict[str, float]:
    """The clusters that may provision and are not known well enough yet, with the seconds after which to look again.

    The mailboxes of a manager that pushes end with it, and a restored hub may lack them: such a cluster was nominated
    and has no assignment. It is waited for until it was away for as long as a lease.
    """
    found: dict[str, float] = {}
    for cluster in facts.clusters:
        if cluster.name not in workload.nominated or cluster.name in facts.observations or not cluster.takes_new_work:
            continue
        if of_replicas(facts, workload, cluster.name):
            continue
        lease = facts.settings.lease.total_seconds()
        left = lease if cluster.lost_since is None else lease - (now - cluster.lost_since).total_seconds()
        report = None if cluster.capacity is None else cluster.capacity.report
        if left > 0 and not (cluster.available and report is not None and report.provisioning is not None):
            found[cluster.name] = left
    return found


def _asked(
    facts: DispatchFacts,
    workload: DispatchedWorkload,
    left: tuple[ClusterFacts, ...],
    nomination: Nomination,
    *,
    waiting_for: int,
) -> tuple[str, ...]:
    """The clusters to ask, of those that can be asked and have not failed: those that were asked first."""
    if facts.settings.dispatcher != DISPATCHER_CAPACITY:
        able = {cluster.name for cluster in left}
        return tuple(name for name in nomination.clusters if name in able)
    asked = {name for name, seen in facts.observations.items() if _is_current(seen, workload)}
    preferred = workload.preferences.preferred

    def rank(cluster: ClusterFacts) -> tuple[bool, bool, bool, float, bytes]:
        unliked = preferred is not None and not preferred.matches(cluster.labels)
        # One that was nominated may have been asked by a manager that pushes, whose mailboxes ended with it.
        before = cluster.name not in asked, cluster.name not in workload.nominated
        return *before, unliked, -cluster.weight, share(workload, cluster)

    most = max(0, min(facts.settings.provisioning_clusters, MAX_NOMINATED) - waiting_for)
    return tuple(cluster.name for cluster in sorted(left, key=rank)[:most])


def _objection(workload: DispatchedWorkload, cluster: ClusterFacts) -> str:
    return objection(workload, cluster) or cluster.provisioning_problem


def _of_this_dispatch(observation: Observation, workload: DispatchedWorkload) -> bool:
    return (observation.epoch, observation.intent) == (workload.epoch, Intent.PROVISION)


def _is_current(observation: Observation | None, workload: DispatchedWorkload) -> bool:
    return (
        observation is not None
        and _of_this_dispatch(observation, workload)
        and observation.fingerprint == workload.fingerprint
    )


def _failed(observation: Observation, workload: DispatchedWorkload) -> bool:
    return _of_this_dispatch(observation, workload) and observation.has_phase(AssignmentPhase.REFUSED)


def _progress(cluster: str, observation: Observation | None) -> WaitingReason:
    answered = observation is not None and observation.has_phase(AssignmentPhase.PROVISIONING)
    message = observation.message if observation is not None and answered else ""
    return WaitingReason(cluster, message or messages.ASKED_TO_PROVISION)


def _pending(delegation: Delegation, text: str) -> tuple[DelegatedUpdate, ...]:
    """The new message; none if it is shown, or if there is nothing to show and nothing was shown."""
    if text == delegation.message:
        return ()
    return tuple(DelegatedUpdate(name, CheckState.PENDING, text) for name in delegation.checks)


def _failed_everywhere(delegation: Delegation, refusals: tuple[WaitingReason, ...]) -> DispatchPlan:
    """Each cluster that could be asked has failed: the next attempt, or none."""
    seconds = delegation.retry_seconds
    message = messages.no_cluster_provisioned(refusals, attempt=delegation.attempt, retry_seconds=seconds)
    state = CheckState.REJECTED if seconds is None else CheckState.RETRY
    # The others stay Pending: one check that fails evicts the workload, and each of them counts its attempts.
    update = DelegatedUpdate(delegation.checks[0], state, message, requeue_after_seconds=seconds)
    return DispatchPlan(
        rule=Rule.PROVISIONING_FAILED,
        delegated=(update,),
        waiting=refusals,
        events=(PlannedEvent(message=message, warning=True),),
    )
