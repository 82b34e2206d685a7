# SPDX-License-Identifier: Apache-2.0
"""Workloads, statuses and jobs for the tests of the manager, at one moment in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from manager.controllers.workload_decision import WorkloadDecision, decide
from manager.controllers.workload_facts import AdmissionQueueFacts, WorkloadFacts
from manager.workload.status import Check, Status
from multikueue.api.constants import CheckState, StopPolicy
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import FALSE, TRUE, Condition
from multikueue.core.keys import Key
from multikueue.engine.values import CheckRule

Object = dict[str, Any]

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = Key("team", "w")


def at(seconds: float) -> datetime:
    """So many seconds after the moment."""
    return NOW + timedelta(seconds=seconds)


def status() -> Status:
    """Nothing has happened yet."""
    return Status()


def having(
    old: Status,
    kind: WorkloadCondition,
    *,
    reason: str = "Because",
    message: str = "",
    value: str = TRUE,
    since: float = 0,
) -> Status:
    """With that condition in place of another of its type."""
    others = tuple(item for item in old.conditions if item.type != kind)
    new = Condition(type=kind, status=value, reason=reason, message=message, last_transition_time=at(since))
    return replace(old, conditions=(*others, new))


def reserved(queue: str = "cq", *, flavor: str = "default", since: float = 0) -> Status:
    """Quota is held in `queue`."""
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [{"name": "main", "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "1"}, "count": 1}],
    }
    return having(
        replace(status(), admission=admission),
        WorkloadCondition.QUOTA_RESERVED,
        reason="QuotaReserved",
        message=f"Quota reserved in ClusterQueue {queue}",
        since=since,
    )


def admitted(queue: str = "cq", *, since: float = 0) -> Status:
    """Held and admitted."""
    return having(
        reserved(queue, since=since),
        WorkloadCondition.ADMITTED,
        reason="Admitted",
        message="The workload is admitted",
        since=since,
    )


def evicted(old: Status, reason: str, *, message: str = "go", since: float = 0) -> Status:
    """Told to stop."""
    return having(old, WorkloadCondition.EVICTED, reason=reason, message=message, since=since)


def pending(reason: str = "WaitingForQuota", message: str = "no free quota") -> Status:
    """Looked at, and left waiting."""
    return having(
        having(status(), WorkloadCondition.QUOTA_RESERVED, reason=reason, message=message, value=FALSE),
        WorkloadCondition.ADMITTED,
        reason="NoReservation",
        message="The workload has no reservation",
        value=FALSE,
    )


def check(name: str = "mk", state: CheckState = CheckState.PENDING, **changes: Any) -> Check:
    """One admission check."""
    return Check(name=name, state=state, last_transition_time=changes.pop("since", NOW), **changes)


def with_checks(old: Status, *checks: Check) -> Status:
    """With exactly these checks."""
    return replace(old, checks=checks)


def local_queue(stop: StopPolicy = StopPolicy.NONE, **changes: Any) -> AdmissionQueueFacts:
    """The LocalQueue `lq`."""
    return AdmissionQueueFacts(name="lq", stop_policy=stop, cluster_queue="cq", **changes)


def cluster_queue(stop: StopPolicy = StopPolicy.NONE, *checks: str, **changes: Any) -> AdmissionQueueFacts:
    """The ClusterQueue `cq`, asking for these checks."""
    return AdmissionQueueFacts(name="cq", stop_policy=stop, checks=tuple(CheckRule(name) for name in checks), **changes)


def facts(**changes: Any) -> WorkloadFacts:
    """A workload of `lq`, which points to `cq`; both work."""
    given: dict[str, Any] = {
        "key": KEY,
        "uid": "uid-w",
        "queue_name": "lq",
        "local_queue": local_queue(),
        "cluster_queue": cluster_queue(),
        "cluster_queue_name": "cq",
    }
    return WorkloadFacts(**(given | changes))


def wire(value: Status, *, name: str = "w", namespace: str = "team", version: str = "1", **metadata: Any) -> Object:
    """A Workload object with that status."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "creationTimestamp": "2026-01-01T11:00:00Z",
            **metadata,
        },
        "spec": {"queueName": "lq", "active": True, "podSets": [{"name": "main", "count": 1, "template": {}}]},
        "status": value.wire(),
    }


def decided(known: WorkloadFacts, old: Status, *, seconds: float = 10) -> WorkloadDecision:
    """What its reconciler decides, so long after the moment."""
    return decide(known, old, now=at(seconds), random=Random(0))


def shown(value: Status, kind: WorkloadCondition) -> tuple[str, str, str] | None:
    """Status, reason and message of a condition; None without it."""
    found = value.condition(kind)
    return None if found is None else (found.status, found.reason, found.message)
