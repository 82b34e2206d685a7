# SPDX-License-Identifier: Apache-2.0
"""What to do about one workload now: the numbered rules, first match wins.

Owns the order of `docs/spec/multikueue.md §1.5` with these corrections: `clusterName` is the only winner, so a late
or returning cluster never overtakes it; a cluster counts as unavailable for any cause alike; a word about an older
epoch is no answer; a cluster that refuses what it was granted is passed over, and the workload goes through Retry.
Promises to be a function of its arguments. Carrying a plan out, in the order that `actions` states, is
`manager/dispatch`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.constants import CheckState, PartitionPolicy
from multikueue.api.reasons import FinishedReason
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.federation import messages
from multikueue.federation.actions import (
    Action,
    Assign,
    CheckUpdate,
    DeclareStopped,
    Finish,
    MirrorStatus,
    Plan,
    PlannedEvent,
    Remove,
    Rule,
    SetIntent,
    Waiting,
)
from multikueue.federation.availability import describe_loss, mass_loss, remaining_grace
from multikueue.federation.facts import ClusterFacts, Facts, Observation, WorkloadFacts
from multikueue.federation.nomination import nominate
from multikueue.federation.phases import JOB_GONE


def plan(facts: Facts, now: datetime) -> Plan:
    """The plan of the first rule that applies."""
    workload = facts.workload
    if workload is None or (workload.deleting and not workload.stopping):
        return Plan(rule=Rule.GONE, actions=_remove_all(facts))
    # A workload of the same name that was there before: its copies are nobody's.
    strangers = [o for o in facts.observations.values() if o.workload_uid != workload.uid]
    if strangers:
        return Plan(rule=Rule.GONE, actions=tuple(Remove(o.cluster) for o in strangers), requeue_after=0.0)
    for rule in _RULES if workload.check is not None else _RULES_WITHOUT_CHECK:
        found = rule(facts, workload, now)
        if found is not None:
            return found
    if workload.check is None:
        return Plan(rule=Rule.NOT_DISPATCHED, actions=_remove_all(facts))
    return nominate(facts, workload, now)


_RuleFunction = Callable[[Facts, WorkloadFacts, datetime], Plan | None]


def _cannot_be_remote(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan | None:
    """An owner without adapter, or one that Kubernetes' own controller would run, is rejected for good."""
    if not workload.owner.problem or workload.finished or _state(workload) is CheckState.REJECTED:
        return None
    return Plan(
        rule=Rule.CANNOT_BE_REMOTE,
        check=CheckUpdate(CheckState.REJECTED, workload.owner.problem),
        actions=_remove_all(facts) if not workload.cluster_name else (),
    )


def _finished_or_no_quota(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan | None:
    """2. Nothing is to run anywhere. A cluster that is away finds its mailbox empty when it comes back."""
    if workload.quota_reserved and not workload.finished:
        return None
    return Plan(rule=Rule.FINISHED_OR_NO_QUOTA, actions=_remove_all(facts))


def _remote_finished(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan | None:
    """3. The granted cluster says that the job has ended; also when it was told to stop a moment too late."""
    ended = next((o for o in _granted(facts, workload) if o.says(Phase.FINISHED) and o.end is not None), None)
    if ended is None or ended.end is None:
        return None
    if ended.end.reason == FinishedReason.OUT_OF_SYNC:
        if _state(workload) is not CheckState.READY:
            return None
        message = messages.out_of_sync(ended.cluster)
        # What put it out of sync may still be there: without a pause it would be sent there again and again.
        avoid = (ended.cluster, facts.settings.avoid_lost_for)
        return _retry(Rule.REMOTE_OUT_OF_SYNC, message, avoid=avoid)
    return Plan(
        rule=Rule.REMOTE_FINISHED,
        actions=(MirrorStatus(ended.cluster),),
        finish=Finish(ended.end.reason, ended.end.message),
    )


def _stopping(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan | None:
    """4. and 6b for a workload that is to stop: its quota goes when the job is seen to be inactive.

    Copies that never had the grant are removed. The one that had it is told to stop and its last status is mirrored.
    A cluster that will not answer any more is not waited for longer than for running work.
    """
    if not workload.stopping:
        return None
    actions: list[Action] = []
    requeue_after: float | None = None
    granted = _granted(facts, workload)
    for observation in facts.observations.values():
        if observation not in granted:
            actions.append(Remove(observation.cluster))
    for observation in granted:
        if observation.says(Phase.EVICTED) and observation.job_status is not None and observation.reason != JOB_GONE:
            actions.append(MirrorStatus(observation.cluster))
        elif observation.says(Phase.REFUSED) or observation.says(Phase.EVICTED):
            actions.append(DeclareStopped())
        else:
            grace = _silence(facts, workload, observation.cluster, now)
            if grace is not None and grace <= 0:
                actions += (DeclareStopped(), Remove(observation.cluster))
                continue
            cluster = facts.cluster(observation.cluster)
            if grace is None and cluster is not None and not cluster.available:
                # Nobody watches the link of a cluster that is not in the config: look at it now and then.
                grace = facts.settings.lease.total_seconds()
            requeue_after = grace if requeue_after is None else requeue_after
            if observation.intent is not Intent.EVICT:
                actions.append(SetIntent(observation.cluster, Intent.EVICT))
            actions.append(MirrorStatus(observation.cluster))
    if not granted:
        requeue_after = _left_of_what_went(facts, workload, now)
        if requeue_after is None:
            actions.append(DeclareStopped())
    return Plan(rule=Rule.STOPPING, actions=tuple(actions), requeue_after=requeue_after)


def _silence(facts: Facts, workload: WorkloadFacts, name: str, now: datetime) -> float | None:
    """The seconds for which a cluster that is to stop the work is still waited for; None while it is heard.

    Whether it is in the config does not matter here: one that was taken out of it can stop its work in good order.
    """
    cluster = facts.cluster(name)
    if cluster is None:
        return 0.0
    if cluster.silent_since is None or _cannot_be_fenced(workload, cluster):
        return None
    grace = remaining_grace(cluster.silent_since, policy=workload.partition_policy, settings=facts.settings, now=now)
    return None if grace is None else grace.total_seconds()


def _left_of_what_went(facts: Facts, workload: WorkloadFacts, now: datetime) -> float | None:
    """The seconds for which work whose cluster was removed, its mailbox with it, may go on there; None when over."""
    cluster = facts.cluster(workload.cluster_name)
    if cluster is None or cluster.exists:
        return None
    policy = _given_up(workload).partition_policy
    grace = remaining_grace(cluster.lost_since, policy=policy, settings=facts.settings, now=now)
    return grace.total_seconds() if grace is not None and grace.total_seconds() > 0 else None


def _waits_for_eviction(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan | None:
    """A check in Retry or Rejected is taken up by the workload reconciler, which evicts or deactivates."""
    if _state(workload) not in (CheckState.RETRY, CheckState.REJECTED):
        return None
    return Plan(rule=Rule.WAITS_FOR_EVICTION)


def _chosen(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan | None:
    """6. A cluster has been chosen, and nobody else can be until an eviction clears it."""
    name = workload.cluster_name
    if not name:
        if _state(workload) is CheckState.READY:
            return _retry(Rule.NO_LONGER_THERE, messages.READY_WITHOUT_CLUSTER)
        return None
    losers = tuple(Remove(cluster) for cluster in facts.observations if cluster != name)
    observation = facts.observations.get(name)
    if observation is None and facts.delivered:
        went = _went_with_its_cluster(facts, workload, losers, now)
        return went or _retry(Rule.NO_LONGER_THERE, messages.NO_LONGER_THERE, actions=losers)
    if observation is None or observation.epoch < workload.epoch:
        return _lost(facts, workload, losers, now) or _deliver(workload, losers)
    if observation.says(Phase.REFUSED) and observation.intent is Intent.RUN:
        message = messages.refused(name, observation.reason, observation.message)
        return _retry(Rule.REFUSED, message, actions=losers, avoid=(name, facts.settings.avoid_for))
    if observation.says(Phase.EVICTED):
        if observation.reason == JOB_GONE:
            return _retry(Rule.NO_LONGER_THERE, messages.NO_LONGER_THERE, actions=losers)
        message = messages.evicted_on_worker(name, observation.message, _state(workload))
        return _retry(Rule.REMOTE_EVICTED, message, actions=(MirrorStatus(name), *losers))
    return (
        _lost(facts, workload, losers, now)
        or _drained(facts, workload, observation, losers, now)
        or _granted_plan(workload, observation, losers)
    )


def _goes_on(facts: Facts, workload: WorkloadFacts, now: datetime) -> Plan | None:
    """The queue lost its check, and with it who could send the work elsewhere: what runs goes on to its end.

    One that the cluster has stopped, or would not start, has no check to be retried by: it loses its admission, and is
    admitted anew by what its queue asks for now.
    """
    observation = facts.observations.get(workload.cluster_name)
    if observation is None or observation.intent is not Intent.RUN or observation.epoch < workload.epoch:
        return None
    losers = tuple(Remove(cluster) for cluster in facts.observations if cluster != observation.cluster)
    stopped = Rule.REMOTE_EVICTED if observation.says(Phase.EVICTED) else Rule.REFUSED
    if stopped is Rule.REFUSED and not observation.says(Phase.REFUSED):
        return _granted_plan(workload, observation, losers)
    message = messages.stopped_without_check(observation.cluster, observation.message)
    return Plan(rule=stopped, actions=losers, evict=message, events=(PlannedEvent(message=message, warning=True),))


def _drained(
    facts: Facts, workload: WorkloadFacts, observation: Observation, losers: tuple[Remove, ...], now: datetime
) -> Plan | None:
    """6a. The chosen cluster is to be empty: what has not begun moves at once, what runs at the deadline."""
    cluster = facts.cluster(workload.cluster_name)
    if cluster is None or not cluster.draining:
        return None
    left: float | None = None
    if observation.says(Phase.RUNNING) or observation.says(Phase.FINISHED):
        if cluster.drain_deadline is None:
            return None
        left = (cluster.drain_deadline - now).total_seconds()
    if left is None or left <= 0:
        return _retry(Rule.DRAINED, messages.drained(cluster.name), actions=losers)
    return replace(_granted_plan(workload, observation, losers), requeue_after=left)


def _lost(facts: Facts, workload: WorkloadFacts, losers: tuple[Remove, ...], now: datetime) -> Plan | None:
    """6a. The chosen cluster cannot be reached: wait, and then go elsewhere if the policy lets us."""
    cluster = facts.cluster(workload.cluster_name)
    if cluster is not None and cluster.available:
        return None
    since = None if cluster is None else cluster.lost_since
    grace = remaining_grace(since, policy=workload.partition_policy, settings=facts.settings, now=now)
    if grace is None:
        return Plan(rule=Rule.LOST, actions=losers)
    # Of a cluster that is not known at all, not even when it was lost, nothing is to be waited for.
    if cluster is not None and grace.total_seconds() > 0:
        return Plan(rule=Rule.LOST, actions=losers, requeue_after=grace.total_seconds())
    held = mass_loss(facts.clusters, facts.settings)
    if cluster is not None and _cannot_be_fenced(workload, cluster):
        held = messages.CANNOT_STOP
    if held:
        return Plan(
            rule=Rule.HELD,
            actions=losers,
            waiting=(Waiting(workload.cluster_name, held),),
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


def _went_with_its_cluster(
    facts: Facts, workload: WorkloadFacts, losers: tuple[Remove, ...], now: datetime
) -> Plan | None:
    """6a. The cluster was removed, and its mailbox with it: whoever runs the work there has not heard of that."""
    cluster = facts.cluster(workload.cluster_name)
    return None if cluster is None or cluster.exists else _lost(facts, _given_up(workload), losers, now)


def _given_up(workload: WorkloadFacts) -> WorkloadFacts:
    """Who removes a cluster for good gives up what was to stay there, too: it is waited for like any other."""
    if workload.partition_policy is not PartitionPolicy.KEEP:
        return workload
    return replace(workload, partition_policy=PartitionPolicy.FAILOVER)


def _cannot_be_fenced(workload: WorkloadFacts, cluster: ClusterFacts) -> bool:
    # No time is long enough for what nobody stops. An administrator who knows more takes the cluster away.
    return workload.partition_policy is PartitionPolicy.FENCED and cluster.cannot_stop


def _deliver(workload: WorkloadFacts, losers: tuple[Remove, ...]) -> Plan:
    """6b. The grant was written, and the manager ended, or failed, before the cluster could be told."""
    return Plan(rule=Rule.DELIVER, actions=(Assign(workload.cluster_name, Intent.RUN), *losers))


def _granted_plan(workload: WorkloadFacts, observation: Observation, losers: tuple[Remove, ...]) -> Plan:
    """6b. It runs there: nobody else keeps a copy, the job's status is mirrored, the check is Ready."""
    actions: list[Action] = []
    # One that was told to stop is not told to run again: it will say Evicted, and then goes through Retry.
    if observation.fingerprint != workload.fingerprint and observation.intent is not Intent.EVICT:
        # A new priority, say: the copy that runs is told of it.
        actions.append(Assign(observation.cluster, Intent.RUN))
    elif observation.intent is Intent.RESERVE:
        actions.append(SetIntent(observation.cluster, Intent.RUN))
    if observation.answered and observation.job_status is not None:
        actions.append(MirrorStatus(observation.cluster))
    ready = workload.check is None or _state(workload) is CheckState.READY
    return Plan(
        rule=Rule.GRANTED,
        actions=(*actions, *losers),
        check=None if ready else CheckUpdate(CheckState.READY, messages.admitted_on(observation.cluster)),
        nominated=() if workload.nominated else None,
    )


def _retry(
    rule: Rule,
    message: str,
    *,
    actions: tuple[Action, ...] = (),
    avoid: tuple[str, timedelta] = ("", timedelta()),
    detail: str = "",
) -> Plan:
    return Plan(
        rule=rule,
        actions=actions,
        check=CheckUpdate(CheckState.RETRY, message),
        avoid=avoid[0],
        avoid_for=avoid[1],
        events=(PlannedEvent(message=detail or message, warning=True),),
    )


def _granted(facts: Facts, workload: WorkloadFacts) -> tuple[Observation, ...]:
    """The copy that was granted: the one on clusterName, or, once eviction has cleared that, the one told to run."""
    if workload.cluster_name:
        found = facts.observations.get(workload.cluster_name)
        return () if found is None else (found,)
    if not workload.stopping:
        return ()
    return tuple(o for o in facts.observations.values() if o.intent is not Intent.RESERVE)


def _remove_all(facts: Facts) -> tuple[Remove, ...]:
    return tuple(Remove(cluster) for cluster in facts.observations)


def _state(workload: WorkloadFacts) -> CheckState:
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
    _goes_on,
)
