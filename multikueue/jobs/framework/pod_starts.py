# SPDX-License-Identifier: Apache-2.0
"""Why no pod of a job starts, from its pods and their events. Pure.

Pods and events (events.k8s.io/v1) are those of a cluster that others run: a field of another shape counts as absent. A
pod that ran once has started, whatever became of it: a crash loop is not a start problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.dispatch.protocol.job_problems import StartProblem, start_problem_from

NO_PODS: Final = "NoPods"
NO_PODS_SECONDS: Final = 30.0
"""How long a job may be without a pod until that is a problem by itself."""
_IMAGE: Final = "ImagePullBackOff"
_WAITING: Final = {
    reason: reason
    for reason in (
        _IMAGE,
        "ErrImageNeverPull",
        "ImageInspectError",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    )
} | {"ErrImagePull": _IMAGE}  # a kubelet alternates between the two
_NO_POD_CREATED: Final = "FailedCreate"
# Tuples, since a field of another shape may not be hashable.
_STARTED: Final = ("Running", "Succeeded", "Failed")
_OTHER_CAUSES: Final = ("FailedScheduling", "BackOff", "Unhealthy")
"""Warnings about a pod that its conditions and container states show better, or that are of a running pod."""
_VARIES: Final = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz0-9]{5}\b|\d+")
"""The suffix of a generated pod name, which may begin with a digit, and numbers."""


def start_problem(
    pods: Sequence[JsonObject] | None, events: Iterable[JsonObject], *, waited: float
) -> StartProblem | None:
    """Why no pod has started; None if one has, or if no cause is known yet.

    `pods` is None if they may not be read. `events` are those of the job if it has no pod, else those of its pods.
    `waited` is how many seconds ago the job was first seen.
    """
    warnings = _warnings(events)
    living = sorted((pod for pod in pods or () if not _map(pod, "metadata").get("deletionTimestamp")), key=_name)
    if not living:
        return _of_job(warnings, known=pods is not None, waited=waited)
    if any(_map(pod, "status").get("phase") in _STARTED for pod in living):
        return None
    for find in (_waiting_container, _not_scheduled):
        for pod in living:
            found = find(pod)
            if found is not None:
                return found
    for event in warnings:
        if event.get("reason") not in (*_OTHER_CAUSES, _NO_POD_CREATED):
            about = _map(event, "regarding").get("name")
            return start_problem_from(event.get("reason"), f"pod {about}: {event.get('note')}")
    return None


def needs_events(pods: Sequence[JsonObject]) -> str:
    """The uid of a pod whose events may have the cause; empty if its status has it or none is needed."""
    living = sorted((pod for pod in pods if not _map(pod, "metadata").get("deletionTimestamp")), key=_name)
    if start_problem(living, (), waited=0.0) is not None:
        return ""
    if any(_map(pod, "status").get("phase") in _STARTED for pod in living):
        return ""
    uid = next((_map(pod, "metadata").get("uid") for pod in living), "")
    return uid if isinstance(uid, str) else ""


def same_cause(one: StartProblem, other: StartProblem) -> bool:
    """Whether two problems differ at most in numbers, names of pods, and how far the pull of an image is."""
    if one.reason != other.reason:
        return False
    return one.reason == _IMAGE or _VARIES.sub("#", one.message) == _VARIES.sub("#", other.message)


def _of_job(warnings: Sequence[JsonObject], *, known: bool, waited: float) -> StartProblem | None:
    failed = next((event for event in warnings if event.get("reason") == _NO_POD_CREATED), None)
    if failed is not None:
        return start_problem_from(_NO_POD_CREATED, failed.get("note"))
    if not known or waited < NO_PODS_SECONDS:
        return None
    return start_problem_from(NO_PODS, "it has no pod, and no event shows why: check the controller of its kind there")


def _waiting_container(pod: JsonObject) -> StartProblem | None:
    status = _map(pod, "status")
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in _maps(status.get(field)):
            waiting = _map(_map(container, "state"), "waiting")
            reason = waiting.get("reason")
            if isinstance(reason, str) and reason in _WAITING:
                why = waiting.get("message") or reason
                return start_problem_from(
                    _WAITING[reason], f"pod {_name(pod)}, container {container.get('name')}: {why}"
                )
    return None


def _not_scheduled(pod: JsonObject) -> StartProblem | None:
    for condition in _maps(_map(pod, "status").get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return start_problem_from(condition.get("reason"), f"pod {_name(pod)}: {condition.get('message')}")
    return None


def _warnings(events: Iterable[JsonObject]) -> list[JsonObject]:
    """The newest first."""
    found = [event for event in events if isinstance(event, dict) and event.get("type") == "Warning"]
    return sorted(found, key=_time, reverse=True)


def _time(event: JsonObject) -> str:
    """RFC 3339 text in UTC is in the order of time; what is not valid has any place."""
    series = _map(event, "series").get("lastObservedTime")
    moments = (series, event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return next((moment for moment in moments if isinstance(moment, str)), "")


def _name(pod: JsonObject) -> str:
    return str(_map(pod, "metadata").get("name") or "")


def _map(source: JsonObject, field: str) -> JsonObject:
    value = source.get(field) if isinstance(source, dict) else None
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> Iterator[JsonObject]:
    return (entry for entry in (value if isinstance(value, list) else ()) if isinstance(entry, dict))
