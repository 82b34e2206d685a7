# SPDX-License-Identifier: Apache-2.0
"""Rules 6b and 8: while no cluster is chosen, grant one that reserved, else nominate clusters.

Owns which clusters may be nominated, which of those that reserved is granted, and the message of the Pending check. The
dispatcher chooses among the usable clusters. The grant depends on no worker's clock, is the same whenever it is
repeated, and spreads workloads evenly over equal clusters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.dispatchers.protocol import Nomination
from multikueue.dispatch.dispatchers.registry import dispatcher
from multikueue.dispatch.hub import messages, preemption_gates, waits
from multikueue.dispatch.hub.actions import (
    Action,
    Assign,
    CheckUpdate,
    DelegatedUpdate,
    DispatchPlan,
    PlannedEvent,
    RemoveAssignment,
    Rule,
    SetGate,
    SetIntent,
    WaitingReason,
)
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchFacts, Observation
from multikueue.dispatch.worker.assignment_state import DEPENDENCY_MISSING


def nominate(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan:
    """The plan for a workload with quota, a Pending check and no cluster."""
    if not workload.others_ready:
        # An assignment now would hold capacity on a worker while another check may take long or fail.
        return DispatchPlan(
            rule=Rule.NOT_YET, actions=tuple(RemoveAssignment(cluster) for cluster in facts.observations)
        )
    refuses = workload.adopts is not None and _declined(facts, workload)
    adopted = workload.adopts.cluster if workload.adopts is not None and not refuses else ""
    holders = [o for o in reservers(facts, workload) if adopted in ("", o.cluster)]
    winner = choose(workload, holders)
    if winner is not None:
        return grant(facts, workload, winner)
    # Dispatchers and adoptions see only usable clusters.
    candidates = tuple(cluster for cluster in facts.clusters if not why_unusable(facts, workload, cluster, now))
    if adopted:
        nomination = _adopting(adopted, candidates)
    else:
        failed = frozenset(name for name, until in facts.avoided.items() if until <= now)
        known = replace(workload, lacking=_lacking(facts, workload), failed_on=failed)
        nomination = dispatcher(facts.settings.dispatcher)(known, candidates, settings=facts.settings, now=now)
    if nomination.grant:
        return grant_at_once(facts, workload, nomination)
    actions: list[Action] = []
    usable = {cluster.name for cluster in candidates}
    turn = preemption_gates.next_turn(facts, workload, now, among=usable.intersection(nomination.clusters))
    for name in nomination.clusters:
        observation = facts.observations.get(name)
        if name not in usable:
            continue
        if observation is None or not _is_current(observation, workload):
            actions.append(Assign(name))
        elif observation.gate is not preemption_gates.position(facts, workload, name, now=now, opening=turn.begins):
            actions.append(SetGate(name))
    # The assignment that reports that the adoption was refused must stay.
    kept = {*nomination.clusters, *((workload.adopts.cluster,) if workload.adopts is not None and refuses else ())}
    # Nominations that are forbidden by now are dropped, whatever the dispatcher keeps.
    kept -= {name for name in kept if facts.policy.on(name) or of_replicas(facts, workload, name)}
    actions += (RemoveAssignment(cluster) for cluster in facts.observations if cluster not in kept)
    waiting = (*unusable_clusters(facts, workload, now), *_answers(nomination.waiting, facts.observations.values()))
    changed = set(nomination.clusters) != set(workload.nominated)
    return DispatchPlan(
        rule=Rule.NOMINATE,
        actions=tuple(actions),
        nominated=nomination.clusters if changed else None,
        check=pending_message(
            workload,
            waiting,
            no_cluster=not usable or not nomination.clusters or _all_declined(facts, nomination.clusters),
            everywhere=facts.policy.everywhere,
        ),
        waiting=waiting,
        verdicts=tuple(map(str, nomination.verdicts)),
        round=nomination.round,
        gate_opening=turn.begins,
        held_back=nomination.held_back,
        requeue_after=earliest(nomination.requeue_after, turn.requeue_after, end_of_avoidance(facts, now)),
        events=() if turn.begins is None else (PlannedEvent(message=messages.gate_opened(turn.begins.cluster)),),
    )


def _adopting(cluster: str, candidates: Iterable[ClusterFacts]) -> Nomination:
    """Nominate the cluster that runs it already, and no other while that one is not usable."""
    if any(candidate.name == cluster for candidate in candidates):
        return Nomination(clusters=(cluster,))
    return Nomination(clusters=(), waiting=(WaitingReason(cluster, messages.RUNS_THERE),))


def _lacking(facts: DispatchFacts, workload: DispatchedWorkload) -> frozenset[str]:
    """The clusters on which an object is missing that its pods need."""
    return frozenset(
        name
        for name, seen in facts.observations.items()
        if seen.epoch == workload.epoch
        and seen.has_phase(AssignmentPhase.REFUSED)
        and seen.reason == DEPENDENCY_MISSING
    )


def _declined(facts: DispatchFacts, workload: DispatchedWorkload) -> bool:
    """Whether the cluster refused to take the remote job over."""
    assert workload.adopts is not None
    seen = facts.observations.get(workload.adopts.cluster)
    return seen is not None and seen.epoch == workload.epoch and seen.has_phase(AssignmentPhase.REFUSED)


def grant(facts: DispatchFacts, workload: DispatchedWorkload, winner: Observation) -> DispatchPlan:
    """Choose a cluster that holds capacity."""
    message = messages.admitted_on(winner.cluster)
    return DispatchPlan(
        rule=Rule.GRANT,
        check=CheckUpdate(CheckState.READY, message),
        delegated=_delegated_ready(workload, messages.provisioned_on(winner.cluster, winner.message)),
        cluster_name=winner.cluster,
        nominated=(),
        actions=(
            SetIntent(winner.cluster, Intent.RUN),
            *(RemoveAssignment(cluster) for cluster in facts.observations if cluster != winner.cluster),
        ),
        events=(PlannedEvent(message=message),),
    )


def grant_at_once(facts: DispatchFacts, workload: DispatchedWorkload, nomination: Nomination) -> DispatchPlan:
    """Nominate and grant in one step: one status apply, then one assignment with intent Run."""
    winner = nomination.grant
    message = messages.admitted_on(winner)
    return DispatchPlan(
        rule=Rule.GRANT_AT_ONCE,
        check=CheckUpdate(CheckState.READY, message),
        delegated=_delegated_ready(workload, messages.free_on(winner)),
        cluster_name=winner,
        nominated=(),
        actions=(
            Assign(winner, Intent.RUN),
            *(RemoveAssignment(cluster) for cluster in facts.observations if cluster != winner),
        ),
        events=(PlannedEvent(message=message),),
        verdicts=tuple(map(str, nomination.verdicts)),
    )


def take_over(facts: DispatchFacts, workload: DispatchedWorkload) -> DispatchPlan:
    """Choose the cluster that runs the job of an elastic slice; what is sent changes when the slice is admitted.

    Other checks do not matter: nothing is started, and the job must not run on another cluster.
    """
    cluster = workload.runs_on
    return DispatchPlan(
        rule=Rule.TAKE_OVER,
        check=CheckUpdate(CheckState.READY, messages.admitted_on(cluster)),
        delegated=_delegated_ready(workload, messages.runs_already_on(cluster)),
        cluster_name=cluster,
        nominated=(),
        actions=tuple(RemoveAssignment(each) for each in facts.observations if each != cluster),
        events=(PlannedEvent(message=messages.admitted_on(cluster)),),
    )


def _delegated_ready(workload: DispatchedWorkload, message: str) -> tuple[DelegatedUpdate, ...]:
    """In the write of the grant: all checks are Ready at once, so that it is admitted."""
    checks = () if workload.delegation is None else workload.delegation.checks
    return tuple(DelegatedUpdate(name, CheckState.READY, message) for name in checks)


def _is_current(observation: Observation, workload: DispatchedWorkload) -> bool:
    return (
        observation.epoch == workload.epoch
        and observation.intent is Intent.RESERVE
        and observation.fingerprint == workload.fingerprint
    )


def unusable_clusters(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> Iterable[WaitingReason]:
    """The clusters that may not be nominated for this workload, each with the reason."""
    for cluster in facts.clusters:
        why = why_unusable(facts, workload, cluster, now)
        if why:
            yield WaitingReason(cluster.name, why)


def why_unusable(facts: DispatchFacts, workload: DispatchedWorkload, cluster: ClusterFacts, now: datetime) -> str:
    """Why the cluster may not be nominated for this workload; empty if it may."""
    why = waits.unusable(cluster, facts.avoided, now, forbidden=facts.policy.on(cluster.name))
    why = why or of_replicas(facts, workload, cluster.name)
    return why or waits.kind_served(workload, cluster) or waits.queues_admit(workload, cluster)


def of_replicas(facts: DispatchFacts, workload: DispatchedWorkload, cluster: str) -> str:
    """Why other replicas of the owner keep the workload from that cluster; empty if they do not.

    What is to be adopted runs already, and follows no other replica.
    """
    if workload.replica is None or (workload.adopts is not None and not _declined(facts, workload)):
        return ""
    return workload.replica.objection(cluster)


def _answers(assumed: Iterable[WaitingReason], observations: Iterable[Observation]) -> Iterable[WaitingReason]:
    """One reason per cluster: that of the dispatcher, unless the cluster refused with its own reason."""
    found = {entry.cluster: entry for entry in assumed}
    for observation in observations:
        why = waits.answer(observation)
        if why and (observation.cluster not in found or observation.phase is AssignmentPhase.REFUSED):
            found[observation.cluster] = WaitingReason(observation.cluster, why)
    return found.values()


def _all_declined(facts: DispatchFacts, nominated: Iterable[str]) -> bool:
    """Whether each of them has refused or reported a reason; one that has not answered may still reserve."""
    observations = [facts.observations.get(name) for name in nominated]
    return all(o is not None and (o.has_phase(AssignmentPhase.REFUSED) or waits.answer(o)) for o in observations)


def pending_message(
    workload: DispatchedWorkload, waiting: tuple[WaitingReason, ...], *, no_cluster: bool, everywhere: str
) -> CheckUpdate | None:
    """The new message of the Pending check; None if it says so already."""
    # Written when no cluster can take the workload, and when that ends; not for a short wait or a changed amount.
    # `mkctl explain` shows current amounts.
    assert workload.check is not None
    text = messages.waiting(waiting) if no_cluster else ""
    if everywhere:
        text = messages.forbidden_everywhere(everywhere)
    current = workload.check.message
    if waits.same_cause(current, text) or (not text and not current.startswith(messages.WAITING)):
        return None
    return CheckUpdate(CheckState.PENDING, text)


def end_of_avoidance(facts: DispatchFacts, now: datetime) -> float | None:
    """The seconds until the next avoided cluster may be nominated again."""
    ends = [(until - now).total_seconds() for until in facts.avoided.values() if now < until]
    return min(ends, default=None)


def earliest(*moments: float | None) -> float | None:
    """The least of those that are not None."""
    return min((moment for moment in moments if moment is not None), default=None)


_HOLDING: Final = frozenset({AssignmentPhase.RESERVED, AssignmentPhase.RUNNING, AssignmentPhase.FINISHED})
PROVISIONED: Final = frozenset({AssignmentPhase.PROVISIONED, AssignmentPhase.RUNNING, AssignmentPhase.FINISHED})


def reservers(
    facts: DispatchFacts, workload: DispatchedWorkload, *, holding: frozenset[AssignmentPhase] = _HOLDING
) -> tuple[Observation, ...]:
    """The usable clusters of the config that hold capacity for this epoch and that are still allowed.

    `holding` are the phases in which a cluster does.
    """
    usable = {
        cluster.name
        for cluster in facts.clusters
        if _usable(cluster) and not facts.policy.on(cluster.name) and not of_replicas(facts, workload, cluster.name)
    }
    return tuple(
        observation
        for name, observation in facts.observations.items()
        if name in usable
        and observation.workload_uid == workload.uid
        and observation.epoch == workload.epoch
        and observation.answered
        and observation.phase in holding
    )


def choose(workload: DispatchedWorkload, candidates: Iterable[Observation]) -> Observation | None:
    """The winner: one that runs it already (after a restore), else the highest hash of workload and cluster."""

    def rank(candidate: Observation) -> tuple[bool, bytes, str]:
        return (
            candidate.phase not in (AssignmentPhase.RESERVED, AssignmentPhase.PROVISIONED),
            _weight(workload.uid, candidate.cluster),
            candidate.cluster,
        )

    return max(candidates, key=rank, default=None)


def _usable(cluster: ClusterFacts) -> bool:
    # A cluster that was cordoned must not be granted what it reserved before.
    return cluster.available and cluster.takes_new_work


def _weight(uid: str, cluster: str) -> bytes:
    return hashlib.blake2b(f"{uid}/{cluster}".encode(), digest_size=8).digest()
