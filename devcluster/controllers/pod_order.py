# SPDX-License-Identifier: Apache-2.0
"""The order in which a ReplicaSet deletes pods that it has too many of. Pure.

Pods that lose the least go first: not bound, not running, not ready, a low deletion cost, several on a node, ready for
a short time, restarted often, young. Times are compared by their order of magnitude; equal ones go by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from devcluster.controllers import pod_facts
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_signed
from multikueue.core.timestamps import parse_time

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = ("Pending", "Unknown", "Running")


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
