# SPDX-License-Identifier: Apache-2.0
"""The messages of checks and events, some of which Kueue's clients match (`docs/spec/kueue-api.md §5.3`, §12.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from multikueue.api.constants import MULTIKUEUE_MANAGED_BY, CheckState
from multikueue.core.printable import excerpt, printable
from multikueue.dispatch.hub.actions import WaitingReason

LOST: Final = "Admitting remote lost"
NO_LONGER_THERE: Final = "Admitting remote no longer exists"
READY_WITHOUT_CLUSTER: Final = "The check is Ready, but no cluster is set: this is unexpected, please report it"
CONNECTED: Final = "Connected"
CONNECTING: Final = "Connecting"
CHECK_ACTIVE: Final = "The admission check is active"
NO_CLUSTERS: Final = "The MultiKueueConfig lists no clusters"
WAITING: Final = "Waiting for a worker cluster: "
CANNOT_STOP: Final = "its agent cannot reach its own API server and cannot stop it, so fenced work stays there"
CAN_PROVISION: Final = "The clusters can provision capacity"
PROVISIONED_ON: Final = "Provisioned on "
ASKED_TO_PROVISION: Final = "was asked to provision capacity"
_MAX_REPORTED: Final = 400
_DO_NOT_START: Final = "the pods do not start: "
RUNS_THERE: Final = "has run it since before this hub was recovered; waiting for it"


def admitted_on(cluster: str) -> str:
    """Of a Ready check."""
    return f'The workload was admitted on "{cluster}"'


def no_adapter(kind: str) -> str:
    """Of a check that is Rejected because the owner's kind is not supported."""
    return f'No multikueue adapter found for owner kind "{kind}"'


def not_managed(managed_by: str) -> str:
    """Of a check that is Rejected because another controller runs the job."""
    return (
        "The owner is not managed by Kueue: "
        f'Expecting spec.managedBy to be "{MULTIKUEUE_MANAGED_BY}" not "{managed_by}". '
        "The field cannot be changed: delete the job and create it again, without spec.managedBy, in this queue"
    )


def sent_already(kind: str, name: str, other: str) -> str:
    """Of a check that is Rejected because an external controller, or a user, has made two Workloads of one job."""
    return (
        f"{kind} {excerpt(name)} has another Workload, {excerpt(other)}, by which it is sent to a worker cluster."
        " A job runs once: delete the Workload that is not needed"
    )


def out_of_sync(cluster: str) -> str:
    """Of a Retry."""
    return f'Remote workload on worker cluster "{cluster}" is out of sync with its user job, resetting for re-dispatch'


def evicted_on_worker(cluster: str, reason: str, previously: CheckState) -> str:
    """Of a Retry."""
    return (
        f'Workload evicted on worker cluster: "{cluster}"{f": {reason}" if reason else ""}, '
        f'resetting for re-admission. Previously: "{previously}"'
    )


def gate_opened(cluster: str) -> str:
    """Of an event: only this cluster may preempt for the workload for a while."""
    return f'Opened the preemption gate on worker cluster "{cluster}"'


def stopped_without_check(cluster: str, reason: str) -> str:
    """Of an eviction whose reason no check can show, because the queue has no MultiKueue check any more."""
    why = f": {reason}" if reason else ""
    return f'Workload stopped on worker cluster: "{cluster}"{why}, and its queue has no check'


def provisioned_on(cluster: str, message: str) -> str:
    """Of a provisioning check that is Ready."""
    return f"{PROVISIONED_ON}{cluster}" + (f": {reported(message)}" if message else "")


def runs_already_on(cluster: str) -> str:
    """Of a provisioning check that is Ready without a request, of a slice that has replaced another."""
    return f"Not needed: the job runs on {cluster} already"


def free_on(cluster: str) -> str:
    """Of a provisioning check that is Ready without a request."""
    return f"Not needed: {cluster} has free capacity"


def provisioning(progress: Iterable[WaitingReason]) -> str:
    """Of a Pending provisioning check: which clusters were asked, and what each of them answered."""
    return "; ".join(f"{each.cluster}: {reported(each.reason)}" for each in progress)


def no_cluster_provisioned(progress: Iterable[WaitingReason], *, attempt: int, retry_seconds: int | None) -> str:
    """Of a provisioning check that goes to Retry, or is Rejected."""
    what = f"attempt {attempt + 1} follows in {retry_seconds} s" if retry_seconds is not None else "no attempt is left"
    return f"No cluster could provision capacity in attempt {attempt}, {what}: {provisioning(progress)}"


def reported(message: str) -> str:
    """What a worker reported, as far as it is shown."""
    shown = printable(message)
    return shown if len(shown) <= _MAX_REPORTED else f"{shown[:_MAX_REPORTED]} ..."


def refused(cluster: str, reason: str, message: str) -> str:
    """Of a Retry: the cluster could not start what it was granted."""
    return f'Worker cluster "{cluster}" refused the workload: {reason}: {message}, resetting for re-dispatch'


def drained(cluster: str) -> str:
    """Of a Retry."""
    return f'Worker cluster "{cluster}" is being drained, resetting for re-dispatch'


def pods_not_started(cluster: str, message: str) -> str:
    """Of the condition PodsStarted=False, and of its event."""
    return f'Worker cluster "{cluster}": {_DO_NOT_START}{message}'


def start_detail(message: str) -> str:
    """What the worker reported, of a message made by `pods_not_started`."""
    _, found, detail = message.partition(_DO_NOT_START)
    return detail if found else message


def pods_given_up(cluster: str, reason: str, message: str) -> str:
    """Of a Retry: no pod has started there within `podsStartTimeout`."""
    return f'Worker cluster "{cluster}" did not start the pods: {reason}: {message}, resetting for re-dispatch'


def waiting(reasons: Iterable[WaitingReason]) -> str:
    """Of a Pending check: why each cluster does not run it."""
    text = "; ".join(map(str, reasons))
    return f"{WAITING}{text}" if text else ""


def forbidden_everywhere(reason: str) -> str:
    """Of a Pending check: the hub's dispatch policy forbids it on every cluster."""
    return f"{WAITING}none may run this workload: {reason}"


def forbidden(cluster: str, reason: str) -> str:
    """Of a Retry: a policy forbids the chosen cluster, which has no assignment yet."""
    return f'Worker cluster "{cluster}" is forbidden: {reason}, resetting for re-dispatch'


def not_forwarded(cluster: str, reason: str) -> str:
    """Of an event: a policy forbids the changed job, which runs on as it was sent."""
    return f'A change of the job is not forwarded to worker cluster "{cluster}": {reason}'


def reasons_by_cluster(message: str, clusters: Collection[str]) -> dict[str, str]:
    """The reason of each of `clusters` in a message made by `waiting`."""
    found: dict[str, str] = {}
    cluster = ""
    for part in message.removeprefix(WAITING).split("; ") if message.startswith(WAITING) else ():
        name, _, reason = part.partition(": ")
        if name in clusters:
            cluster, found[name] = name, reason
        elif cluster:
            # A reason may contain a semicolon.
            found[cluster] += f"; {part}"
    return found
