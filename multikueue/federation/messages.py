# SPDX-License-Identifier: Apache-2.0
"""The texts of checks and events, in the words that Kueue's clients match (`docs/spec/kueue-api.md §5.3`, §12.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from multikueue.api.constants import MULTIKUEUE_MANAGED_BY, CheckState
from multikueue.federation.actions import Waiting

LOST: Final = "Admitting remote lost"
NO_LONGER_THERE: Final = "Admitting remote no longer exists"
READY_WITHOUT_CLUSTER: Final = "The check is Ready, but no cluster is set: this is unexpected, please report it"
CONNECTED: Final = "Connected"
CONNECTING: Final = "Connecting"
CHECK_ACTIVE: Final = "The admission check is active"
NO_CLUSTERS: Final = "The MultiKueueConfig lists no clusters"
WAITING: Final = "Waiting for a worker cluster: "
CANNOT_STOP: Final = "its agent cannot reach its own API server and cannot stop it, so that fenced work stays there"
RUNS_THERE: Final = "runs it since before this management cluster was recovered, and is waited for"


def admitted_on(cluster: str) -> str:
    """Of a Ready check."""
    return f'The workload was admitted on "{cluster}"'


def no_adapter(kind: str) -> str:
    """Of a check that is Rejected because of the owner's kind."""
    return f'No multikueue adapter found for owner kind "{kind}"'


def not_managed(managed_by: str) -> str:
    """Of a check that is Rejected because another controller runs the job."""
    return (
        "The owner is not managed by Kueue: "
        f'Expecting spec.managedBy to be "{MULTIKUEUE_MANAGED_BY}" not "{managed_by}"'
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
    """Of an event: this cluster may preempt for the workload, and for a while no other."""
    return f'Opened the preemption gate on worker cluster "{cluster}"'


def stopped_without_check(cluster: str, reason: str) -> str:
    """Of an eviction: the queue has no MultiKueue check any more, whose Retry would say it."""
    why = f": {reason}" if reason else ""
    return f'Workload stopped on worker cluster: "{cluster}"{why}, and its queue has no check'


def refused(cluster: str, reason: str, message: str) -> str:
    """Of a Retry: the cluster could not start what it was granted."""
    return f'Worker cluster "{cluster}" refused the workload: {reason}: {message}, resetting for re-dispatch'


def drained(cluster: str) -> str:
    """Of a Retry."""
    return f'Worker cluster "{cluster}" is being drained, resetting for re-dispatch'


def waiting(reasons: Iterable[Waiting]) -> str:
    """Of a Pending check: what each cluster waits for."""
    text = "; ".join(map(str, reasons))
    return f"{WAITING}{text}" if text else ""


def told(message: str, clusters: Collection[str]) -> dict[str, str]:
    """What a message that `waiting` made says of each of these clusters."""
    found: dict[str, str] = {}
    cluster = ""
    for part in message.removeprefix(WAITING).split("; ") if message.startswith(WAITING) else ():
        name, _, reason = part.partition(": ")
        if name in clusters:
            cluster, found[name] = name, reason
        elif cluster:
            # A reason may have a semicolon of its own.
            found[cluster] += f"; {part}"
    return found
