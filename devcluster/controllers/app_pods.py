# SPDX-License-Identifier: Apache-2.0
"""The pods of ReplicaSets, StatefulSets and DaemonSets: their manifests, and which are ready and available. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from devcluster.controllers import pod_facts
from devcluster.controllers.dependents import reference_to
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.timestamps import parse_time


def from_template(owner: JsonObject, resource: Resource) -> JsonObject:
    """A pod of the owner's template, without a name."""
    template = copy.deepcopy(owner["spec"]["template"])
    metadata = template.get("metadata") or {}
    made = {name: metadata[name] for name in ("labels", "annotations", "finalizers") if metadata.get(name)}
    made |= {"namespace": owner["metadata"]["namespace"], "ownerReferences": [reference_to(owner, resource)]}
    return {"metadata": made, "spec": template["spec"]}


def available_at(pod: JsonObject, *, seconds: int) -> datetime | None:
    """When a ready pod is or becomes available, `seconds` (minReadySeconds) after it became ready."""
    found = pod_facts.condition(pod, "Ready")
    if found is None or found.get("status") != "True" or not found.get("lastTransitionTime"):
        return None
    return parse_time(found["lastTransitionTime"]) + timedelta(seconds=seconds)


def is_available(pod: JsonObject, *, seconds: int, now: datetime) -> bool:
    """Whether it is ready, and has been for `seconds` (minReadySeconds)."""
    if not seconds:
        return pod_facts.ready(pod)
    at = available_at(pod, seconds=seconds)
    return at is not None and at <= now


@dataclass(frozen=True, slots=True)
class Readiness:
    """How many pods are ready and available; `after` is the seconds until one more is available."""

    ready: int
    available: int
    after: float | None


def readiness(pods: Iterable[JsonObject], *, seconds: int, now: datetime) -> Readiness:
    """The readiness of these pods."""
    ready = [pod for pod in pods if pod_facts.ready(pod)]
    if not seconds:
        return Readiness(len(ready), len(ready), None)
    times: Sequence[datetime] = [at for pod in ready if (at := available_at(pod, seconds=seconds)) is not None]
    later = [at for at in times if at > now]
    after = (min(later) - now).total_seconds() if later else None
    return Readiness(len(ready), len(times) - len(later), after)
