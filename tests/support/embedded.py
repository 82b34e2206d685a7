# SPDX-License-Identifier: Apache-2.0
"""An embedded API server without sockets: requests in, answers and watch events out.

Owns a caller that speaks to `ApiServer.handle` directly, and a sink that keeps what a watch writes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlencode

from devcluster.apiserver.http.requests import MASTERS, Answer, Reply, Request, Stream, User
from devcluster.apiserver.server import ApiServer
from devcluster.pki import new_key

ADMIN = User("admin", (MASTERS, "system:authenticated"))
MERGE = "application/merge-patch+json"


@cache
def signing_key() -> bytes:
    """One key for all servers of a process; making one takes time."""
    return new_key()


def api_server(**options: Any) -> ApiServer:
    """A server on which every user without credentials is administrator."""
    api = ApiServer(signing_key=signing_key(), **options)
    api.authentication.insecure = ADMIN
    return api


def config_map(name: str, *, labels: Mapping[str, str] | None = None, **data: str) -> dict[str, Any]:
    """A ConfigMap."""
    metadata: dict[str, Any] = {"name": name}
    if labels is not None:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@dataclass
class Seen:
    """One answer."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The resource version of the object or list."""
        found = self.body["metadata"]["resourceVersion"]
        assert isinstance(found, str)
        return found


class Watching:
    """A watch, and what it has sent; implements `requests.Sink`."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.closed = False
        self.aborted = False
        self.pending = 0
        self._bytes = b""
        stream.feed.start(self)

    async def drained(self) -> None:
        """It always accepts more."""

    def write(self, chunk: bytes) -> None:
        self._bytes += chunk

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    async def events(self) -> list[dict[str, Any]]:
        """What has been sent since the last call."""
        await asyncio.sleep(0)
        found, self._bytes = self._bytes, b""
        assert not found or found.endswith(b"\n")
        return [json.loads(line) for line in found.splitlines()]

    async def said(self) -> list[tuple[str, str]]:
        """The events' types and the names of their objects."""
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in await self.events()]

    def stop(self) -> None:
        """The client goes away."""
        self.stream.feed.stop()


class Caller:
    """Asks a server in process."""

    def __init__(self, api: ApiServer, *, headers: Mapping[str, str] | None = None) -> None:
        self.api = api
        self._headers = {"content-type": "application/json", **(headers or {})}

    def begin(
        self, method: str, path: str, body: object = None, *, media: str = "", **query: Any
    ) -> Reply | Coroutine[object, object, Reply | None]:
        """What the server makes of a request."""
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = dict(self._headers, **({"content-type": media} if media else {}))
        return self.api.handle(Request(method, path, urlencode(query), headers, raw))

    async def ask(self, method: str, path: str, body: object = None, *, media: str = "", **query: Any) -> Seen:
        """The answer to a request."""
        begun = self.begin(method, path, body, media=media, **query)
        found = await begun if isinstance(begun, Coroutine) else begun
        assert isinstance(found, Answer), found
        text = found.body.decode()
        parsed = json.loads(text) if found.content_type == "application/json" and text else text
        return Seen(found.status, parsed, found.headers)

    async def get(self, path: str, **query: Any) -> Seen:
        """GET."""
        return await self.ask("GET", path, **query)

    async def create(self, path: str, body: object, **query: Any) -> Seen:
        """POST."""
        return await self.ask("POST", path, body, **query)

    async def merge(self, path: str, body: object, **query: Any) -> Seen:
        """PATCH with a merge patch."""
        return await self.ask("PATCH", path, body, media=MERGE, **query)

    async def delete(self, path: str, body: object = None, **query: Any) -> Seen:
        """DELETE."""
        return await self.ask("DELETE", path, body, **query)

    def watch(self, path: str, **query: Any) -> Watching:
        """A watch that the server begins at once."""
        found = self.begin("GET", path, watch="true", **query)
        assert isinstance(found, Stream), found
        return Watching(found)
