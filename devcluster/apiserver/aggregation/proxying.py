# SPDX-License-Identifier: Apache-2.0
"""The proxy of aggregated APIs: requests, answers, streams and upgraded connections.

A backend learns the user from the front proxy's headers; the client's credentials are never forwarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from devcluster.apiserver.aggregation.aggregator import Aggregator, Remote
from devcluster.apiserver.aggregation.backends import Backend, identity, why
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Reply, Request, Sink, Stream, Tunnel
from devcluster.apiserver.http.upgrading import SWITCHING, read_body, read_head
from devcluster.apiserver.registry import objects
from devcluster.apiserver.service_addresses import Unavailable

_HOPS: Final = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length")
)
_REPLACED: Final = frozenset(("authorization", "host", "expect", "x-remote-user", "x-remote-uid", "x-remote-group"))
_REPLACED_PREFIXES: Final = ("x-remote-extra-", "x-forwarded-", "impersonate-")
_PATIENCE: Final = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
_UPGRADE_SECONDS: Final = 30.0
_PLAIN: Final = "text/plain; charset=utf-8"


class Proxy:
    """Forwards requests to backends."""

    def __init__(self, context: ServerContext, aggregator: Aggregator) -> None:
        self._context = context
        self._aggregator = aggregator
        self._flows: set[_Flow] = set()

    async def forward(self, request: Request, remote: Remote) -> Reply:
        """The backend's answer."""
        if not remote.available:
            return unavailable()
        try:
            backend = self._aggregator.backends.find(remote.spec)
            if "upgrade" in request.headers.get("connection", "").lower():
                return await self._upgrade(request, backend)
            return await self._forward(request, backend)
        except Unavailable:
            return unavailable()
        except (aiohttp.ClientError, OSError) as error:
            return Answer(503, f"error trying to reach service: {why(error)}\n".encode(), _PLAIN)

    async def close(self) -> None:
        """End the open streams."""
        tasks = [flow.task for flow in self._flows if flow.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, request: Request, backend: Backend) -> Reply:
        answer = await self._aggregator.session.request(
            request.method,
            URL(f"{backend.url}{_path(request)}", encoded=True),
            headers=self._headers(request),
            data=request.body or None,
            ssl=backend.tls,
            server_hostname=backend.server_name,
            timeout=_PATIENCE,
            allow_redirects=False,
        )
        media = answer.headers.get("Content-Type", "")
        headers = _passed(answer.headers.items())
        if answer.content_length is None and request.method != "HEAD" and answer.status not in (204, 304):
            return Stream(_Flow(answer, self._flows), media, headers, answer.status)
        async with answer:
            return Answer(answer.status, await answer.read(), media, headers)

    async def _upgrade(self, request: Request, backend: Backend) -> Reply:
        reader, writer = await asyncio.open_connection(
            backend.host, backend.port, ssl=backend.tls, server_hostname=backend.server_name
        )
        headers = self._headers(request)
        headers["Host"] = f"{backend.host}:{backend.port}"
        headers["Connection"], headers["Upgrade"] = "Upgrade", request.headers.get("upgrade", "")
        if request.body:
            headers["Content-Length"] = str(len(request.body))
        lines = [f"{request.method} {_path(request)} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode("latin-1", "replace") + request.body)
        try:
            async with asyncio.timeout(_UPGRADE_SECONDS):
                found = await read_head(reader)
                if found.status == SWITCHING:
                    return Tunnel(_Pipe(reader, writer, self._flows, head=found.head))
                body = await read_body(reader, found)
        except OSError:
            writer.close()
            raise
        writer.close()
        return Answer(found.status, body, found.headers.get("content-type", ""), _passed(found.headers.items()))

    def _headers(self, request: Request) -> CIMultiDict[str]:
        passed = {
            name: value
            for name, value in request.headers.items()
            if name not in _HOPS and name not in _REPLACED and not name.startswith(_REPLACED_PREFIXES)
        }
        found = CIMultiDict(passed)
        found.setdefault("Audit-Id", objects.new_uid(self._context.rng))
        found["X-Forwarded-Host"] = request.headers.get("host", "")
        found["X-Forwarded-Proto"], found["X-Forwarded-Uri"] = "https", request.path
        found.extend(identity(request.user))
        return found


def unavailable() -> Answer:
    """The answer for a backend that is not available."""
    return Answer(503, b"service unavailable\n", _PLAIN)


class _Flow:
    """An answer of unknown length; a `Feed`."""

    def __init__(self, answer: aiohttp.ClientResponse | None, flows: set[_Flow]) -> None:
        self._answer = answer
        self._flows = flows
        self.task: asyncio.Task[None] | None = None

    def start(self, sink: Sink) -> None:
        """Start to forward what the backend sends."""
        self._flows.add(self)
        self.task = asyncio.get_running_loop().create_task(self._run(sink), name="proxied answer")

    def stop(self) -> None:
        """Stop forwarding."""
        if self.task is not None:
            self.task.cancel()
        else:
            self._release()

    async def _run(self, sink: Sink) -> None:
        try:
            await self._pass(sink)
        except (aiohttp.ClientError, OSError):
            sink.abort()
        else:
            sink.close()
        finally:
            self._flows.discard(self)
            self._release()

    async def _pass(self, sink: Sink) -> None:
        assert self._answer is not None
        async for chunk in self._answer.content.iter_any():
            sink.write(chunk)
            await sink.drained()

    def _release(self) -> None:
        if self._answer is not None:
            self._answer.close()


class _Pipe(_Flow):
    """An upgraded connection; a `requests.Duplex`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: set[_Flow], *, head: bytes
    ) -> None:
        super().__init__(None, flows)
        self._head = head
        self._reader = reader
        self._writer = writer

    def receive(self, data: bytes) -> None:
        """Forward what the client sends."""
        self._writer.write(data)

    async def _pass(self, sink: Sink) -> None:
        sink.write(self._head)
        while data := await self._reader.read(1 << 16):
            sink.write(data)
            await sink.drained()

    def _release(self) -> None:
        self._writer.close()


def _path(request: Request) -> str:
    """The path and query for the backend: the path unchanged, the parameters in order."""
    # A path with an escaped slash is not unquoted.
    path = request.path if "%2f" in request.path.lower() else quote(request.path, safe="/:@!$&'()*+,;=~")
    query = urlencode(sorted(parse_qsl(request.query_text, keep_blank_values=True), key=lambda pair: pair[0]))
    return f"{path}?{query}" if query else path


def _passed(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if name.lower() not in _HOPS and name.lower() != "content-type":
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found
