# SPDX-License-Identifier: Apache-2.0
"""The writes of managers and agents, each with a name, and the failure of one of them.

Owns what a write is known by: who sends it, where to, the verb, the resource, the field manager and the function that
sends it, with what it changes where one function has several reasons to write. An observer lets everything pass and
notes it, or has the first write of one kind fail, or all of that kind for a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final
from urllib.parse import parse_qs

import orjson

from devcluster.apiserver.http.requests import Request
from tests.simulation.world.network import Server, WriteFailure

ROOT: Final = Path(__file__).parents[3]
MINUTE: Final = 60.0
_VERBS: Final = {
    "application/merge-patch+json": "merge patch",
    "application/json-patch+json": "JSON patch",
    "application/apply-patch+yaml": "apply",
    "application/strategic-merge-patch+json": "strategic patch",
}
_METHODS: Final = {"POST": "create", "PUT": "replace", "DELETE": "delete"}
_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
# What carries a write for others says nothing of why it is sent.
_WRITERS: Final = frozenset(
    {
        "multikueue/kube/rest/client.py",
        "multikueue/kube/rest/connection.py",
        "multikueue/kube/rest/patch.py",
        "manager/workload/status_writer.py",
        "manager/dispatch/condition_writes.py",
    }
)


@dataclass(frozen=True, slots=True, order=True)
class Write:
    """One kind of write."""

    process: str
    server: str
    resource: str
    verb: str
    manager: str
    cause: str

    def __str__(self) -> str:
        by = f" as {self.manager}" if self.manager else ""
        return f"{self.process} -> {self.server}: {self.verb} {self.resource}{by} ({self.cause})"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of write that fails, and how; once, or for a minute from its first time on."""

    write: Write
    failure: WriteFailure
    lasting: bool


class Observer:
    """Sees the requests of one process."""

    def __init__(self, process: str, log: WriteLog) -> None:
        self._process = process
        self._log = log

    def failure(self, server: str, request: Request) -> WriteFailure | None:
        """The chosen failure of a chosen write."""
        # A review is a question, and nothing is stored.
        if request.method == "GET" or request.path.endswith("accessreviews"):
            return None
        return self._log.noted(self._process, server, request)


class WriteLog:
    """What all processes of a course wrote, and which of it fails."""

    def __init__(self, servers: Mapping[str, Server], *, now: Callable[[], float], case: Case | None) -> None:
        self._servers = servers
        self._now = now
        self._case = case
        self._until: float | None = None
        self.seen: dict[Write, None] = {}
        self.struck = 0
        self.trace: Callable[[str], None] = lambda line: None

    @property
    def over(self) -> bool:
        """Whether nothing fails any more."""
        return self._case is None or (self._until is not None and self._now() >= self._until)

    def noted(self, process: str, server: str, request: Request) -> WriteFailure | None:
        """Note a write; its failure where it is the chosen one."""
        write = self._write(process, server, request)
        self.seen.setdefault(write)
        case = self._case
        if case is None or write != case.write:
            self.trace(f"{write} {request.path}")
            return None
        if self._until is None:
            self._until = self._now() + (MINUTE if case.lasting else 0.0)
        elif not case.lasting or self._now() >= self._until:
            self.trace(f"{write} {request.path}")
            return None
        self.struck += 1
        self.trace(f"{write} {request.path}: {case.failure}")
        return case.failure

    def _write(self, process: str, server: str, request: Request) -> Write:
        query = parse_qs(request.query_text)
        resource, key = _resource(request.path)
        verb = _METHODS.get(request.method) or _VERBS[request.headers["content-type"].partition(";")[0]]
        cause = _sender()
        if resource == "workloads/status" and request.method != "POST":
            old = self._servers[server].api.context.get(_WORKLOADS, key) or {}
            status = orjson.loads(request.body).get("status") or {}
            if status.keys() == {"reclaimablePods"}:
                cause = f"{cause}: {'' if status['reclaimablePods'] else 'no '}reclaimablePods"
            else:
                cause = f"{cause}: {_changes(old.get('status') or {}, status)}"
        return Write(
            process=process,
            server="hub" if server == "hub" else "worker",
            resource=resource,
            verb=verb,
            manager=(query.get("fieldManager") or [""])[0],
            cause=cause,
        )


def _resource(path: str) -> tuple[str, str]:
    """`plural` or `plural/subresource`, and the key of the object."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
        namespace, parts = parts[1], parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    sub = f"/{parts[2]}" if len(parts) > 2 else ""
    return parts[0] + sub, f"{namespace}/{name}"


def _sender() -> str:
    """The function of ours that sends what is being sent."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(f"{ROOT}/"):
            own = name[len(str(ROOT)) + 1 :]
            if own.partition("/")[0] in ("manager", "worker_agent", "multikueue", "devcluster") and own not in _WRITERS:
                return f"{own.removesuffix('.py').replace('/', '.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What a status that is applied says otherwise than the one that is stored."""
    found = [
        f"{kind}={new_conditions[kind]}" if kind in new_conditions else f"no {kind}"
        for old_conditions, new_conditions in [(_conditions(old), _conditions(new))]
        for kind in new_conditions.keys() | old_conditions.keys()
        if old_conditions.get(kind) != new_conditions.get(kind) and kind not in _OTHERS
    ]
    checks = {check["name"]: check["state"] for check in old.get("admissionChecks") or ()}
    found += [
        f"check {check['state']}"
        for check in new.get("admissionChecks") or ()
        if checks.get(check["name"]) != check["state"]
    ]
    found += [name for name in ("clusterName", "nominatedClusterNames") if old.get(name) != new.get(name)]
    return ", ".join(sorted(set(found))) or "messages"


_OTHERS: Final = frozenset({"QuotaAutomation"})


def _conditions(status: Mapping[str, Any]) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in status.get("conditions") or ()}


EVERY_FAILURE: Final = tuple((failure, lasting) for failure in WriteFailure for lasting in (False, True))
"""Each failure, once and for a minute."""
THREE_FAILURES: Final = (
    (WriteFailure.CONFLICT, False),
    (WriteFailure.INTERNAL, True),
    (WriteFailure.LOST_ANSWER, False),
)
"""One of each sort: what is decided anew, what is repeated for long, and what was stored all the same."""


def cases(writes: Iterable[Write], failures: Iterable[tuple[WriteFailure, bool]] = EVERY_FAILURE) -> list[Case]:
    """Each write with each of those failures."""
    chosen = tuple(failures)
    return [Case(write, failure, lasting) for write in writes for failure, lasting in chosen]
