# SPDX-License-Identifier: Apache-2.0
"""What a Job's controller reads off a pod. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.timestamps import parse_time

INDEX: Final = "batch.kubernetes.io/job-completion-index"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"


def uid(pod: JsonObject) -> str:
    """Its identity."""
    return str(pod["metadata"]["uid"])


def phase(pod: JsonObject) -> str:
    """Its phase; that of a new pod is Pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def ended(pod: JsonObject) -> bool:
    """Whether its containers have come to their end."""
    return phase(pod) in ("Succeeded", "Failed")


def deleting(pod: JsonObject) -> bool:
    """Whether it was asked to go."""
    return "deletionTimestamp" in pod["metadata"]


def active(pod: JsonObject) -> bool:
    """Whether it runs or is to run."""
    return not ended(pod) and not deleting(pod)


def terminating(pod: JsonObject) -> bool:
    """Whether it was asked to go and has not ended."""
    return deleting(pod) and not ended(pod)


def tracked(pod: JsonObject) -> bool:
    """Whether its end has to be counted before it may go."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def condition(pod: JsonObject, type_: str) -> JsonObject | None:
    """Its condition of that type."""
    conditions: list[JsonObject] = (pod.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry.get("type") == type_), None)


def ready(pod: JsonObject) -> bool:
    """Whether its condition Ready is True."""
    found = condition(pod, "Ready")
    return found is not None and found.get("status") == "True"


def index_of(pod: JsonObject) -> int | None:
    """The completion index; None for a pod without a sound one."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def count(pod: JsonObject, annotation: str) -> int:
    """The number in an annotation; 0 without."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isdecimal() else 0


def restarts(pod: JsonObject) -> int:
    """How often its containers were started again."""
    return sum(int(entry.get("restartCount", 0)) for entry in container_statuses(pod))


def container_statuses(pod: JsonObject) -> Iterator[JsonObject]:
    """The statuses of all its containers, those that run first to last."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def finished_at(pod: JsonObject, *, now: datetime) -> datetime:
    """When it came to its end, as well as it can be told."""
    times = [
        parse_time(found)
        for entry in container_statuses(pod)
        if (found := ((entry.get("state") or {}).get("terminated") or {}).get("finishedAt"))
    ]
    if times:
        return max(times)
    changed = condition(pod, "Ready")
    if changed is not None and changed.get("lastTransitionTime"):
        return parse_time(changed["lastTransitionTime"])
    return now
