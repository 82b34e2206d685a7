# SPDX-License-Identifier: Apache-2.0
"""The plan for one workload: numbered rules, the first match wins.

Owns the order of `docs/spec/multikueue.md §1.5` with these corrections: `clusterName` is the only winner, so a late or
returning cluster never replaces it; every cause of unavailability is treated alike; status for an older epoch is
ignored; a cluster that refuses a granted workload is avoided, and the workload goes through Retry. A pure function of
its arguments; `manager/dispatch` executes the plan in the order that `actions` states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.constants import CheckState, PartitionPolicy
from multikueue.api.reasons import FinishedReason
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.actions import (
    Action,
    Assign,
    CheckUpdate,
    DeclareStopped,
    DispatchPlan,
    Finish,
    PlannedEvent,
    RecordFailure,
    RemoveAssignment,
    Rule,
    SetIntent,
    SyncStatus,
    WaitingReason,
)
from multikueue.dispatch.hub.availability import describe_loss, mass_loss, policy_on, remaining_grace
from multikueue.dispatch.hub.condition_updates import change_update, start_update
from multikueue.dispatch.hub.delegation import delegate
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchFacts, Observation
from multikueue.dispatch.hub.failed_jobs import ended_there, failed_there, kept_for
from multikueue.dispatch.hub.nomination import nominate, take_over
from multikueue.dispatch.protocol.phases import JOB_GONE
from multikueue.dispatch.worker.assignment_state import (
    CAPACITY_REVOKED,
    DEPENDENCY_MISSING,
    JOB_SUSPENDED,
    NO_CAPACITY,
    QUEUE_MISSING,
)


def plan(facts: DispatchFacts, now: datetime) -> DispatchPlan:
    """The plan of the first rule that applies."""
    workload = facts.workload
    if workload is None or (workload.deleting and not workload.stopping):
        return DispatchPlan(rule=Rule.GONE, actions=_remove_all(facts))
    # Assignments of a former workload of the same name.
    stale = [o for o in facts.observations.values() if o.workload_uid != workload.uid]
    if stale:
        return DispatchPlan(
            rule=Rule.GONE, actions=tuple(RemoveAssignment(o.cluster) for o in stale), requeue_after=0.0
        )
    for rule in _RULES if workload.check is not None else _RULES_WITHOUT_CHECK:
        found = rule(facts, workload, now)
        if found is not None:
            return found
    if workload.check is None:
        return DispatchPlan(rule=Rule.NOT_DISPATCHED, actions=_remove_all(facts))
    if workload.delegation is not None and workload.adopts is None:
        return delegate(facts, workload, workload.delegation, now)
    return nominate(facts, workload, now)


_RuleFunction = Callable[[DispatchFacts, DispatchedWorkload, datetime], DispatchPlan | None]


def _cannot_be_remote(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan | None:
    """Reject an owner without an adapter, or one that the Job controller of Kubernetes would run."""
    if not workload.owner.problem or workload.finished or _state(workload) is CheckState.REJECTED:
        return None
    return DispatchPlan(
        rule=Rule.CANNOT_BE_REMOTE,
        check=CheckUpdate(CheckState.REJECTED, workload.owner.problem),
        actions=_remove_all(facts) if not workload.cluster_name else (),
    )


def _finished_or_no_quota(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan | None:
    """2. Nothing may run anywhere. A disconnected cluster finds its mailbox empty when it reconnects.

    The assignment of a Job that failed stays for a while, so that its pods can be looked at, and that of one whose logs
    are read until the last line has arrived.
    """
    if workload.quota_reserved and not workload.finished:
        return None
    ended, failed = ended_there(facts, workload), failed_there(facts, workload)
    if ended is not None:
        left = kept_for(facts, workload, now)
        removed = tuple(RemoveAssignment(name) for name in facts.observations if left <= 0 or name != ended.cluster)
        recorded = () if failed is None or failed.failure is None else (RecordFailure(failed.cluster),)
        return DispatchPlan(
            rule=Rule.FINISHED_OR_NO_QUOTA,
            actions=(*recorded, *removed),
            requeue_after=left if left > 0 else None,
        )
    return DispatchPlan(rule=Rule.FINISHED_OR_NO_QUOTA, actions=_remove_all(facts))


def _remote_finished(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan | None:
    """3. The granted cluster reports that the job ended, even if it was asked to stop shortly before."""
    ended = next(
        (o for o in _granted(facts, workload) if o.has_phase(AssignmentPhase.FINISHED) and o.end is not None), None
    )
    if ended is None or ended.end is None:
        return None
    if ended.end.reason == FinishedReason.OUT_OF_SYNC:
        if _state(workload) is not CheckState.READY:
            return None
        message = messages.out_of_sync(ended.cluster)
        # The cause may persist: without a pause it would be dispatched there again and again.
        avoid = (ended.cluster, facts.settings.avoid_lost_for)
        return _retry(Rule.REMOTE_OUT_OF_SYNC, message, avoid=avoid)
    if ended.cluster in workload.ends_of_former_pods:
        if workload.stopping or _state(workload) is not CheckState.READY:
            return None
        return _retry(Rule.REMOTE_OUT_OF_SYNC, messages.out_of_sync(ended.cluster))
    return DispatchPlan(
        rule=Rule.REMOTE_FINISHED,
        actions=(SyncStatus(ended.cluster),),
        finish=Finish(ended.end.reason, ended.end.message),
    )


def _stopping(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan | None:
    """4. and 6b for a workload that has to stop: its quota is released once the job is inactive.

    Assignments without the grant are removed. The granted one gets intent Evict, and its last status is synced. The
    wait for a lost cluster is as long as for running work.
    """
    if not workload.stopping:
        return None
    actions: list[Action] = []
    requeue_after: float | None = None
    granted = _granted(facts, workload)
    for observation in facts.observations.values():
        if observation not in granted:
            actions.append(RemoveAssignment(observation.cluster))
    for observation in granted:
        if (
            observation.has_phase(AssignmentPhase.EVICTED)
            and observation.job_status is not None
            and observation.reason != JOB_GONE
        ):
            actions.append(SyncStatus(observation.cluster))
        elif (
            observation.has_phase(AssignmentPhase.REFUSED)
            or observation.has_phase(AssignmentPhase.EVICTED)
            or (observation.has_phase(AssignmentPhase.FINISHED) and observation.cluster in workload.ends_of_former_pods)
        ):
            actions.append(DeclareStopped())
        else:
            grace = _grace_of_silent(facts, observation.cluster, now)
            if grace is not None and grace <= 0:
                actions += (DeclareStopped(), RemoveAssignment(observation.cluster))
                continue
            cluster = facts.cluster(observation.cluster)
            if grace is None and cluster is not None and not cluster.available:
                # No event reports the link of a cluster outside the config, so check it periodically.
                grace = facts.settings.lease.total_seconds()
            requeue_after = grace if requeue_after is None else requeue_after
            if observation.intent is not Intent.EVICT:
                actions.append(SetIntent(observation.cluster, Intent.EVICT))
            actions.append(SyncStatus(observation.cluster))
    if not granted:
        requeue_after = _grace_after_removal(facts, workload, now)
        if requeue_after is None:
            actions.append(DeclareStopped())
    return DispatchPlan(rule=Rule.STOPPING, actions=tuple(actions), requeue_after=requeue_after)


def _grace_of_silent(facts: DispatchFacts, name: str, now: datetime) -> float | None:
    """The seconds to wait for a disconnected cluster to stop the work; None while its agent is connected.

    A cluster that was removed from the config can still stop its work.
    """
    cluster = facts.cluster(name)
    if cluster is None:
        return 0.0
    if cluster.agent_lost_since is None or _cannot_be_fenced(facts, cluster):
        return None
    grace = remaining_grace(cluster.agent_lost_since, policy=policy_on(facts, name), settings=facts.settings, now=now)
    return None if grace is None else grace.total_seconds()


def _grace_after_removal(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> float | None:
    """The seconds for which work may still run on a cluster that was removed with its mailbox; None if over."""
    cluster = facts.cluster(workload.cluster_name)
    if cluster is None or cluster.exists:
        return None
    policy = _policy_after_removal(facts, cluster.name)
    grace = remaining_grace(cluster.lost_since, policy=policy, settings=facts.settings, now=now)
    return grace.total_seconds() if grace is not None and grace.total_seconds() > 0 else None


def _waits_for_eviction(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan | None:
    """The workload reconciler evicts or deactivates a workload whose check is Retry or Rejected."""
    if _state(workload) not in (CheckState.RETRY, CheckState.REJECTED):
        return None
    return DispatchPlan(rule=Rule.WAITS_FOR_EVICTION)


def _chosen(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan | None:
    """6. A cluster is chosen, and no other can be until an eviction clears it."""
    name = workload.cluster_name
    if not name:
        if _state(workload) is CheckState.READY:
            return _retry(Rule.NO_LONGER_THERE, messages.READY_WITHOUT_CLUSTER)
        return take_over(facts, workload) if workload.runs_on else None
    losers = tuple(RemoveAssignment(cluster) for cluster in facts.observations if cluster != name)
    observation = facts.observations.get(name)
    if observation is None and facts.delivered:
        went = _cluster_removed(facts, workload, losers, now)
        return went or _retry(Rule.NO_LONGER_THERE, messages.NO_LONGER_THERE, actions=losers)
    if observation is None or observation.epoch < workload.epoch:
        return _lost(facts, workload, losers, now) or _forbidden(facts, workload, losers) or _deliver(workload, losers)
    if observation.has_phase(AssignmentPhase.REFUSED) and observation.intent is Intent.RUN:
        message = messages.refused(name, observation.reason, observation.message)
        # Capacity, queues and the objects that pods need change within moments; an invalid Job does not.
        settings = facts.settings
        short = {
            NO_CAPACITY: settings.avoid_lost_for,
            DEPENDENCY_MISSING: settings.avoid_lost_for,
            QUEUE_MISSING: settings.avoid_without_queue_for,
        }
        avoid = (name, short.get(observation.reason, settings.avoid_for))
        return _retry(Rule.REFUSED, message, actions=losers, avoid=avoid)
    if observation.has_phase(AssignmentPhase.EVICTED):
        if observation.reason == JOB_GONE:
            return _retry(Rule.NO_LONGER_THERE, messages.NO_LONGER_THERE, actions=losers)
        message = messages.evicted_on_worker(name, observation.message, _state(workload))
        # The Job is likely to be suspended there again: without a pause it would be dispatched in a loop.
        # Capacity that was revoked is not offered again soon.
        pauses = {JOB_SUSPENDED: facts.settings.avoid_lost_for, CAPACITY_REVOKED: facts.settings.avoid_for}
        avoid = (name, pauses[observation.reason]) if observation.reason in pauses else ("", timedelta())
        return _retry(Rule.REMOTE_EVICTED, message, actions=(SyncStatus(name), *losers), avoid=avoid)
    return (
        _lost(facts, workload, losers, now)
        or _not_started(facts, workload, observation, losers, now)
        or _drained(facts, workload, observation, losers, now)
        or replace(
            _granted_plan(workload, observation, losers),
            requeue_after=_start_time_left(facts, workload, observation, now),
        )
    )


def _without_check(facts: DispatchFacts, workload: DispatchedWorkload, now: datetime) -> DispatchPlan | None:
    """The queue has no MultiKueue check any more: what runs continues to its end.

    A workload that the cluster stopped or refused has no check to retry: it is evicted, and admitted again as its queue
    requires by then.
    """
    observation = facts.observations.get(workload.cluster_name)
    if observation is None or observation.intent is not Intent.RUN or observation.epoch < workload.epoch:
        return None
    losers = tuple(RemoveAssignment(cluster) for cluster in facts.observations if cluster != observation.cluster)
    stopped = Rule.REMOTE_EVICTED if observation.has_phase(AssignmentPhase.EVICTED) else Rule.REFUSED
    if stopped is Rule.REFUSED and not observation.has_phase(AssignmentPhase.REFUSED):
        return _granted_plan(workload, observation, losers)
    message = messages.stopped_without_check(observation.cluster, observation.message)
    return DispatchPlan(
        rule=stopped, actions=losers, evict=message, events=(PlannedEvent(message=message, warning=True),)
    )


def _not_started(
    facts: DispatchFacts,
    workload: DispatchedWorkload,
    observation: Observation,
    losers: tuple[RemoveAssignment, ...],
    now: datetime,
) -> DispatchPlan | None:
    """6a. No pod has started on the chosen cluster for too long: try elsewhere, and there again after a while."""
    left = _start_time_left(facts, workload, observation, now)
    problem = observation.start_problem
    if left is None or left > 0 or problem is None:
        return None
    message = messages.pods_given_up(observation.cluster, problem.reason, problem.message)
    # The cause rarely goes by itself: with one cluster only, a shorter pause would evict the workload again and again.
    avoid = (observation.cluster, facts.settings.avoid_for)
    return _retry(Rule.PODS_NOT_STARTED, message, actions=losers, avoid=avoid)


def _start_time_left(
    facts: DispatchFacts, workload: DispatchedWorkload, observation: Observation, now: datetime
) -> float | None:
    """The seconds until the place is given back; None if its pods have started, or if that is never done.

    They are counted from the condition on the hub, since the clock of a worker may be wrong.
    """
    timeout, shown = facts.settings.pods_start_timeout, workload.not_started
    if observation.start_problem is None or not observation.has_phase(AssignmentPhase.RUNNING) or not timeout:
        return None
    waited = timedelta() if shown is None else now - shown.last_transition_time
    return (timeout - waited).total_seconds()


def _drained(
    facts: DispatchFacts,
    workload: DispatchedWorkload,
    observation: Observation,
    losers: tuple[RemoveAssignment, ...],
    now: datetime,
) -> DispatchPlan | None:
    """6a. The chosen cluster is drained: what has not started moves at once, what runs moves at the deadline."""
    cluster = facts.cluster(workload.cluster_name)
    if cluster is None or not cluster.draining:
        return None
    left: float | None = None
    if observation.has_phase(AssignmentPhase.RUNNING) or observation.has_phase(AssignmentPhase.FINISHED):
        if cluster.drain_deadline is None:
            return None
        left = (cluster.drain_deadline - now).total_seconds()
    if left is None or left <= 0:
        return _retry(Rule.DRAINED, messages.drained(cluster.name), actions=losers)
    return replace(_granted_plan(workload, observation, losers), requeue_after=left)


def _lost(
    facts: DispatchFacts,
    workload: DispatchedWorkload,
    losers: tuple[RemoveAssignment, ...],
    now: datetime,
    *,
    policy: PartitionPolicy | None = None,
) -> DispatchPlan | None:
    """6a. The chosen cluster is lost: wait, then dispatch elsewhere if `policy`, or that of the cluster, permits it."""
    cluster = facts.cluster(workload.cluster_name)
    if cluster is not None and cluster.available:
        return None
    since = None if cluster is None else cluster.lost_since
    policy = policy or policy_on(facts, workload.cluster_name)
    grace = remaining_grace(since, policy=policy, settings=facts.settings, now=now)
    if grace is None:
        return DispatchPlan(rule=Rule.LOST, actions=losers)
    # Without any facts about the cluster there is nothing to wait for.
    if cluster is not None and grace.total_seconds() > 0:
        return DispatchPlan(rule=Rule.LOST, actions=losers, requeue_after=grace.total_seconds())
    held = mass_loss(facts.clusters, facts.settings)
    if cluster is not None and _cannot_be_fenced(facts, cluster):
        held = messages.CANNOT_STOP
    if held:
        return DispatchPlan(
            rule=Rule.HELD,
            actions=losers,
            waiting=(WaitingReason(workload.cluster_name, held),),
            requeue_after=facts.settings.lease.total_seconds(),
        )
    detail = describe_loss(cluster, workload.cluster_name)
    return _retry(
        Rule.LOST,
        messages.LOST,
        actions=losers,
        avoid=(workload.cluster_name, facts.settings.avoid_lost_for),
        detail=f"{messages.LOST}: {detail}",
    )


def _cluster_removed(
    facts: DispatchFacts, workload: DispatchedWorkload, losers: tuple[RemoveAssignment, ...], now: datetime
) -> DispatchPlan | None:
    """6a. The cluster was removed with its mailbox, so its agent may still run the work."""
    cluster = facts.cluster(workload.cluster_name)
    if cluster is None or cluster.exists:
        return None
    return _lost(facts, workload, losers, now, policy=_policy_after_removal(facts, cluster.name))


def _policy_after_removal(facts: DispatchFacts, cluster: str) -> PartitionPolicy:
    """Work with policy Keep on a removed cluster is treated like Failover."""
    policy = policy_on(facts, cluster)
    return PartitionPolicy.FAILOVER if policy is PartitionPolicy.KEEP else policy


def _cannot_be_fenced(facts: DispatchFacts, cluster: ClusterFacts) -> bool:
    # Without anything to stop it no wait is long enough; an administrator may remove the cluster.
    return policy_on(facts, cluster.name) is PartitionPolicy.FENCED and cluster.cannot_stop


def _forbidden(
    facts: DispatchFacts, workload: DispatchedWorkload, losers: tuple[RemoveAssignment, ...]
) -> DispatchPlan | None:
    """6a. The chosen cluster has no assignment yet, and a policy forbids it now: sending it would be a new dispatch."""
    why = facts.policy.on(workload.cluster_name)
    if not why:
        return None
    return _retry(Rule.FORBIDDEN, messages.forbidden(workload.cluster_name, why), actions=losers)


def _deliver(workload: DispatchedWorkload, losers: tuple[RemoveAssignment, ...]) -> DispatchPlan:
    """6b. The grant is written, and the assignment is not: write it."""
    return DispatchPlan(rule=Rule.DELIVER, actions=(Assign(workload.cluster_name, Intent.RUN), *losers))


def _granted_plan(
    workload: DispatchedWorkload, observation: Observation, losers: tuple[RemoveAssignment, ...]
) -> DispatchPlan:
    """6b. It runs there: other assignments are removed, the job's status is synced, the check is Ready."""
    actions: list[Action] = []
    # Intent Evict is never changed back to Run: it will report Evicted and go through Retry.
    if observation.fingerprint != workload.fingerprint and observation.intent is not Intent.EVICT:
        # A new priority, for example, is forwarded to the running job.
        actions.append(Assign(observation.cluster, Intent.RUN))
    elif observation.intent.precedes_grant:
        actions.append(SetIntent(observation.cluster, Intent.RUN))
    if observation.answered and observation.job_status is not None:
        actions.append(SyncStatus(observation.cluster))
    ready = workload.check is None or _state(workload) is CheckState.READY
    return DispatchPlan(
        rule=Rule.GRANTED,
        actions=(*actions, *losers),
        check=None if ready else CheckUpdate(CheckState.READY, messages.admitted_on(observation.cluster)),
        nominated=() if workload.nominated else None,
        pods_started=start_update(workload, observation),
        change_forwarded=change_update(workload, observation),
    )


def _retry(
    rule: Rule,
    message: str,
    *,
    actions: tuple[Action, ...] = (),
    avoid: tuple[str, timedelta] = ("", timedelta()),
    detail: str = "",
) -> DispatchPlan:
    return DispatchPlan(
        rule=rule,
        actions=actions,
        check=CheckUpdate(CheckState.RETRY, message),
        avoid=avoid[0],
        avoid_for=avoid[1],
        events=(PlannedEvent(message=detail or message, warning=True),),
    )


def _granted(facts: DispatchFacts, workload: DispatchedWorkload) -> tuple[Observation, ...]:
    """The granted assignment: that of clusterName or, once an eviction cleared it, the one with intent Run or Evict.

    An eviction counts in the workload's epoch at once, so it is the newest of them. An older one is of a cluster that
    was lost and came back, or was restored from a backup: how its job ended is not how this one does.
    """
    if workload.cluster_name:
        found = facts.observations.get(workload.cluster_name)
        is_former = found is not None and found.epoch < workload.epoch and not workload.stopping
        return () if found is None or is_former else (found,)
    if not workload.stopping:
        return ()
    granted = [o for o in facts.observations.values() if not o.intent.precedes_grant]
    newest = max((o.epoch for o in granted), default=0)
    return tuple(o for o in granted if o.epoch == newest)


def _remove_all(facts: DispatchFacts) -> tuple[RemoveAssignment, ...]:
    return tuple(RemoveAssignment(cluster) for cluster in facts.observations)


def _state(workload: DispatchedWorkload) -> CheckState:
    return CheckState.PENDING if workload.check is None else workload.check.state


_RULES: Final[tuple[_RuleFunction, ...]] = (
    _cannot_be_remote,
    _finished_or_no_quota,
    _remote_finished,
    _stopping,
    _waits_for_eviction,
    _chosen,
)
_RULES_WITHOUT_CHECK: Final[tuple[_RuleFunction, ...]] = (
    _finished_or_no_quota,
    _remote_finished,
    _stopping,
    _without_check,
)
