# SPDX-License-Identifier: Apache-2.0
"""Plans the next step of a ReplicaSet: how many pods to create, which to delete, and its status. Pure.

Pods that lose the least go first: not bound, not running, not ready, a low deletion cost, several on a node, ready for
a short time, restarted often, young. Times are compared by their order of magnitude; equal ones go by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from devcluster.controllers import app_conditions, pod_facts
from devcluster.controllers.app_pods import readiness
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_signed
from multikueue.core.timestamps import parse_time

REPLICA_FAILURE: Final = "ReplicaFailure"
MOST_AT_ONCE: Final = 500
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = ("Pending", "Unknown", "Running")


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """Why pods could not be created or deleted: reason and message of the condition."""

    reason: str
    message: str


def missing(replica_set: JsonObject, pods: Sequence[JsonObject]) -> int:
    """How many pods to create; negative for pods to delete. A ReplicaSet that is deleted changes nothing."""
    if "deletionTimestamp" in replica_set["metadata"]:
        return 0
    wanted: int = replica_set["spec"].get("replicas", 1) - sum(map(pod_facts.active, pods))
    return max(-MOST_AT_ONCE, min(MOST_AT_ONCE, wanted))


def batches(count: int) -> list[int]:
    """Sizes of batches in which `count` pods are created: each is twice the last, so that refusals cost little."""
    found = []
    size = 1
    while count > 0:
        found.append(min(size, count))
        count -= found[-1]
        size *= 2
    return found


def status_of(
    replica_set: JsonObject, pods: Sequence[JsonObject], *, failure: WriteFailure | None, now: datetime
) -> tuple[JsonObject, float | None]:
    """The status, and the seconds until one more pod is available."""
    spec, old = replica_set["spec"], replica_set.get("status") or {}
    active = [pod for pod in pods if pod_facts.active(pod)]
    wanted = (spec["template"].get("metadata") or {}).get("labels") or {}
    found = readiness(active, seconds=spec.get("minReadySeconds", 0), now=now)
    conditions = list(old.get("conditions") or ())
    if failure is None:
        conditions = app_conditions.without(conditions, REPLICA_FAILURE)
    elif app_conditions.find(conditions, REPLICA_FAILURE) is None:
        conditions = app_conditions.with_condition(
            conditions, REPLICA_FAILURE, "True", reason=failure.reason, message=failure.message, now=now
        )
    counts = {
        "fullyLabeledReplicas": sum(wanted.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active),
        "readyReplicas": found.ready,
        "availableReplicas": found.available,
        "observedGeneration": replica_set["metadata"].get("generation", 0),
        "conditions": conditions,
    }
    status = {
        "replicas": len(active),
        **{name: value for name, value in counts.items() if value},
        "terminatingReplicas": sum(map(pod_facts.terminating, pods)),
    }
    return status, found.after


def first_to_go(pods: Iterable[JsonObject], *, neighbours: Mapping[str, int], now: datetime) -> list[JsonObject]:
    """The pods, the first to delete first; `neighbours` counts by node the active pods of the same Deployment."""

    def place(pod: JsonObject) -> tuple[object, ...]:
        node = pod["spec"].get("nodeName") or ""
        phase, ready = pod_facts.phase(pod), pod_facts.ready(pod)
        return (
            bool(node),
            _PHASES.index(phase) if phase in _PHASES else 0,
            ready,
            _cost(pod),
            -neighbours.get(node, 0),
            _magnitude(_ready_since(pod), now=now) if ready else 0,
            -pod_facts.restarts(pod),
            _magnitude(pod["metadata"].get("creationTimestamp"), now=now),
            pod_facts.uid(pod),
        )

    return sorted(pods, key=place)


def _cost(pod: JsonObject) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    try:
        return parse_signed(text, field=DELETION_COST)
    except BadInput:
        return 0


def _ready_since(pod: JsonObject) -> str | None:
    found = pod_facts.condition(pod, "Ready")
    return found.get("lastTransitionTime") if found is not None else None


def _magnitude(text: str | None, *, now: datetime) -> int:
    """The binary order of magnitude of an age in seconds; -1 for an age of nothing or an unknown one."""
    if not text:
        return -1
    seconds = int((now - parse_time(text)).total_seconds())
    return seconds.bit_length() - 1 if seconds > 0 else -1
