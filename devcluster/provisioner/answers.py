# SPDX-License-Identifier: Apache-2.0
"""What the provisioner answers to a ProvisioningRequest next, from its conditions and the time. Pure.

A request is accepted at once, with the time at which its capacity is expected, and provisioned after a delay. It fails
when its pods do not fit; its booking may expire, and its capacity be revoked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from devcluster.provisioner.settings import ProvisionerSettings
from multikueue.api.objects import JsonObject
from multikueue.core.conditions import find_in, is_true_in
from multikueue.core.timestamps import format_time, parse_time

CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
ATOMIC_SCALE_UP: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
QUEUED: Final = "queued-provisioning.gke.io"
CLASSES: Final = (CHECK_CAPACITY, ATOMIC_SCALE_UP, QUEUED)
CAPACITY_DETAIL: Final = "Capacity"
"""The class detail with the value of `CAPACITY_LABEL` on the nodes of a request."""
CAPACITY_LABEL: Final = "devcluster.multikueue.io/capacity"


@dataclass(frozen=True, slots=True)
class ProvisionerAnswer:
    """The conditions to set, whether its nodes exist then, and when to look again (seconds; None: on a change)."""

    conditions: tuple[JsonObject, ...] = ()
    nodes: bool = False
    after: float | None = None


def capacity_of(request: JsonObject) -> str:
    """The label value of the nodes of a request."""
    return f"request-{str(request['metadata']['uid'])[:13]}"


def adds_nodes(request: JsonObject) -> bool:
    """Whether capacity for its class is new nodes; a check of capacity uses those that are there."""
    return str(request["spec"]["provisioningClassName"]) != CHECK_CAPACITY


def answer(request: JsonObject, settings: ProvisionerSettings, *, lack: str, now: datetime) -> ProvisionerAnswer:
    """The next answer; `lack` is why its pods do not fit, and empty if they do."""
    status: JsonObject = request.get("status") or {}
    metadata = request["metadata"]
    if request["spec"]["provisioningClassName"] not in CLASSES or "deletionTimestamp" in metadata:
        return ProvisionerAnswer()
    if is_true_in(status, "Failed") or is_true_in(status, "CapacityRevoked"):
        return ProvisionerAnswer()
    if is_true_in(status, "Provisioned"):
        return _booked(status, settings, f"{metadata['namespace']}/{metadata['name']}", now)
    problem = settings.fail or lack
    if problem:
        return ProvisionerAnswer((_condition("Failed", "True", "CapacityIsNotFound", problem, now),))
    queued = request["spec"]["provisioningClassName"] == QUEUED
    wait = settings.queue_seconds if queued else settings.delay_seconds
    accepted = find_in(status, "Accepted")
    due = (now if accepted is None else parse_time(accepted["lastTransitionTime"])) + timedelta(seconds=wait)
    left = (due - now).total_seconds()
    if left <= 0:
        found = _condition("Provisioned", "True", "CapacityIsProvisioned", "Capacity is provisioned", now)
        conditions = (found,) if accepted is not None else (_accepted(now), found)
        after = settings.booking_seconds or None
        return ProvisionerAnswer(conditions, nodes=True, after=after)
    if accepted is not None:
        return ProvisionerAnswer(after=left)
    expected = f"Capacity is expected at {format_time(due)}"
    waiting = _condition("Provisioned", "False", "CapacityIsNotProvisioned", expected, now)
    return ProvisionerAnswer((_accepted(now), waiting), after=left)


def _booked(status: JsonObject, settings: ProvisionerSettings, key: str, now: datetime) -> ProvisionerAnswer:
    if settings.revokes(key):
        revoked = _condition("CapacityRevoked", "True", "CapacityRevoked", "The nodes were taken away", now)
        return ProvisionerAnswer((revoked,))
    provisioned = find_in(status, "Provisioned")
    if not settings.booking_seconds or provisioned is None or is_true_in(status, "BookingExpired"):
        return ProvisionerAnswer(nodes=True)
    left = settings.booking_seconds - (now - parse_time(provisioned["lastTransitionTime"])).total_seconds()
    if left > 0:
        return ProvisionerAnswer(nodes=True, after=left)
    message = f"The capacity was booked for {settings.booking_seconds} seconds"
    return ProvisionerAnswer((_condition("BookingExpired", "True", "BookingExpired", message, now),), nodes=True)


def _accepted(now: datetime) -> JsonObject:
    return _condition("Accepted", "True", "Accepted", "The request is accepted", now)


def _condition(kind: str, value: str, reason: str, message: str, now: datetime) -> JsonObject:
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now),
    }
