# SPDX-License-Identifier: Apache-2.0
"""Sends the same requests to the embedded API server and to a real one, and compares the answers.

Owns sending requests, normalising what differs between any two servers (uids, versions, times, random names), and the
comparison. A case is a coroutine function that talks to one `Side`; `Both.judge` plays it on both sides and compares
all answers. Accepted differences are in `differences.yaml`, by case id with the reason; an entry whose case is equal
fails, so that the list has no stale entries.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import aiohttp
import pytest
import yaml

from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.http.requests import MASTERS, User
from devcluster.apiserver.server import ApiServer
from devcluster.cluster import ADMIN_GROUP, ADMIN_USER
from devcluster.pki import front_proxy, new_key
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.kube.rest import credentials

Json: TypeAlias = Any
"""Whatever JSON can hold."""
PatchType: TypeAlias = Literal["merge", "json", "strategic", "apply"]

_MEDIA: Final[Mapping[PatchType, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_DIFFERENCES: Final = Path(__file__).with_name("differences.yaml")
_PATIENCE: Final = 10.0
_SUFFIX: Final = "[bcdfghjklmnpqrstvwxz2456789]{5}\\b"
_UUID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE: Final = re.compile(r"(?:\d+[dhms])+")
_DOCUMENT: Final = re.compile(r'Invalid value: "(?:\{|map\[).*[\]}]": ', re.DOTALL)
_OF_DEFINITION: Final = "Custom resource definition column"
_MISSING: Final = re.compile(r"is missing in '\{.*\}'", re.DOTALL)
_ETCD_PREFIX: Final = re.compile(r"Key: /conformance-[0-9a-f]+/")
_RECORDED: Final = re.compile(r"in record \((\d+)\)")
_VERSION_WORDS: Final = re.compile(r"(ResourceVersion in (?:precondition|object meta)): (\d+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server."""

    status: int
    content_type: str
    body: Json
    """Parsed when it is JSON, else the text."""
    warnings: tuple[str, ...] = ()
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request; `{ns}` and `{id}` in the path, the query and the body's strings are replaced for each case."""

    method: str
    path: str
    body: Json = None
    """A JSON value; bytes are sent unchanged."""
    content_type: str = "application/json"
    accept: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class Server:
    """One API server and a connection to it."""

    kubeconfig: Path | None = None
    """What kubectl needs to be the administrator here; without it the address is enough."""

    def __init__(self, name: str, url: str, session: aiohttp.ClientSession, tls: ssl.SSLContext | bool) -> None:
        self.name = name
        self.url = url
        self.session = session
        self.tls = tls

    async def send(self, exchange: Exchange) -> Answer:
        """The answer to one request; an `Answer` of status 0 if there is none in time."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._send(exchange)
        except TimeoutError:
            return Answer(0, "", "no end of the answer")
        except aiohttp.ServerDisconnectedError:
            return Answer(0, "", "no answer")

    async def _send(self, exchange: Exchange) -> Answer:
        body = exchange.body
        headers = {"Accept": exchange.accept, **exchange.headers}
        if body is not None:
            headers.setdefault("Content-Type", exchange.content_type)
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.request(
            exchange.method, self.url + exchange.path, data=body, headers=headers, ssl=self.tls
        ) as response:
            raw = await response.read()
            media = response.headers.get("Content-Type", "")
            warnings = tuple(response.headers.getall("Warning", ()))
            return Answer(response.status, media, _read(raw, media), warnings, response.headers.get("Retry-After", ""))

    async def stream(self, exchange: Exchange) -> AsyncIterator[Json]:
        """The lines of a streamed answer, as they arrive."""
        headers = {"Accept": exchange.accept, **exchange.headers}
        async with self.session.request(
            exchange.method, self.url + exchange.path, headers=headers, ssl=self.tls
        ) as response:
            if response.status != 200:
                raw = await response.read()
                yield {"status": response.status, "body": _read(raw, response.headers.get("Content-Type", ""))}
                return
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)


def _read(raw: bytes, media: str) -> Json:
    if "json" in media and raw:
        return json.loads(raw)
    return raw.decode(errors="replace")


class Side:
    """One case on one server: sends requests and records the answers."""

    def __init__(self, server: Server, case_id: str) -> None:
        self.server = server
        self.id = "c" + hashlib.sha256(case_id.encode()).hexdigest()[:10]
        """The case's unique name, for cluster-scoped objects; `{id}` in paths and bodies."""
        self.ns = self.id
        """The case's namespace, created before the case begins; `{ns}` in paths and bodies."""
        self.record: list[tuple[str, Json]] = []
        self.prefixes: set[str] = set()
        """The `generateName` prefixes used here."""

    async def begin(self) -> None:
        """Create the case's namespace; not recorded."""
        namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": self.ns}}
        await self.quietly(Exchange("POST", "/api/v1/namespaces", namespace))

    async def quietly(self, exchange: Exchange) -> Answer:
        """Send a request whose answer is not compared, to prepare a case."""
        found = await self.server.send(self.filled(exchange))
        if found.status >= 400:
            raise AssertionError(f"{self.server.name}: {exchange.method} {exchange.path}: {found.body}")
        return found

    async def exchange(self, exchange: Exchange) -> Answer:
        """Send a request whose answer is compared."""
        metadata = exchange.body.get("metadata") if isinstance(exchange.body, dict) else None
        if isinstance(metadata, dict) and metadata.get("generateName"):
            self.prefixes.add(self.own(metadata["generateName"])[:58])
        found = await self.server.send(self.filled(exchange))
        self.note(
            f"{exchange.method} {exchange.path}",
            {
                "status": found.status,
                "contentType": found.content_type,
                "warnings": list(found.warnings),
                "retryAfter": found.retry_after,
                "body": found.body,
            },
        )
        return found

    async def send(self, method: str, path: str, body: Json = None, **more: Json) -> Answer:
        """Send a request whose answer is compared; `more` are the fields of `Exchange`."""
        return await self.exchange(Exchange(method, path, body, **more))

    async def get(self, path: str, **more: Json) -> Answer:
        """GET."""
        return await self.send("GET", path, **more)

    async def post(self, path: str, body: Json, **more: Json) -> Answer:
        """POST."""
        return await self.send("POST", path, body, **more)

    async def put(self, path: str, body: Json, **more: Json) -> Answer:
        """PUT."""
        return await self.send("PUT", path, body, **more)

    async def delete(self, path: str, body: Json = None, **more: Json) -> Answer:
        """DELETE."""
        return await self.send("DELETE", path, body, **more)

    async def patch(self, kind: PatchType, path: str, body: Json, **more: Json) -> Answer:
        """PATCH of one type."""
        return await self.send("PATCH", path, body, content_type=_MEDIA[kind], **more)

    async def watch(self, path: str, *, count: int | None = None, seconds: float = 20.0) -> list[Json]:
        """The events of a watch, which are compared: the first `count`, or all until the server ends it."""
        found = []
        async with self.watching(path) as events:
            async with asyncio.timeout(seconds):
                async for event in events:
                    found.append(event)
                    if count is not None and len(found) >= count:
                        break
        self.note(f"WATCH {path}", found)
        return found

    @asynccontextmanager
    async def watching(self, path: str) -> AsyncIterator[AsyncIterator[Json]]:
        """An open watch; its events are recorded only with `note`."""
        events = self.server.stream(self.filled(Exchange("GET", path)))
        try:
            yield events
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    def note(self, what: str, value: Json) -> None:
        """Record a value to compare."""
        self.record.append((what, value))

    def own(self, value: Json) -> Json:
        """The value with `{ns}` and `{id}` filled in."""
        if isinstance(value, str):
            return value.replace("{ns}", self.ns).replace("{id}", self.id)
        if isinstance(value, dict):
            return {self.own(key): self.own(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.own(entry) for entry in value]
        return value

    def filled(self, exchange: Exchange) -> Exchange:
        """The request with `{ns}` and `{id}` filled in."""
        return Exchange(
            exchange.method,
            self.own(exchange.path),
            self.own(exchange.body),
            exchange.content_type,
            exchange.accept,
            {key: self.own(value) for key, value in exchange.headers.items()},
        )


Play: TypeAlias = Callable[[Side], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One case to play on both servers."""

    topic: str
    name: str
    play: Play

    @property
    def id(self) -> str:
        """The id in `differences.yaml`."""
        return f"{self.topic}/{self.name}"


class Cases:
    """The cases of one topic, added by decorator or from tables."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.all: list[Case] = []

    def case(self, name: str) -> Callable[[Play], Play]:
        """Add a case that is a function of a side; the name is a sentence."""

        def keep(play: Play) -> Play:
            self.add(name, play)
            return play

        return keep

    def add(self, name: str, play: Play) -> None:
        """Add a case. Raises `ValueError` if the topic has one of that name."""
        if any(case.name == name for case in self.all):
            raise ValueError(f"{self.topic} has two cases named {name!r}")
        self.all.append(Case(self.topic, name, play))

    def exchanges(self, name: str, *steps: Exchange) -> None:
        """Add a case that is a list of requests."""

        async def play(side: Side) -> None:
            for step in steps:
                await side.exchange(step)

        self.add(name, play)

    def params(self) -> list[Any]:
        """For `pytest.mark.parametrize("case", …)`."""
        return [pytest.param(case, id=case.name) for case in self.all]


@dataclass(frozen=True, slots=True)
class Both:
    """The two servers."""

    embedded: Server
    real: Server
    api: ApiServer
    """The embedded server in this process, for faults and clocks."""

    async def judge(self, case: Case) -> Literal["equal", "listed"]:
        """Play the case on both; fails if they differ and the difference is not accepted."""
        sides = [Side(server, case.id) for server in (self.embedded, self.real)]
        await asyncio.gather(*(self._play(case, side) for side in sides))
        found = compare(*(Normalizer(side).all() for side in sides))
        reason = differences().get(case.id)
        if not found and reason is None:
            return "equal"
        if found and reason is not None:
            return "listed"
        if reason is not None:
            pytest.fail(f"{case.id} is in differences.yaml but is equal: remove it", pytrace=False)
        pytest.fail("embedded (-) and real (+) differ:\n" + "\n".join(found), pytrace=False)

    async def _play(self, case: Case, side: Side) -> None:
        await side.begin()
        await case.play(side)


@cache
def differences() -> dict[str, str]:
    """The accepted differences, by case id."""
    found = yaml.safe_load(_DIFFERENCES.read_text()) or {}
    return {str(key): str(reason) for key, reason in found.items()}


class Normalizer:
    """Replaces values that differ between any two servers by names, in the order of their first use."""

    def __init__(self, side: Side) -> None:
        self._record = side.record
        self._url = side.server.url
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._prefixes = sorted(side.prefixes, key=len, reverse=True)

    def all(self) -> list[tuple[str, Json]]:
        """The recorded answers, comparable."""
        return [(what, self.value(answer)) for what, answer in self._record]

    def value(self, value: Json, key: str = "") -> Json:
        """One document, comparable."""
        if isinstance(value, dict):
            if _is_collection(value):
                # A real server's leases change the version of every list.
                value = {**value, "metadata": {**value["metadata"], "resourceVersion": "<version of the store>"}}
            found = {name: self.value(entry, name) for name, entry in value.items()}
            if key == "details" and isinstance(found.get("causes"), list):
                # A real server validates metadata up to three times and reports each.
                found["causes"] = [c for i, c in enumerate(found["causes"]) if c not in found["causes"][:i]]
                # Problems of a schema have the order of a Go map, which is random.
                found["causes"].sort(key=lambda cause: json.dumps(cause, sort_keys=True))
            if key == "body" and found.get("reason") == "Invalid" and " is invalid: [" in str(found.get("message")):
                found["message"] = found["message"].partition(" is invalid: [")[0] + " is invalid: [<the causes>]"
            return found
        if isinstance(value, list):
            if key == "columnDefinitions":
                value = [_undescribed(column) for column in value]
            if key == "managedFields":
                # The entries are sorted by their times, whole seconds that differ between the servers.
                value = sorted(value, key=_manager_order)
            return [self.value(entry, key) for entry in value]
        if not isinstance(value, str):
            return value
        if key == "continue" and value:
            return "<the rest>"
        if key == "resourceVersion" and value.isdigit() and value != "0":
            return self._versions.setdefault(value, f"<version {len(self._versions) + 1}>")
        if key == "cells" and _AGE.fullmatch(value):
            return "<age>"  # whole seconds, from different times on the two servers
        return self._text(value)

    def _text(self, value: str) -> str:
        value = _UUID.sub(lambda m: self._uids.setdefault(m[0], f"<uid {len(self._uids) + 1}>"), value)
        value = _TIME.sub("<time>", value)
        value = _VERSION_WORDS.sub(lambda m: f"{m[1]}: {self._versions.get(m[2], m[2])}", value)
        value = _RECORDED.sub(lambda m: f"in record ({self._versions.get(m[1], m[1])})", value)
        for prefix in self._prefixes:
            pattern = re.escape(prefix) + _SUFFIX
            value = re.sub(pattern, lambda m: self._names.setdefault(m[0], f"<name {len(self._names) + 1}>"), value)
        value = _DOCUMENT.sub('Invalid value: "<the patched document>": ', value)
        value = _MISSING.sub("is missing in '<the document>'", value)
        # A real server's keys begin with a prefix from its flags.
        return _ETCD_PREFIX.sub("Key: /registry/", value.replace(self._url, "<server>"))


def _undescribed(column: Json) -> Json:
    """A column of a table; its description is compared only if it comes from a definition."""
    text = column.get("description", "")
    kept = not text or str(text).startswith(_OF_DEFINITION)
    return column if kept else {**column, "description": "<a description>"}


def _is_collection(value: dict[str, Json]) -> bool:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        return False
    return isinstance(value.get("items", value.get("rows")), list) or "name" not in metadata


def _manager_order(entry: Json) -> list[str]:
    return [str(entry.get(name)) for name in ("operation", "manager", "apiVersion", "subresource")]


def compare(left: Sequence[tuple[str, Json]], right: Sequence[tuple[str, Json]]) -> list[str]:
    """The differences, a line for each place; none if the answers are equal."""
    found = []
    for number, ((what, mine), (_, theirs)) in enumerate(zip(left, right, strict=False), start=1):
        lines = list(_differences(mine, theirs, ""))
        if lines:
            found += [f"{number}. {what}", *(f"   {line}" for line in lines)]
    if len(left) != len(right):
        found.append(f"{len(left)} answers instead of {len(right)}")
    return found


def _differences(mine: Json, theirs: Json, path: str) -> Iterator[str]:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for name in sorted({*mine, *theirs}):
            here = f"{path}.{name}"
            if name not in mine:
                yield f"{here}: + {_short(theirs[name])}"
            elif name not in theirs:
                yield f"{here}: - {_short(mine[name])}"
            else:
                yield from _differences(mine[name], theirs[name], here)
    elif _is_text(mine) and _is_text(theirs) and len(mine) != len(theirs):
        for line in difflib.unified_diff(mine, theirs, n=0, lineterm=""):
            if not line.startswith(("---", "+++", "@@")):
                yield f"{path}: {line[0]} {line[1:]}"
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (left, right) in enumerate(zip(mine, theirs, strict=True)):
            yield from _differences(left, right, f"{path}[{index}]")
    elif mine != theirs or type(mine) is not type(theirs):
        yield f"{path}: - {_short(mine)}"
        yield f"{path}: + {_short(theirs)}"


def _is_text(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def _short(value: Json) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 2000 else text[:2000] + "…"


@asynccontextmanager
async def servers(provider: BinariesProvider, *, folder: Path) -> AsyncIterator[Both]:
    """Both servers, running: a real one without controllers, and the embedded one in this event loop."""
    spec = ClusterSpec(controllers=False, scheduler=False)
    cluster = await provider.create("conformance", folder=folder, spec=spec)
    api = ApiServer(signing_key=new_key(), proxy=front_proxy(folder))
    api.authentication.insecure = User(ADMIN_USER, (ADMIN_GROUP, "system:authenticated"))
    async with cluster, Listener(api) as listener:
        api.publish_address(listener.port)
        tls = credentials.load(cluster.kubeconfig).tls.context()
        async with aiohttp.ClientSession() as to_embedded, aiohttp.ClientSession() as to_real:
            real = Server("real", cluster.server, to_real, tls)
            real.kubeconfig = cluster.kubeconfig
            yield Both(Server("embedded", listener.url, to_embedded, True), real, api)


assert ADMIN_GROUP == MASTERS
