# SPDX-License-Identifier: Apache-2.0
"""Connects the API server to kubelets: logs, streams into containers, and HTTP servers of pods.

Owns the connection to the kubelet of a pod's node, with the API server's client certificate. A kubelet that does not
answer is reported as 503 with the name of the node. `pods/log` is served like by a real API server, also with `follow`.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp
from yarl import URL

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusError
from devcluster.apiserver.http.pod_access import KubeletRequest
from devcluster.apiserver.http.requests import Answer, Reply, Request, RequestTarget, Sink, Stream, Tunnel
from devcluster.apiserver.http.upgrading import SWITCHING, read_body, read_head

_CONNECT_SECONDS: Final = 5.0
_ANSWER: Final = aiohttp.ClientTimeout(total=360.0, sock_connect=_CONNECT_SECONDS)
_MAX_ANSWER: Final = 8 << 20
_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 429: "TooManyRequests"}
_STREAM_HEADERS: Final = (
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
)
_NOT_FORWARDED: Final = frozenset(
    ("authorization", "host", "connection", "upgrade", "content-length", "transfer-encoding", "expect", "cookie")
)
_TEXT: Final = "text/plain"
_CONNECT: Final = aiohttp.ClientTimeout(total=None, sock_connect=2.0)


class KubeletConnections:
    """Sends requests to kubelets; implements `pod_access.Kubelets`."""

    def __init__(self, context: ServerContext, *, pki: Path) -> None:
        self._context = context
        self._logs = PodLogs(context, pki=pki)
        self._tls = ssl.create_default_context(cafile=pki / "ca.crt")
        self._tls.load_cert_chain(pki / "kubelet-client.crt", pki / "kubelet-client.key")

    async def logs(self, request: Request, meant: RequestTarget) -> Reply:
        """The log of a container."""
        return await self._logs(request, meant)

    async def stream(self, request: Request, target: KubeletRequest) -> Reply:
        """A tunnel between the client and the kubelet of the pod. Raises `StatusError`."""
        if "upgrade" not in request.headers.get("connection", "").lower():
            raise errors.bad_request("Upgrade request required")
        url = URL(kubelet_address(self._context, target.pod))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(url.host, url.port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            raise _unreachable(target, error) from error
        headers = {name: request.headers[name] for name in _STREAM_HEADERS if name in request.headers}
        lines = [
            f"{request.method} {_target(target)} HTTP/1.1",
            f"Host: {url.host}:{url.port}",
            *(f"{name}: {value}" for name, value in headers.items()),
            *("", ""),
        ]
        writer.write("\r\n".join(lines).encode("latin-1", "replace"))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                found = await read_head(reader)
                if found.status == SWITCHING:
                    return Tunnel(_KubeletTunnel(reader, writer, found.head))
                body = await read_body(reader, found)
        except (OSError, TimeoutError) as error:
            writer.close()
            raise _unreachable(target, error) from error
        writer.close()
        text = body.decode(errors="replace").strip()
        raise StatusError(found.status, _REASONS.get(found.status, "InternalError"), text)

    async def forward(self, request: Request, target: KubeletRequest) -> Reply:
        """The answer of an HTTP server in the pod. Raises `StatusError`."""
        if request.headers.get("upgrade"):
            raise errors.bad_request("virtual pods do not support upgraded connections")
        base = kubelet_address(self._context, target.pod)
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        connector = aiohttp.TCPConnector(ssl=self._tls)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=_ANSWER, auto_decompress=False) as session,
                session.request(
                    request.method,
                    URL(f"{base}{_target(target)}", encoded=True),
                    data=request.body or None,
                    headers=headers,
                    allow_redirects=False,
                ) as answer,
            ):
                body = await answer.content.read(_MAX_ANSWER)
                status, media = answer.status, answer.headers.get("Content-Type", "text/plain")
                location = answer.headers.get("Location")
        except aiohttp.ServerDisconnectedError as error:
            raise errors.service_unavailable("error trying to reach service: EOF") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(target, error) from error
        if status == 502:
            text = body.decode(errors="replace").strip()
            raise errors.service_unavailable(f"error trying to reach service: connection refused: {text}")
        return Answer(status, body, media, {"Location": location} if location else {})


def _target(target: KubeletRequest) -> str:
    """The request target; dots in the path are not resolved, so that no other kubelet path is reachable."""
    return quote(target.path) + (f"?{target.query}" if target.query else "")


def _unreachable(target: KubeletRequest, error: Exception) -> StatusError:
    node = documents.child(target.pod, "spec").get("nodeName", "")
    why = str(error) or type(error).__name__
    return errors.service_unavailable(
        f"error dialing backend: virtual node {node} does not answer; its process does not run: {why}"
    )


class _KubeletTunnel:
    """An upgraded connection to a kubelet; a `requests.Duplex`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self._reader = reader
        self._head = head
        self._writer = writer
        self._task: asyncio.Task[None] | None = None

    def start(self, sink: Sink) -> None:
        """Forward what the kubelet sends."""
        sink.write(self._head)
        self._task = asyncio.get_running_loop().create_task(self._run(sink), name="pod stream")

    def receive(self, data: bytes) -> None:
        """Forward what the client sends; abort if the kubelet does not read it."""
        transport = self._writer.transport
        if transport.get_write_buffer_size() > _MAX_ANSWER:
            transport.abort()
            return
        self._writer.write(data)

    def stop(self) -> None:
        """Close: the client has disconnected, or the server stops."""
        if self._task is not None:
            self._task.cancel()
        self._writer.close()

    async def _run(self, sink: Sink) -> None:
        try:
            while data := await self._reader.read(1 << 16):
                sink.write(data)
                await sink.drained()
        except OSError:
            sink.abort()
        finally:
            self._writer.close()
            sink.close()


class PodLogs:
    """Reads logs from kubelets with the API server's client certificate; implements `server.Logs`."""

    def __init__(self, context: ServerContext, *, pki: Path) -> None:
        self._context = context
        self._tls = ssl.create_default_context(cafile=pki / "ca.crt")
        self._tls.load_cert_chain(pki / "kubelet-client.crt", pki / "kubelet-client.key")

    async def __call__(self, request: Request, meant: RequestTarget) -> Reply:
        """The log of a container, complete or followed."""
        pod = self._context.get("pods", f"{meant.namespace}/{meant.name}") or {}
        containers = [entry["name"] for entry in documents.items(pod, "spec", "containers")]
        container = request.query.get("container") or (containers[0] if containers else "")
        url = f"{kubelet_address(self._context, pod)}/containerLogs/{meant.namespace}/{meant.name}/{container}"
        query = {name: value for name, value in request.query.items() if name != "container"}
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls), timeout=_CONNECT)
        try:
            answer = await session.get(url, params=query)
            if answer.status != 200 or not request.flag("follow"):
                body = await answer.read()
                await session.close()
                return Answer(answer.status, body, _TEXT)
        except (aiohttp.ClientError, OSError) as error:
            await session.close()
            raise errors.internal(f"Get {url!r}: {error}") from error
        return Stream(_Following(session, answer), content_type=_TEXT)


def kubelet_address(context: ServerContext, pod: documents.JsonObject) -> str:
    """The URL of the kubelet of a pod's node. Raises `StatusError`."""
    name = documents.child(pod, "spec").get("nodeName", "")
    node = context.get("nodes", name)
    if node is None:
        raise errors.internal(f'nodes "{name}" not found')
    addresses = documents.items(node, "status", "addresses")
    host = next((entry["address"] for entry in addresses if entry["type"] == "InternalIP"), "")
    port = documents.child(node, "status", "daemonEndpoints", "kubeletEndpoint").get("Port") or 0
    if not host or not port:
        raise errors.internal(f"node {name} has no kubelet address")
    return f"https://{host}:{port}"


class _Following:
    """A followed log; implements `requests.Feed`."""

    def __init__(self, session: aiohttp.ClientSession, answer: aiohttp.ClientResponse) -> None:
        self._session = session
        self._answer = answer
        self._task: asyncio.Task[None] | None = None

    def start(self, sink: Sink) -> None:
        """Forward what the kubelet sends."""
        self._task = asyncio.get_running_loop().create_task(self._forward(sink), name="pod log")

    def stop(self) -> None:
        """Close: the client has disconnected."""
        if self._task is not None:
            self._task.cancel()

    async def _forward(self, sink: Sink) -> None:
        try:
            async for chunk in self._answer.content.iter_any():
                sink.write(chunk)
            sink.close()
        except (aiohttp.ClientError, OSError):
            sink.abort()
        finally:
            await self._session.close()
