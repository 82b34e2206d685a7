# SPDX-License-Identifier: Apache-2.0
"""Which containers of a failed job are reported: those that ended with an error, of its newest failed pods. Pure.

The pods are as the API server of the worker answers. One that cannot be read is left out: it must not hide the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import printable
from multikueue.dispatch.protocol.job_problems import (
    MAX_CONTAINERS,
    MAX_OMITTED,
    FailedContainer,
    JobFailure,
    object_name,
)

MAX_FAILED_PODS: Final = 3
"""The pods of which containers are reported."""
_TIME_LENGTH: Final = 40
_REASON_LENGTH: Final = 128
_STATUSES: Final = ("initContainerStatuses", "containerStatuses")


@dataclass(frozen=True, slots=True)
class _FailedPod:
    name: str
    ended: str
    """The time of its last end, which sorts as text."""
    containers: tuple[FailedContainer, ...]


def failed_containers(pods: Sequence[object], *, unread: str = "") -> JobFailure:
    """The failed containers of the newest failed pods, without their logs; `unread` is why there may be more."""
    found = sorted(filter(None, map(_failed, pods)), key=lambda pod: (pod.ended, pod.name), reverse=True)
    shown: list[_FailedPod] = []
    containers: list[FailedContainer] = []
    for pod in found:
        if len(shown) < MAX_FAILED_PODS and len(containers) + len(pod.containers) <= MAX_CONTAINERS:
            shown.append(pod)
            containers += pod.containers
    omitted = [pod.name for pod in found if pod not in shown]
    return JobFailure(
        containers=tuple(containers),
        omitted=tuple(omitted[:MAX_OMITTED]),
        omitted_count=len(omitted),
        problem=unread if found else "no failed container was found on the worker cluster",
    )


def _failed(pod: object) -> _FailedPod | None:
    metadata, status = _child(pod, "metadata"), _child(pod, "status")
    name = object_name(metadata.get("name"))
    ended = ""
    containers: list[FailedContainer] = []
    for container, terminated in _terminated(status):
        try:
            exit_code = parse_unsigned(terminated.get("exitCode"), field="exitCode", maximum=MAX_INT32)
            signal = parse_unsigned(terminated.get("signal") or 0, field="signal", maximum=MAX_INT32)
        except BadInput:
            continue
        if not exit_code and not signal:
            continue
        ended = max(ended, _text(terminated.get("finishedAt"), _TIME_LENGTH))
        reason = _text(terminated.get("reason"), _REASON_LENGTH)
        containers.append(
            FailedContainer(pod=name, container=container, exit_code=exit_code, signal=signal, reason=reason)
        )
    if not name or not containers:
        return None
    return _FailedPod(name, ended, tuple(containers[:MAX_CONTAINERS]))


def _terminated(status: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for field in _STATUSES:
        entries = status.get(field)
        for entry in entries if isinstance(entries, list) else []:
            name = object_name(entry.get("name") if isinstance(entry, dict) else None, 63)
            terminated = _child(_child(entry, "state"), "terminated")
            if name and terminated:
                yield name, terminated


def _child(value: object, name: str) -> JsonObject:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: object, length: int) -> str:
    return printable(value[:length])[:length] if isinstance(value, str) else ""
