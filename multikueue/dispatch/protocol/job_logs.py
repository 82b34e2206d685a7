# SPDX-License-Identifier: Apache-2.0
"""Requests for the logs of a remote job and their answers, as user, manager and agent exchange them.

A user creates a JobLogRequest; the manager passes it on in `spec.logs` of the job's assignment; the agent answers in
`status.logs` with one chunk, and with the next one when the cursor of the request has the number of the last. Text of a
worker is cut to `MAX_CHUNK_BYTES` and made printable by both sides, since neither trusts it. Nothing that is read from
a status raises: an answer that cannot be read is no answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import orjson

from multikueue.api.meta import JsonObject
from multikueue.core.conditions import truncate_message
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import printable
from multikueue.core.timestamps import format_time, parse_time
from multikueue.dispatch.protocol.job_problems import object_name

MAX_CHUNK_BYTES: Final = 64 * 1024
"""Of one chunk, as UTF-8."""
MAX_REQUESTS: Final = 5
"""In one namespace, and therefore for one job."""
INTERRUPTED: Final = "interrupted; request the rest with sinceTime"
"""The message of a chunk that is the last although there may be more: another request continues."""
NO_CONTAINER: Final = "has no container"
"""In the message about a pod without the container that was asked for, before the name of that."""
_UID_LENGTH: Final = 64
_CONTAINER_LENGTH: Final = 63
_MESSAGE_LENGTH: Final = 1024
_KEPT: Final = "\n\t"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """What to read of the pods of a job."""

    pod: str = ""
    """The only pod that is read, of a group of pods; empty if the job is not a pod."""
    container: str = ""
    """The first one of each pod if empty."""
    tail: int | None = None
    since: str = ""
    """The time of the first line in whole seconds; empty for all."""
    follow: bool = False
    all_pods: bool = False

    @classmethod
    def of(cls, spec: JsonObject) -> LogQuery:
        """From the spec of a JobLogRequest, or an entry of an assignment. Raises `BadInput`."""
        container = spec.get("container") or ""
        if container and not object_name(container, _CONTAINER_LENGTH):
            raise BadInput("spec.container: must be the name of a container")
        pod = spec.get("pod") or ""
        if pod and not object_name(pod):
            raise BadInput("spec.pod: must be the name of a pod")
        tail, since = spec.get("tailLines"), spec.get("sinceTime")
        return cls(
            pod=pod,
            container=container,
            tail=None if tail is None else parse_unsigned(tail, field="spec.tailLines", maximum=MAX_INT32),
            since=format_time(parse_time(since)) if since else "",
            follow=spec.get("follow") is True,
            all_pods=spec.get("allPods") is True,
        )

    def wire(self) -> JsonObject:
        """Its fields in a spec, without those that have their default."""
        texts = {"pod": self.pod, "container": self.container, "sinceTime": self.since}
        flags = {"follow": self.follow, "allPods": self.all_pods}
        found: JsonObject = {name: value for name, value in {**texts, **flags}.items() if value}
        return found if self.tail is None else {**found, "tailLines": self.tail}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedRequest:
    """A request as the agent gets it."""

    request: str
    """Its uid."""
    cursor: int
    """The number of the last chunk that was read."""
    query: LogQuery

    def wire(self) -> JsonObject:
        """The entry of `spec.logs`."""
        return {"request": self.request, "cursor": self.cursor, **self.query.wire()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAnswer:
    """One chunk for one request."""

    request: str
    cursor: int
    pod: str = ""
    container: str = ""
    text: str = ""
    ended: bool = False
    message: str = ""

    def wire(self) -> JsonObject:
        """The entry of `status.logs`."""
        fields: JsonObject = {"request": self.request, "cursor": self.cursor, **self.shown()}
        return {name: value for name, value in fields.items() if value not in ("", False)}

    def shown(self) -> JsonObject:
        """What the status of the JobLogRequest has of it as well."""
        return {
            "pod": self.pod,
            "container": self.container,
            "chunk": self.text,
            "ended": self.ended,
            "message": truncate_message(self.message, _MESSAGE_LENGTH),
        }


def relayed_requests(assignment: JsonObject) -> tuple[RelayedRequest, ...]:
    """The requests in an assignment; those that cannot be read are left out."""
    return tuple(_read(_relayed, _entries(assignment.get("spec"))))


def answers_of(assignment: JsonObject) -> tuple[LogAnswer, ...]:
    """The chunks in the status of an assignment, cut and printable; those that cannot be read are left out."""
    return tuple(_read(read_answer, _entries(assignment.get("status"))))


def subject(spec: JsonObject) -> str:
    """A digest of a request without its cursor: what its seal confirms. Raises `BadInput`."""
    job: JsonObject = spec.get("job") or {}
    parts = [job.get("apiVersion"), job.get("kind"), job.get("name"), LogQuery.of(spec).wire()]
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def readable(text: str) -> str:
    """Text of a container without control characters; lines and tabs stay."""
    return printable(text.replace("\r\n", "\n"), keep=_KEPT)


def cut(text: str, most: int = MAX_CHUNK_BYTES) -> tuple[str, str]:
    """`text` in two, of which the first has at most `most` bytes as UTF-8."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return text, ""
    head = encoded[:most].decode(errors="ignore")
    return head, text[len(head) :]


def _entries(part: object) -> list[object]:
    entries = part.get("logs") if isinstance(part, dict) else None
    return entries[:MAX_REQUESTS] if isinstance(entries, list) else []


def _read(read: Callable[[JsonObject], T], entries: Iterable[object]) -> Iterator[T]:
    for entry in entries:
        try:
            if isinstance(entry, dict):
                yield read(entry)
        except BadInput:
            continue


def _relayed(entry: JsonObject) -> RelayedRequest:
    return RelayedRequest(request=_uid(entry), cursor=_cursor(entry), query=LogQuery.of(entry))


def read_answer(entry: JsonObject) -> LogAnswer:
    """A chunk, cut and printable. Raises `BadInput`."""
    text, message = entry.get("chunk"), entry.get("message")
    return LogAnswer(
        request=_uid(entry),
        cursor=_cursor(entry),
        pod=object_name(entry.get("pod")),
        container=object_name(entry.get("container"), _CONTAINER_LENGTH),
        # Escapes are longer: it is cut before and after.
        text=cut(readable(text[:MAX_CHUNK_BYTES]))[0] if isinstance(text, str) else "",
        ended=entry.get("ended") is True,
        message=printable(message[:_MESSAGE_LENGTH])[:_MESSAGE_LENGTH] if isinstance(message, str) else "",
    )


def _uid(entry: JsonObject) -> str:
    uid = entry.get("request")
    if not isinstance(uid, str) or not 0 < len(uid) <= _UID_LENGTH:
        raise BadInput("logs.request: expected a uid")
    return uid


def _cursor(entry: JsonObject) -> int:
    return parse_unsigned(entry.get("cursor") or 0, field="logs.cursor")
