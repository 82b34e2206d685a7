# SPDX-License-Identifier: Apache-2.0
"""Requests, answers and streams as the handlers see them, and the parsing of API paths. HTTP is parsed by `wire`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue

JSON: Final = "application/json"
_FALSE: Final = frozenset({"false", "0"})
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "HEAD": "get"}


@dataclass(frozen=True, slots=True)
class User:
    """The authenticated user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def document(self) -> JsonObject:
        """The user as a `UserInfo`."""
        found: JsonObject = {"username": self.name}
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(values) for key, values in self.extra.items()}
        return found


MASTERS: Final = "system:masters"
LOOPBACK: Final = User("system:apiserver", (MASTERS, "system:authenticated"))
"""The user of the server's own requests."""


IMPERSONATES: Final = "impersonate-"
"""How headers of impersonation begin; the values of a repeated one are lines."""


@dataclass(slots=True)
class Request:
    """A request of a client."""

    method: str
    path: str
    query_text: str
    headers: Mapping[str, str]
    """Names in lower case; the values of a repeated one are joined by commas, those of impersonation by line breaks."""
    body: bytes
    user: User = LOOPBACK
    certificate: User | None = None
    """The user of the client certificate."""
    warnings: list[str] = field(default_factory=list)
    target: RequestTarget | None = None
    """The parsed path, once known."""
    verb: str = ""
    """`get`, `list` and so on, once known."""
    _query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters; the first value of repeated ones."""
        if self._query is None:
            found: dict[str, str] = {}
            if self.query_text:
                for key, value in parse_qsl(self.query_text, keep_blank_values=True):
                    found.setdefault(key, value)
            self._query = found
        return self._query

    def flag(self, name: str) -> bool:
        """Whether a parameter is true: given and neither `false` nor `0`."""
        return bool(self.query_text) and self.query.get(name, "false").lower() not in _FALSE


@dataclass(slots=True)
class Answer:
    """An answer sent in one piece."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class Sink(Protocol):
    """The connection that a stream writes to."""

    @property
    def closed(self) -> bool:
        """Whether the reader is gone."""

    @property
    def pending(self) -> int:
        """The number of bytes that the reader has not taken yet."""

    def write(self, chunk: bytes) -> None:
        """Send; never waits."""

    async def drained(self) -> None:
        """Wait until the reader has read most of it, or is gone."""

    def close(self) -> None:
        """End the answer in order."""

    def abort(self) -> None:
        """Cut the connection."""


class Feed(Protocol):
    """Produces a stream."""

    def start(self, sink: Sink) -> None:
        """Start to write; called once."""

    def stop(self) -> None:
        """Stop: the reader is gone, or the server stops."""


@dataclass(slots=True)
class Stream:
    """An answer sent piece by piece."""

    feed: Feed
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


class Duplex(Feed, Protocol):
    """Speaks another protocol with a client after an upgrade."""

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""


@dataclass(slots=True)
class Tunnel:
    """The upgraded connection, in both directions, until either side closes it."""

    feed: Duplex
    status: int = 101


Reply: TypeAlias = Answer | Stream | Tunnel


def answer(status: int, value: JsonValue) -> Answer:
    """A JSON answer."""
    return Answer(status, documents.dump(value))


class RequestTarget(NamedTuple):
    """What a path addresses. A tuple, since every request has one and a frozen class is several times slower."""

    group: str
    version: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """The path after the subresource, for a proxy."""
    watch: bool = False
    """The old form `/api/v1/watch/...`."""


def parse_target(path: str) -> RequestTarget | None:
    """The resource that an API path names; None if the path has no group and version."""
    parts = path.split("/")
    if len(parts) < 3:
        return None
    if parts[1] == "api":
        group, version, tail = "", parts[2], parts[3:]
    elif parts[1] == "apis" and len(parts) >= 4 and parts[2]:
        group, version, tail = parts[2], parts[3], parts[4:]
    else:
        return None
    if not version and not tail:  # `/api/` and `/apis/batch/` are `/api` and `/apis/batch`
        return None
    if "%" in path:
        tail = [unquote(part) for part in tail]
    if tail and tail[-1] == "":
        tail.pop()
    if not tail:
        return RequestTarget(group, version)
    watch = tail[0] == "watch" and len(tail) > 1
    if watch:
        tail = tail[1:]
    namespace = ""
    if tail[0] == "namespaces" and len(tail) > 2 and not (len(tail) == 3 and tail[2] in ("status", "finalize")):
        namespace, tail = tail[1], tail[2:]
    elif tail[0] == "namespaces" and len(tail) > 1:
        namespace = tail[1]
    count = len(tail)
    return RequestTarget(
        group,
        version,
        tail[0],
        namespace,
        tail[1] if count > 1 else "",
        tail[2] if count > 2 else "",
        "/".join(tail[3:]) if count > 3 else "",
        watch,
    )


def verb_of(request: Request, target: RequestTarget) -> str:
    """The verb that authorization checks, such as `list`; empty for an unknown method."""
    method = request.method
    watches = method == "GET" and (
        target.watch or (bool(request.query_text) and "watch" in request.query and request.flag("watch"))
    )
    if watches and not target.subresource:
        return "watch"
    if method == "GET" and not target.name:
        return "list"
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(method, "")
