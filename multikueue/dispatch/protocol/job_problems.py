# SPDX-License-Identifier: Apache-2.0
"""Why a remote job failed, does not start, or is not changed, as agent and hub exchange it.

A failure is the exit codes and the last lines of its failed containers. All texts come from kubelets, schedulers,
admission plugins and containers of a worker, and on the hub from its agent. None of these is trusted, and each side has
limits of its own: what is too long is cut, what has another type is left out, and control characters are escaped.
Nothing here raises: a failure that cannot be read must not hide the end of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.reasons import PODS_NOT_STARTED_REASON
from multikueue.core.conditions import truncate_message
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import printable

MAX_LOG_BYTES: Final = 16 * 1024
"""Of the last lines of all containers together, as UTF-8."""
MAX_LINES: Final = 80
"""Of one container."""
MAX_CONTAINERS: Final = 6
MAX_OMITTED: Final = 20
"""Names of pods that were left out; more are only counted."""
_NAME_LENGTH: Final = 253
SUMMARY: Final = "summary"
"""The key of the ConfigMap of a failure that has the exit codes; the others are made by `log_key`."""
_CONTAINER_LENGTH: Final = 63
_REASON_LENGTH: Final = 128
_PROBLEM_LENGTH: Final = 512
_CUT: Final = "[...] "
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
MAX_MESSAGE: Final = 400
"""In characters; an event and 80 columns have limits of their own."""
_READ: Final = 8 * MAX_MESSAGE
_REASON: Final = re.compile("[A-Za-z](?:[A-Za-z0-9_]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedContainer:
    """A container that ended with an error. `log` is empty if it wrote nothing, or with a `problem`."""

    pod: str
    container: str
    exit_code: int
    signal: int = 0
    reason: str = ""
    log: str = ""
    problem: str = ""
    """Why there are no lines."""

    def __str__(self) -> str:
        """Its end on one line."""
        details = [f"signal {self.signal}"] if self.signal else []
        details += [self.reason] if self.reason else []
        text = f"pod {self.pod}, container {self.container}: exit code {self.exit_code}"
        return f"{text} ({', '.join(details)})" if details else text


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """The failed containers of a job, newest first, and the failed pods that were left out."""

    containers: tuple[FailedContainer, ...] = ()
    omitted: tuple[str, ...] = ()
    """Names of failed pods whose containers are not listed."""
    omitted_count: int = 0
    problem: str = ""
    """What is missing, and why."""

    def summary(self) -> Iterator[str]:
        """Its exit codes, a line each, and what was left out."""
        yield from map(str, self.containers)
        if self.omitted_count:
            named = ", ".join(self.omitted)
            more = ", ..." if self.omitted_count > len(self.omitted) else ""
            yield f"{self.omitted_count} more failed pods left out: {named}{more}"
        if self.problem:
            yield self.problem


def last_bytes(text: str, most: int) -> str:
    """`text`, or its end of at most `most` bytes of UTF-8 with a mark at the start."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return text
    return "" if most <= len(_CUT) else _CUT + encoded[len(encoded) - most + len(_CUT) :].decode(errors="ignore")


def last_lines(text: str, *, lines: int = MAX_LINES, most: int = MAX_LOG_BYTES) -> str:
    """The last lines of a log as printable text of at most `most` bytes, without a newline at the end."""
    # Escapes are up to six times as long; what is cut off anyway is not escaped.
    kept = "\n".join(text.replace("\r\n", "\n").rstrip("\n").split("\n")[-lines:])[-most:]
    return last_bytes(printable(kept, keep="\n\t"), most)


def failure_wire(failure: JobFailure | None) -> JsonObject | None:
    """The `failure` in the status of an assignment; None without one."""
    if failure is None:
        return None
    containers = [
        {
            "pod": each.pod,
            "container": each.container,
            "exitCode": each.exit_code,
            **{
                name: value
                for name, value in (
                    ("signal", each.signal),
                    ("reason", each.reason),
                    ("log", each.log),
                    ("problem", each.problem),
                )
                if value
            },
        }
        for each in failure.containers
    ]
    fields: JsonObject = {
        "containers": containers,
        "omitted": list(failure.omitted),
        "omittedCount": failure.omitted_count,
        "problem": failure.problem,
    }
    return {name: value for name, value in fields.items() if value}


def failure_of(status: JsonObject) -> JobFailure | None:
    """The failure in the status of an assignment; None if there is none."""
    wire = status.get("failure")
    if not isinstance(wire, dict):
        return None
    entries = wire.get("containers")
    containers: list[FailedContainer] = []
    left = MAX_LOG_BYTES
    for entry in (entries if isinstance(entries, list) else [])[:MAX_CONTAINERS]:
        found = _container(entry, most=left)
        if found is not None:
            containers.append(found)
            left -= len(found.log.encode())
    names = wire.get("omitted")
    omitted = tuple(filter(None, map(object_name, (names if isinstance(names, list) else [])[:MAX_OMITTED])))
    return JobFailure(
        containers=tuple(containers),
        omitted=omitted,
        omitted_count=max(_number(wire.get("omittedCount")) or 0, len(omitted)),
        problem=_text(wire.get("problem"), _PROBLEM_LENGTH),
    )


def object_name(value: object, length: int = _NAME_LENGTH) -> str:
    """`value` if it is the name of a pod or container; empty otherwise."""
    return value if isinstance(value, str) and len(value) <= length and _NAME.fullmatch(value) else ""


def record_name(job: Key, uid: str) -> str:
    """The name of the ConfigMap with the failure of that Job; a new Job of the same name has another one."""
    return f"{job.name[:200]}-failure-{uid[:8]}".lower()


def log_key(container: FailedContainer) -> str:
    """The key of its lines in that ConfigMap; no name of a pod or container contains the separator."""
    return f"{container.pod[:180]}_{container.container}.log"


def _container(entry: object, *, most: int) -> FailedContainer | None:
    if not isinstance(entry, dict):
        return None
    pod, name = object_name(entry.get("pod")), object_name(entry.get("container"), _CONTAINER_LENGTH)
    exit_code = _number(entry.get("exitCode"))
    if not pod or not name or exit_code is None:
        return None
    log = entry.get("log")
    return FailedContainer(
        pod=pod,
        container=name,
        exit_code=exit_code,
        signal=_number(entry.get("signal")) or 0,
        reason=_text(entry.get("reason"), _REASON_LENGTH),
        log=last_lines(log, most=most) if isinstance(log, str) and log and most > 0 else "",
        problem=_text(entry.get("problem"), _PROBLEM_LENGTH),
    )


def _text(value: object, length: int) -> str:
    return truncate_message(printable(value[:length]), length) if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    try:
        return parse_unsigned(value, field="failure", maximum=MAX_INT32)
    except BadInput:
        return None


@dataclass(frozen=True, slots=True)
class StartProblem:
    """Why no pod of a job has started, or a change is not made; `since`, by the worker's clock, decides nothing."""

    reason: str
    message: str
    since: datetime | None = field(default=None, compare=False)


def start_problem_from(
    reason: object, message: object, *, since: datetime | None = None, otherwise: str = PODS_NOT_STARTED_REASON
) -> StartProblem:
    """The problem in texts of others: an invalid reason is `otherwise`, the message is made printable and short."""
    named = reason if isinstance(reason, str) and _REASON.fullmatch(reason) else otherwise
    # Cut before it is escaped, so that megabytes cost nothing, and after it, since escapes are longer.
    text = printable(" ".join(message[:_READ].split())) if isinstance(message, str) else ""
    return StartProblem(named, text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 4]} ...", since)
