# SPDX-License-Identifier: Apache-2.0
"""A request and its answer, free of any HTTP framework, and what a path addresses.

Owns the values that pass between the wire and the handlers. Leaves parsing of HTTP to `wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue

JSON: Final = "application/json"
_FALSE: Final = frozenset({"false", "0"})


@dataclass(frozen=True, slots=True)
class User:
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def document(self) -> JsonObject:
        """As `UserInfo` is written."""
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
"""The server itself."""


@dataclass(slots=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    query_text: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    user: User = LOOPBACK
    certificate: User | None = None
    """Who the client's certificate says it is."""
    warnings: list[str] = field(default_factory=list)
    target: Target | None = None
    """What the path addresses, once that is known."""
    verb: str = ""
    """`get`, `list` and so on, once that is known."""
    _query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters; of repeated ones the first counts."""
        if self._query is None:
            found: dict[str, str] = {}
            if self.query_text:
                for key, value in parse_qsl(self.query_text, keep_blank_values=True):
                    found.setdefault(key, value)
            self._query = found
        return self._query

    def flag(self, name: str) -> bool:
        """A parameter that is true, as whatever is given is but `false` and `0`."""
        return bool(self.query_text) and self.query.get(name, "false").lower() not in _FALSE


@dataclass(slots=True)
class Answer:
    """What is sent back in one piece."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class Sink(Protocol):
    """Where a stream writes to."""

    @property
    def closed(self) -> bool:
        """Whether nobody reads any more."""

    @property
    def pending(self) -> int:
        """How many bytes wait for the reader."""

    def write(self, chunk: bytes) -> None:
        """Send; never waits."""

    async def drained(self) -> None:
        """Wait until the reader has read most of it, or is gone."""

    def close(self) -> None:
        """End the answer in order."""

    def abort(self) -> None:
        """Cut the connection."""


class Feed(Protocol):
    """What produces a stream."""

    def start(self, sink: Sink) -> None:
        """Begin to write; called once."""

    def stop(self) -> None:
        """The reader is gone, or the server ends."""


@dataclass(slots=True)
class Stream:
    """What is sent back piece by piece."""

    feed: Feed
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


class Duplex(Feed, Protocol):
    """What speaks with a client whose connection is no HTTP any more."""

    def receive(self, data: bytes) -> None:
        """The client has sent this."""


@dataclass(slots=True)
class Tunnel:
    """The connection itself, in both directions and with all that is said on it, until either side ends it."""

    feed: Duplex
    status: int = 101


Reply: TypeAlias = Answer | Stream | Tunnel


def answer(status: int, value: JsonValue) -> Answer:
    """A JSON answer."""
    return Answer(status, documents.dump(value))


class Target(NamedTuple):
    """What a path addresses. A tuple, which is made several times as fast as a frozen class; every request has one."""

    group: str
    version: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """What follows the subresource, for a proxy."""
    watch: bool = False
    """The old form `/api/v1/watch/...`."""


def target(path: str) -> Target | None:
    """What an API path addresses; None when it is no path of a group and version."""
    parts = path.split("/")
    if len(parts) < 3:
        return None
    if parts[1] == "api":
        group, version, tail = "", parts[2], parts[3:]
    elif parts[1] == "apis" and len(parts) >= 4:
        group, version, tail = parts[2], parts[3], parts[4:]
    else:
        return None
    if "%" in path:
        tail = [unquote(part) for part in tail]
    if tail and tail[-1] == "":
        tail.pop()
    if not tail:
        return Target(group, version)
    watch = tail[0] == "watch" and len(tail) > 1
    if watch:
        tail = tail[1:]
    namespace = ""
    if tail[0] == "namespaces" and len(tail) > 2 and not (len(tail) == 3 and tail[2] in ("status", "finalize")):
        namespace, tail = tail[1], tail[2:]
    elif tail[0] == "namespaces" and len(tail) > 1:
        namespace = tail[1]
    count = len(tail)
    return Target(
        group,
        version,
        tail[0],
        namespace,
        tail[1] if count > 1 else "",
        tail[2] if count > 2 else "",
        "/".join(tail[3:]) if count > 3 else "",
        watch,
    )
