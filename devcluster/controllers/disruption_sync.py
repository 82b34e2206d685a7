# SPDX-License-Identifier: Apache-2.0
"""What the status of a PodDisruptionBudget should be. Pure.

An evicted pod is noted in the status by the API server. It counts as gone from then on, and again if it is not deleted
within two minutes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from devcluster import disruption_budgets
from devcluster.controllers import pod_facts
from devcluster.controllers.rollout_sizes import scaled
from multikueue.api.objects import JsonObject
from multikueue.core.timestamps import format_time, parse_time

DELETION: Final = timedelta(minutes=2)
"""How long an evicted pod may take until it is being deleted."""


@dataclass(frozen=True, slots=True)
class PodExpectation:
    """How many pods there should be, and how many of them must be healthy."""

    pods: int = 0
    healthy: int = 0


@dataclass(frozen=True, slots=True)
class DisruptionPlan:
    """The next status, the pods that were evicted and not deleted, and the seconds until the next of them is."""

    status: JsonObject
    overdue: tuple[JsonObject, ...] = ()
    after: float | None = None


def needs_scale(budget: JsonObject) -> bool:
    """Whether the number of pods is that of their controllers, instead of those that exist."""
    spec = budget["spec"]
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def expectation(budget: JsonObject, *, matching: int, scale: int) -> PodExpectation:
    """What is expected with so many pods that match, and the scale of their controllers. Raises `BadInput`."""
    spec = budget["spec"]
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most is not None:
        return PodExpectation(scale, max(0, scale - scaled(most, scale, up=True)))
    if least is None:
        return PodExpectation()
    if isinstance(least, str):
        return PodExpectation(scale, scaled(least, scale, up=True))
    return PodExpectation(matching, least)


def plan(
    budget: JsonObject,
    pods: Sequence[JsonObject],
    expected: PodExpectation,
    *,
    now: datetime,
    gone: Collection[str] = (),
) -> DisruptionPlan:
    """The status with the pods that match; `gone` are names of pods that were deleted and may exist again."""
    before = budget.get("status") or {}
    disrupted: dict[str, str] = {}
    overdue: list[JsonObject] = []
    next_check: datetime | None = None
    for pod in pods:
        at = (before.get("disruptedPods") or {}).get(pod["metadata"]["name"])
        if at is None or pod_facts.deleting(pod) or pod["metadata"]["name"] in gone:
            continue
        until = parse_time(at) + DELETION
        if until < now:
            overdue.append(pod)
        else:
            disrupted[pod["metadata"]["name"]] = at
            next_check = until if next_check is None else min(next_check, until)
    healthy = _healthy(pods, disrupted)
    # A budget without pods allows none, so that its first pods are safe until they are counted.
    allowed = max(0, healthy - expected.healthy) if expected.pods > 0 else 0
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": expected.healthy,
        "expectedPods": expected.pods,
        "observedGeneration": budget["metadata"].get("generation", 0),
        "conditions": before.get("conditions") or [],
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    state, reason = disruption_budgets.expected_condition(allowed)
    status = disruption_budgets.with_condition(status, state=state, reason=reason, now=format_time(now))
    after = (next_check - now).total_seconds() if next_check is not None else None
    return DisruptionPlan(status, tuple(overdue), after)


def _healthy(pods: Iterable[JsonObject], disrupted: dict[str, str]) -> int:
    """The number of ready pods that stay."""
    return sum(
        pod_facts.ready(pod) and not pod_facts.deleting(pod) and pod["metadata"]["name"] not in disrupted
        for pod in pods
    )


def failed(budget: JsonObject, why: str, *, now: datetime) -> JsonObject:
    """The status when the pods cannot be counted: no disruption is allowed, and the counts stay."""
    status = {**(budget.get("status") or {}), "disruptionsAllowed": 0}
    return disruption_budgets.with_condition(
        status, state="False", reason=disruption_budgets.SYNC_FAILED, message=why, now=format_time(now)
    )


def stale_after(pod: JsonObject, *, now: datetime) -> float | None:
    """The seconds until the pod's condition DisruptionTarget is out of date, 0 if it is; None if it never will be.

    That of a kubelet stays, and so does that of a pod which has ended or is being deleted.
    """
    found = pod_facts.condition(pod, disruption_budgets.TARGET)
    if found is None or not pod_facts.active(pod):
        return None
    if found.get("status") != "True" or found.get("reason") == "TerminationByKubelet":
        return None
    since = found.get("lastTransitionTime")
    if since is None:
        return 0.0
    return max(0.0, (parse_time(since) + DELETION - now).total_seconds())
