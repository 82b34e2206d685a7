# SPDX-License-Identifier: Apache-2.0
"""Properties of a pod that controllers read. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.conditions import find_in
from multikueue.core.timestamps import parse_time

INDEX: Final = "batch.kubernetes.io/job-completion-index"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"


def uid(pod: JsonObject) -> str:
    """The uid."""
    return str(pod["metadata"]["uid"])


def phase(pod: JsonObject) -> str:
    """The phase; Pending for a new pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def ended(pod: JsonObject) -> bool:
    """Whether the phase is terminal."""
    return phase(pod) in ("Succeeded", "Failed")


def deleting(pod: JsonObject) -> bool:
    """Whether it has a deletion timestamp."""
    return "deletionTimestamp" in pod["metadata"]


def active(pod: JsonObject) -> bool:
    """Whether it has neither ended nor a deletion timestamp."""
    return not ended(pod) and not deleting(pod)


def terminating(pod: JsonObject) -> bool:
    """Whether it has a deletion timestamp and has not ended."""
    return deleting(pod) and not ended(pod)


def tracked(pod: JsonObject) -> bool:
    """Whether it has the finalizer of Job tracking."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def condition(pod: JsonObject, type_: str) -> JsonObject | None:
    """The condition of that type."""
    return find_in(pod.get("status"), type_)


def ready(pod: JsonObject) -> bool:
    """Whether the condition Ready is True."""
    found = condition(pod, "Ready")
    return found is not None and found.get("status") == "True"


def index_of(pod: JsonObject) -> int | None:
    """The completion index; None if it is absent or invalid."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def count(pod: JsonObject, annotation: str) -> int:
    """The number in an annotation; 0 if it is absent or invalid."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isdecimal() else 0


def restarts(pod: JsonObject) -> int:
    """The sum of its containers' restart counts."""
    return sum(int(entry.get("restartCount", 0)) for entry in container_statuses(pod))


def container_statuses(pod: JsonObject) -> Iterator[JsonObject]:
    """The statuses of its init containers and containers."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def finished_at(pod: JsonObject, *, now: datetime) -> datetime:
    """When it ended: from its containers, its Ready condition, else `now`."""
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
