# SPDX-License-Identifier: Apache-2.0
"""Rules 6b and 8 while no cluster is chosen: grant to one that holds room, else see that the right ones have a copy.

Owns who may be nominated and what the check says meanwhile. The choice among the usable is the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from multikueue.api.constants import CheckState
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.federation import messages, preemption_gates, waits
from multikueue.federation.actions import (
    Action,
    Assign,
    CheckUpdate,
    Plan,
    PlannedEvent,
    Remove,
    Rule,
    SetGate,
    SetIntent,
    Waiting,
)
from multikueue.federation.dispatchers.protocol import Nomination
from multikueue.federation.dispatchers.registry import dispatcher
from multikueue.federation.facts import ClusterFacts, Facts, Observation, WorkloadFacts
from multikueue.federation.grants import choose, reservers


def nominate(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan:
    """The plan for a workload with quota, a Pending check and no cluster."""
    if not workload.others_ready:
        # A copy now would hold room on a worker while a check of this side may still take long or fail.
        return Plan(rule=Rule.NOT_YET, actions=tuple(Remove(cluster) for cluster in facts.observations))
    refuses = workload.adopts is not None and _declined(facts, workload)
    adopted = workload.adopts.cluster if workload.adopts is not None and not refuses else ""
    holders = [o for o in reservers(facts, workload) if adopted in ("", o.cluster)]
    winner = choose(workload, holders)
    if winner is not None:
        return _grant(facts, winner)
    candidates = tuple(cluster for cluster in facts.clusters if not waits.unusable(cluster, facts.avoided, now))
    if adopted:
        nomination = _adopting(adopted, candidates)
    else:
        nomination = dispatcher(facts.settings.dispatcher)(workload, candidates, settings=facts.settings, now=now)
    if nomination.grant:
        return _grant_at_once(facts, nomination)
    actions: list[Action] = []
    usable = {cluster.name for cluster in candidates}
    turn = preemption_gates.next_turn(facts, workload, now, among=usable.intersection(nomination.clusters))
    for name in nomination.clusters:
        observation = facts.observations.get(name)
        if name not in usable:
            continue
        if observation is None or not _stands(observation, workload):
            actions.append(Assign(name))
        elif observation.gate is not preemption_gates.position(facts, workload, name, now=now, opening=turn.begins):
            actions.append(SetGate(name))
    # That a copy is not gone on with after all is known from the assignment that says so.
    kept = {*nomination.clusters, *((workload.adopts.cluster,) if workload.adopts is not None and refuses else ())}
    actions += (Remove(cluster) for cluster in facts.observations if cluster not in kept)
    waiting = (*_unusable(facts, now), *_answers(nomination.waiting, facts.observations.values()))
    changed = set(nomination.clusters) != set(workload.nominated)
    return Plan(
        rule=Rule.NOMINATE,
        actions=tuple(actions),
        nominated=nomination.clusters if changed else None,
        check=_pending_message(
            workload,
            waiting,
            nobody=not usable or not nomination.clusters or _all_declined(facts, nomination.clusters),
        ),
        waiting=waiting,
        verdicts=tuple(map(str, nomination.verdicts)),
        round=nomination.round,
        gate_opening=turn.begins,
        held_back=nomination.held_back,
        requeue_after=_earliest(nomination.requeue_after, turn.requeue_after, _end_of_avoidance(facts, now)),
        events=() if turn.begins is None else (PlannedEvent(message=messages.gate_opened(turn.begins.cluster)),),
    )


def _adopting(cluster: str, candidates: Iterable[ClusterFacts]) -> Nomination:
    """The cluster that runs it already, and as long as that one may not be nominated, none."""
    if any(candidate.name == cluster for candidate in candidates):
        return Nomination(clusters=(cluster,))
    return Nomination(clusters=(), waiting=(Waiting(cluster, messages.RUNS_THERE),))


def _declined(facts: Facts, workload: WorkloadFacts) -> bool:
    """Whether the cluster says that it does not go on with the copy after all."""
    assert workload.adopts is not None
    seen = facts.observations.get(workload.adopts.cluster)
    return seen is not None and seen.epoch == workload.epoch and seen.says(Phase.REFUSED)


def _grant(facts: Facts, winner: Observation) -> Plan:
    message = messages.admitted_on(winner.cluster)
    return Plan(
        rule=Rule.GRANT,
        check=CheckUpdate(CheckState.READY, message),
        cluster_name=winner.cluster,
        nominated=(),
        actions=(
            SetIntent(winner.cluster, Intent.RUN),
            *(Remove(cluster) for cluster in facts.observations if cluster != winner.cluster),
        ),
        events=(PlannedEvent(message=message),),
    )


def _grant_at_once(facts: Facts, nomination: Nomination) -> Plan:
    """Nomination and grant in one: one status apply, then one assignment that may run."""
    winner = nomination.grant
    message = messages.admitted_on(winner)
    return Plan(
        rule=Rule.GRANT_AT_ONCE,
        check=CheckUpdate(CheckState.READY, message),
        cluster_name=winner,
        nominated=(),
        actions=(
            Assign(winner, Intent.RUN),
            *(Remove(cluster) for cluster in facts.observations if cluster != winner),
        ),
        events=(PlannedEvent(message=message),),
        verdicts=tuple(map(str, nomination.verdicts)),
    )


def _stands(observation: Observation, workload: WorkloadFacts) -> bool:
    return (
        observation.epoch == workload.epoch
        and observation.intent is Intent.RESERVE
        and observation.fingerprint == workload.fingerprint
    )


def _unusable(facts: Facts, now: datetime) -> Iterable[Waiting]:
    for cluster in facts.clusters:
        why = waits.unusable(cluster, facts.avoided, now)
        if why:
            yield Waiting(cluster.name, why)


def _answers(thought: Iterable[Waiting], observations: Iterable[Observation]) -> Iterable[Waiting]:
    """One reason for each cluster: what is thought of it, unless it refused for a reason of its own."""
    found = {entry.cluster: entry for entry in thought}
    for observation in observations:
        why = waits.answer(observation)
        if why and (observation.cluster not in found or observation.phase is Phase.REFUSED):
            found[observation.cluster] = Waiting(observation.cluster, why)
    return found.values()


def _all_declined(facts: Facts, nominated: Iterable[str]) -> bool:
    """Whether each of them has said why not; one that has not answered yet may say yes in a moment."""
    observations = [facts.observations.get(name) for name in nominated]
    return all(o is not None and (o.says(Phase.REFUSED) or waits.answer(o)) for o in observations)


def _pending_message(workload: WorkloadFacts, waiting: tuple[Waiting, ...], *, nobody: bool) -> CheckUpdate | None:
    # Written when nobody can take the workload, and when that is over: not for each wait of a moment, nor for each
    # amount that changes. `mkctl explain` has the amounts of now.
    assert workload.check is not None
    text = messages.waiting(waiting) if nobody else ""
    said = workload.check.message
    if waits.same_cause(said, text) or (not text and not said.startswith(messages.WAITING)):
        return None
    return CheckUpdate(CheckState.PENDING, text)


def _end_of_avoidance(facts: Facts, now: datetime) -> float | None:
    ends = [(until - now).total_seconds() for until in facts.avoided.values() if now < until]
    return min(ends, default=None)


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
