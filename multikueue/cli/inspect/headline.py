# SPDX-License-Identifier: Apache-2.0
"""The first lines of `mkctl explain`: the state of a workload, why it does not run, and the next step.

Owns the order of causes: finished, eviction, queue, quota, admission checks, clusters. The first cause that applies is
reported; later ones do not matter yet. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from manager.workload.status import Status
from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION, FinishedReason, QuotaReservedReason, WorkloadCondition
from multikueue.cli.conditions import condition_of
from multikueue.core.conditions import FALSE, Condition
from multikueue.core.timestamps import format_time
from multikueue.dispatch.explanation import ClusterExplanation, DispatchExplanation, DispatchState
from multikueue.dispatch.hub import messages
from multikueue.engine.decode.check_health import ControllerHealth
from multikueue.engine.explain import Explanation

_CLUSTERS_NAMED: Final = 2
_ASK_ADMINISTRATOR: Final = "ask an administrator to check it"
_RUNS: Final = frozenset({DispatchState.RUNS, DispatchState.FINISHED})
_WITH_START_TIME: Final = "Job"
"""The kind of which every object that has started shows when."""
_IMAGE_STEP: Final = "correct the image of the job, or let {} pull it"
_START_STEPS: Final = {
    "ImagePullBackOff": _IMAGE_STEP,
    "InvalidImageName": _IMAGE_STEP,
    "ErrImageNeverPull": _IMAGE_STEP,
    "FailedCreate": "an administrator of {} must create or allow what the message names",
    "Unschedulable": "free or add capacity on {}, or change what the job requests",
}
"""The next step by the reason of PodsStarted=False."""
_REFUSED_STEPS: Final = (
    ("not found in namespace ", "create what is missing on one of the clusters, in that namespace"),
    ("no namespace ", "create the namespace on one of the clusters"),
    ('namespace "', "create the namespace on one of the clusters"),
)
"""The next step by the begin of a cluster's reason."""
_UNAVAILABLE: Final = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_SOON: Final = frozenset(
    {DispatchState.HAS_CAPACITY, DispatchState.RESERVED, DispatchState.ASKED, DispatchState.UNKNOWN_CAPACITY}
)
_DECLINED: Final = frozenset({DispatchState.REFUSED, DispatchState.UNSUITABLE})
_WAITS_FOR_CAPACITY: Final = frozenset({DispatchState.NO_CAPACITY, DispatchState.WAITS_THERE})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One admission check of the workload; `trouble` is why the AdmissionCheck is not Active, `step` what to do."""

    name: str
    state: CheckState
    message: str
    since: datetime
    trouble: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence that begins with a verb, the next step, and the command for it; the last two may be empty."""

    summary: str
    next_step: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineFacts:
    """What the headline is made of; objects that could not be read are None."""

    status: Status
    queue: Explanation
    checks: Sequence[CheckLine] = ()
    dispatch: DispatchExplanation | None = None
    job: JsonObject | None = None
    local_queue: JsonObject | None = None
    cluster_queue: JsonObject | None = None
    inactive_checks: Sequence[ControllerHealth] = ()
    """The checks for which the ClusterQueue is not active."""
    deleting: bool = False
    recreation: str = ""
    """When the job has to be created again once its queue exists, to be added to that advice."""


def headline(seen: HeadlineFacts, *, now: datetime) -> Headline:
    """The headline of a workload at `now`."""
    status = seen.status
    if status.is_true(WorkloadCondition.FINISHED):
        return _finished(seen)
    evicted = status.condition(WorkloadCondition.EVICTED)
    reserved = status.is_true(WorkloadCondition.QUOTA_RESERVED)
    if reserved and evicted is not None and status.is_true(WorkloadCondition.EVICTED):
        return Headline(f"is being evicted: {evicted.reason}: {evicted.message}")
    if not reserved:
        return _without_quota(seen, now)
    pending = [check for check in seen.checks if check.state is not CheckState.READY]
    if status.cluster_name and _not_started(status) is not None:
        return _without_pods(seen)
    if seen.dispatch is not None and seen.dispatch.cluster_name:
        return _on_a_cluster(seen.dispatch)
    if not seen.dispatch and status.cluster_name:
        runs = status.is_true(WorkloadCondition.PODS_READY)
        return Headline(f"{'runs on' if runs else 'was sent to'} {status.cluster_name}")
    broken = next((check for check in pending if check.trouble), None)
    if broken is not None:
        return Headline(
            f"has quota and waits for the admission check {broken.name}: {broken.trouble}",
            broken.step or _ASK_ADMINISTRATOR,
            f"kubectl describe admissioncheck {broken.name}",
        )
    if seen.dispatch is not None and len(pending) == 1 and seen.dispatch.clusters:
        return _after_failed_start(_without_cluster(seen.dispatch.clusters), status)
    if pending:
        cluster = any(check.message.startswith(messages.WAITING) for check in pending)
        step = "if this does not change, ask an administrator" if cluster else ""
        return Headline("has quota and waits for " + "; ".join(_check(check) for check in pending), step)
    return Headline("is admitted")


def _check(check: CheckLine) -> str:
    if check.message.startswith(messages.WAITING):
        return f"a cluster: {check.message.removeprefix(messages.WAITING)}"
    return f"{check.name}: {check.message}" if check.message else f"the admission check {check.name}"


def _finished(seen: HeadlineFacts) -> Headline:
    finished = seen.status.condition(WorkloadCondition.FINISHED)
    assert finished is not None, "checked by the caller"
    why = f": {finished.message}" if finished.message else ""
    ends = {FinishedReason.SUCCEEDED: "succeeded", FinishedReason.FAILED: "failed"}
    how = next((text for reason, text in ends.items() if reason == finished.reason), f"finished ({finished.reason})")
    where = f" on {seen.status.cluster_name}" if seen.status.cluster_name else ""
    job: JsonObject = (seen.job or {}).get("status") or {}
    began = f", started at {job['startTime']}" if job.get("startTime") else ", never started"
    if seen.job is None or (not job.get("startTime") and _kind(seen.job) != _WITH_START_TIME):
        began = ""
    ended = job.get("completionTime") or format_time(finished.last_transition_time)
    failed = finished.reason == FinishedReason.FAILED
    history = _timeline_command(seen)
    summary = f"{how}{where} at {ended}{began}{why}"
    if not failed or not history:
        return Headline(summary)
    return Headline(summary, "see what happened", history)


def _kind(job: JsonObject) -> str:
    return str(job.get("kind") or _WITH_START_TIME)


def _timeline_command(seen: HeadlineFacts) -> str:
    """The command that shows the history of the job; empty if it was not read."""
    name = str((seen.job or {}).get("metadata", {}).get("name") or "")
    if seen.job is None or not name:
        return ""
    return f"mkctl timeline {_kind(seen.job).lower()} {name} -n {seen.queue.workload.namespace}"


def _without_quota(seen: HeadlineFacts, now: datetime) -> Headline:
    if seen.deleting:
        name, namespace = seen.queue.workload.name, seen.queue.workload.namespace
        show = f"kubectl get workloads.kueue.x-k8s.io {name} -n {namespace} -o jsonpath='{{.metadata.finalizers}}'"
        return Headline("is being deleted, and gets no quota", "see which finalizers it waits for", show)
    status, queue = seen.status, seen.queue
    held = _held(seen.local_queue, "LocalQueue") or _held(seen.cluster_queue, "ClusterQueue")
    if held is not None and queue.reason is not QuotaReservedReason.DEACTIVATED:
        return held
    if status.requeue_at is not None and status.requeue_at > now:
        return Headline(f"was evicted and is queued again at {format_time(status.requeue_at)}")
    match queue.reason:
        case QuotaReservedReason.DEACTIVATED:
            return _deactivated(seen)
        case QuotaReservedReason.MISCONFIGURED:
            return Headline(f"cannot be queued: {queue.message}", _fix(queue, seen.recreation))
        case QuotaReservedReason.SUSPENDED:
            return _inactive(seen)
        case QuotaReservedReason.EXCEEDS_MAX_QUOTA:
            return Headline(
                f"can never get quota in ClusterQueue {queue.cluster_queue}: {_too_much(queue) or queue.message}",
                f"reduce the requests of the job, or raise the quota of ClusterQueue {queue.cluster_queue}",
            )
        case QuotaReservedReason.NO_MATCHING_FLAVOR:
            return Headline(
                f"fits no flavor of ClusterQueue {queue.cluster_queue}: {queue.message}", _flavor_step(queue)
            )
        case QuotaReservedReason.ADMISSION_GATED:
            return Headline(f"is gated: {queue.message}", "the owner of the admission gate must remove it")
        case QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS:
            return Headline(f"waits for the preemption of {len(queue.victims) or 'other'} workloads")
    place = "" if queue.position is None else f" at position {queue.position + 1} in ClusterQueue {queue.cluster_queue}"
    if queue.mode == "Fit":
        return Headline(f"fits and gets quota next{place}")
    return Headline(f"waits for quota{place}: {_short(queue) or queue.message or queue.state}", _when_free(queue))


def _held(queue: JsonObject | None, kind: str) -> Headline | None:
    policy = ((queue or {}).get("spec") or {}).get("stopPolicy") or StopPolicy.NONE
    if queue is None or policy == StopPolicy.NONE:
        return None
    metadata = queue["metadata"]
    where = f" -n {metadata['namespace']}" if kind == "LocalQueue" else ""
    patch = '\'{"spec":{"stopPolicy":"None"}}\''
    return Headline(
        f"waits: {kind} {metadata['name']} is stopped (stopPolicy {policy})",
        "an administrator can resume it",
        f"kubectl patch {kind.lower()} {metadata['name']}{where} --type merge -p {patch}",
    )


def _inactive(seen: HeadlineFacts) -> Headline:
    for kind, queue in (("ClusterQueue", seen.cluster_queue), ("LocalQueue", seen.local_queue)):
        active = condition_of(queue, ACTIVE_CONDITION)
        if queue is not None and active.get("status") == "False":
            name = queue["metadata"]["name"]
            checks = seen.inactive_checks if kind == "ClusterQueue" else ()
            if checks:
                first, *others = checks
                also = f" (also {', '.join(each.name for each in others)})" if others else ""
                return Headline(
                    f"waits: {kind} {name} is not active: AdmissionCheck {first.name} of {first.controller}:"
                    f" {first.problem}{also}",
                    first.step,
                    f"kubectl describe admissioncheck {first.name}",
                )
            return Headline(
                f"waits: {kind} {name} is not active: {active.get('message')}",
                _ASK_ADMINISTRATOR,
                f"kubectl describe clusterqueue {seen.queue.cluster_queue}",
            )
    return Headline(f"waits: {seen.queue.message}", "ask an administrator to check the queue")


def _deactivated(seen: HeadlineFacts) -> Headline:
    evicted = seen.status.condition(WorkloadCondition.EVICTED)
    why = f": {evicted.message}" if evicted is not None and evicted.message else ""
    key = seen.queue.workload
    if seen.job is not None:
        managed_by = str((seen.job.get("spec") or {}).get("managedBy") or "")
        if any(check.message == messages.not_managed(managed_by) for check in seen.checks):
            kind, name = _kind(seen.job), seen.job["metadata"]["name"]
            return Headline(
                f"is deactivated and not queued{why}",
                f"delete the {kind} and create it again, without spec.managedBy, in this queue",
                f"kubectl delete {kind.lower()} {name} -n {key.namespace}",
            )
    patch = '\'{"spec":{"active":true}}\''
    return Headline(
        f"is deactivated and not queued{why}",
        "reactivate it when the cause is fixed",
        f"kubectl patch workload {key.name} -n {key.namespace} --type merge -p {patch}",
    )


def _fix(queue: Explanation, recreation: str) -> str:
    if queue.message.startswith("LocalQueue "):
        return (
            f"create the LocalQueue, or set the label kueue.x-k8s.io/queue-name of the job to another one{recreation}"
        )
    if queue.message.startswith("ClusterQueue "):
        return f"create the ClusterQueue, or point the LocalQueue to another one{recreation}"
    return "fix the error in the message"


def _flavor_step(queue: Explanation) -> str:
    unknown = dict.fromkeys(_UNAVAILABLE.findall(queue.message))
    if not unknown:
        return "compare its node selector, affinity and tolerations with the ResourceFlavors of the ClusterQueue"
    return (
        f"add {', '.join(unknown)} to spec.resourceGroups of ClusterQueue {queue.cluster_queue}, or do not request it"
        " in the job"
    )


def _too_much(queue: Explanation) -> str:
    """The requests above the maximum quota of a flavor."""
    found = []
    for pod_set in queue.pod_sets:
        rows = [(flavor.flavor, row) for flavor in pod_set.flavors for row in flavor.resources]
        found += [
            f"it requests {row.requested} {row.resource}, but flavor {flavor} has a maximum of {row.capacity}"
            for flavor, row in rows
            if row.mode == "NoFit"
        ]
    return "; ".join(dict.fromkeys(found))


def _short(queue: Explanation) -> str:
    """The requests without enough free quota, in the selected flavor or else in all flavors."""
    found = []
    for pod_set in queue.pod_sets:
        flavors = [flavor for flavor in pod_set.flavors if flavor.chosen] or pod_set.flavors
        found += [
            f"it requests {row.requested} {row.resource}, but flavor {flavor.flavor} has {row.free} free"
            for flavor in flavors
            for row in flavor.resources
            if row.short != "0"
        ]
    return "; ".join(dict.fromkeys(found))


def _when_free(queue: Explanation) -> str:
    return "nothing to do: it gets quota when other workloads finish" if _short(queue) else ""


def _on_a_cluster(dispatch: DispatchExplanation) -> Headline:
    name = dispatch.cluster_name
    chosen = next((each for each in dispatch.clusters if each.cluster == name), None)
    if chosen is None:
        return Headline(f"was sent to {name}")
    if chosen.state in _RUNS:
        return Headline(f"runs on {name}" if chosen.state is DispatchState.RUNS else f"has finished on {name}")
    summary = f"was sent to {name}: {chosen.reason}"
    if chosen.state is not DispatchState.UNAVAILABLE:
        return Headline(summary)
    if chosen.exists and not chosen.listed:
        step = f"to keep its work there, an administrator must list {name} in the MultiKueueConfig again"
        return Headline(summary, step, "kubectl get multikueueconfigs -o yaml")
    return Headline(summary, *_check_cluster(chosen, _ASK_ADMINISTRATOR))


def _check_cluster(cluster: ClusterExplanation, step: str) -> tuple[str, str]:
    """A step that shows the cluster, or which clusters there are if it does not exist, and its command."""
    if cluster.exists:
        return step, f"mkctl cluster describe {cluster.cluster}"
    return f"{step}; these clusters exist", "mkctl cluster list"


def _not_started(status: Status) -> Condition | None:
    shown = status.condition(WorkloadCondition.PODS_STARTED)
    return shown if shown is not None and shown.status == FALSE else None


def _without_pods(seen: HeadlineFacts) -> Headline:
    """It counts as running on its cluster, where none of its pods starts."""
    shown, cluster = _not_started(seen.status), seen.status.cluster_name
    assert shown is not None, "checked by the caller"
    summary = (
        f"was sent to {cluster}, but its pods do not start: {shown.reason}: {messages.start_detail(shown.message)}"
    )
    moves_at = None if seen.dispatch is None else seen.dispatch.next_look
    otherwise = "" if moves_at is None else f"; otherwise it leaves {cluster} at {format_time(moves_at)}"
    command = _timeline_command(seen)
    fix = _start_step(shown.reason, cluster)
    return Headline(summary, f"{fix}{otherwise}{'; see its history' if command else ''}", command)


def _after_failed_start(found: Headline, status: Status) -> Headline:
    """With the reason why its pods did not start where it was before."""
    shown = _not_started(status)
    if shown is None:
        return found
    step = f"{_start_step(shown.reason, 'that cluster')}; {found.next_step.removeprefix('nothing to do: ')}"
    return replace(found, summary=f"{found.summary}. Before: {shown.reason}: {shown.message}", next_step=step)


def _start_step(reason: str, cluster: str) -> str:
    return _START_STEPS.get(reason, "correct that in the job or on {}").format(cluster)


def _without_cluster(clusters: Sequence[ClusterExplanation]) -> Headline:
    soon = [each.cluster for each in clusters if each.state in _SOON]
    capacity = [each.cluster for each in clusters if each.state is DispatchState.HAS_CAPACITY]
    if capacity:
        return Headline(f"has quota and is dispatched next, to one of {', '.join(capacity)}")
    if soon:
        return Headline(f"has quota and waits for the reply of {', '.join(soon)}")
    named = "; ".join(f"{each.cluster}: {each.reason}" for each in clusters[:_CLUSTERS_NAMED])
    more = f"; and {len(clusters) - _CLUSTERS_NAMED} more" if len(clusters) > _CLUSTERS_NAMED else ""
    step, command = _open_one(clusters)
    return Headline(f"has quota, but no cluster accepts it: {named}{more}", step, command)


def _open_one(clusters: Sequence[ClusterExplanation]) -> tuple[str, str]:
    """The next step and its command: first what needs no action, then what one command can fix."""
    count = Counter(each.state for each in clusters)
    if any(count[state] for state in _WAITS_FOR_CAPACITY):
        return "nothing to do: it is dispatched when a cluster has free capacity", ""
    for state, step, command in (
        (DispatchState.AVOIDED, "nothing to do: the cluster is tried again at that time", ""),
        (DispatchState.REFUSED, "correct what the reason names, in the job or on one of the clusters", ""),
        (DispatchState.CLOSED, "an administrator can uncordon one", "mkctl cluster uncordon {}"),
        (DispatchState.UNAVAILABLE, "ask an administrator to check one", "mkctl cluster describe {}"),
        (DispatchState.FORBIDDEN, "change the dispatch policy, or the job so that the policy allows it", ""),
        (
            DispatchState.UNSUITABLE,
            "change the requests of the job or the clusters; the reasons are below",
            "",
        ),
    ):
        found = [each for each in clusters if each.state is state]
        if state in _DECLINED:
            step = next((own for each in found if (own := _refused_step(each.reason))), step)
        first = next((each for each in found if each.exists), None)
        if first is not None:
            return step, command.format(first.cluster)
        if found:  # only one that is unavailable does not exist
            return _check_cluster(found[0], step)
    return "", ""


def _refused_step(reason: str) -> str:
    return next((step for begin, step in _REFUSED_STEPS if reason.startswith(begin)), "")
