# SPDX-License-Identifier: Apache-2.0
"""HTTP requests to one API server.

Owns headers, credentials, timeouts, the rate limit and safe retries. Promises that every failure is an `ApiError` or
`Unreachable` that names the cluster, the verb and the object; that a request is repeated only if that is safe (it was
never sent, or the server did not process it); that a 401 renews the credentials once.

There are two connection pools, one for calls and one for watches, so that many open watches never block a write. Every
wait has a limit: connecting, answering, and a connection whose peer disappeared (TCP keep-alive and TCP_USER_TIMEOUT).
The environment is not read per request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
import anyio
import orjson
from yarl import URL

from multikueue import __version__
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import BadInput
from multikueue.kube import errors
from multikueue.kube.rest import retries
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.limiter import Limiter

Body = Mapping[str, Any] | bytes
Answered = Callable[[float, errors.KubeError | None], None]
"""Called for each attempt of a request, with its seconds and its failure."""
JSON: Final = "application/json"
CONNECT_TIMEOUT: Final = 5.0
CALL_TIMEOUT: Final = 30.0
_KEEPALIVE_IDLE: Final = 15
_KEEPALIVE_INTERVAL: Final = 5
_KEEPALIVE_PROBES: Final = 3
_USER_TIMEOUT_MS: Final = 30_000  # unacknowledged data for this long means the peer is gone
_READ_BUFFER: Final = 2**18
_LAYERS: Final = 4  # session, connector, TLS, TCP
_CLOSE_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Response:
    """An answer below 400."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed body."""
        return orjson.loads(self.body)


class ApiConnection:
    """One API server as one identity. An async context manager: leaving it closes all connections.

    All methods raise `ApiError` or `Unreachable`; cancelling one closes its connection.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock | None = None,
        qps: float | None = None,
        burst: int | None = None,
        connections: int = 64,
        max_answer_bytes: int | None = None,
        user_agent: str = "multikueue",
        random: Random | None = None,
    ) -> None:
        """`max_answer_bytes` limits one answer or watch event of an untrusted server."""
        self.config = config
        self._max_answer_bytes = max_answer_bytes
        self._random = random or Random()
        self._clock = clock or SystemClock()
        self._limiter = Limiter(qps=qps, burst=burst or int(2 * qps) or 1, clock=self._clock) if qps else None
        self._connections = connections
        self._sessions: Sessions | None = None
        self._user_agent = f"{user_agent}/{__version__}"
        self._headers: dict[str, str] = {}
        self._groups: tuple[str, ...] = ()
        self.use(config)

    def use(self, config: ClusterConfig) -> None:
        """Use `config` for all later requests. It must be the same server; open watches keep the former identity."""
        self.config = config
        self._headers = {"User-Agent": self._user_agent, **config.headers}
        if config.impersonate is not None:
            self._headers["Impersonate-User"] = config.impersonate.user
        self._groups = config.impersonate.groups if config.impersonate else ()

    async def __aenter__(self) -> Self:
        self._sessions = Sessions(connections=self._connections)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sessions is not None:
            with anyio.CancelScope(shield=True):  # a cancelled task closes its connections too
                await self._sessions.close()

    async def request(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Body | list[dict[str, Any]] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
        request: str | None = None,
        answered: Answered | None = None,
    ) -> Response:
        """A request by path, for which there is no verb of `KubeClient`."""
        request = request or f"{self.config.name}: {verb} {path}"
        url = self._url(path, query or {})
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT) if timeout else None
        attempt = 0
        while True:
            attempt += 1
            if self._limiter is not None and (wait := self._limiter.reserve()):
                await asyncio.sleep(wait)
            began = self._clock.monotonic()
            try:
                response = await self._open(
                    verb, url, request, data=data, content_type=content_type, accept=accept, timeout=limit
                )
                async with response:
                    found = Response(response.status, response.headers, await self._read(response, request))
                if answered is not None:
                    answered(self._clock.monotonic() - began, None)
                return found
            except errors.KubeError as error:
                if answered is not None:
                    answered(self._clock.monotonic() - began, error)
                delay = retries.delay(error, verb=verb, attempt=attempt, random=self._random)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def _open(
        self,
        verb: str,
        url: URL,
        request: str,
        *,
        watch: bool = False,
        data: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request and wait for the headers of the answer; renews the credentials once on a 401."""
        if self._sessions is None:
            raise RuntimeError("the client is used outside its `async with`")
        session = self._sessions.watches if watch else self._sessions.calls
        renewed = False
        while True:
            try:
                headers = await self._request_headers(accept, content_type if data is not None else None)
                tls = self.config.tls.context() if url.scheme == "https" else True
            except BadInput as error:
                raise errors.NoCredentials(f"{request}: {error}") from error
            try:
                response = await session.request(
                    verb,
                    url,
                    data=data,
                    headers=headers,
                    ssl=tls,
                    server_hostname=self.config.server_name,
                    proxy=self.config.proxy,
                    timeout=timeout or aiohttp.helpers.sentinel,
                    allow_redirects=False,
                )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise retries.unreachable(request, error) from error
            if response.status < 300:
                return response
            async with response:
                failure = errors.from_response(
                    request=request,
                    status=response.status,
                    body=await self._read(response, request),
                    headers=response.headers,
                )
            tokens = self.config.tokens
            if isinstance(failure, errors.Unauthorized) and not renewed and tokens and await tokens.refresh():
                renewed = True
                continue
            raise failure

    async def _request_headers(self, accept: str, content_type: str | None) -> dict[str, str] | Any:
        headers = {**self._headers, "Accept": accept}
        if content_type is not None:
            headers["Content-Type"] = content_type
        if self.config.tokens is not None and (token := await self.config.tokens.token()):
            headers["Authorization"] = f"Bearer {token}"
        if not self._groups:
            return headers
        from multidict import CIMultiDict

        several = CIMultiDict(headers)
        for group in self._groups:
            several.add("Impersonate-Group", group)
        return several

    async def _read(self, response: aiohttp.ClientResponse, request: str) -> bytes:
        try:
            return await read_body(response, max_bytes=self._max_answer_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise retries.unreachable(request, error) from error

    def _url(self, path: str, query: Mapping[str, str | None]) -> URL:
        url = URL(self.config.server + path, encoded=True)
        present = {key: value for key, value in query.items() if value is not None}
        return url.with_query(present) if present else url


class Sessions:
    """The connections to one API server."""

    def __init__(self, *, connections: int) -> None:
        """At most `connections` for calls, kept for reuse; those for watches are not limited."""
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self.calls = self._session(
            limit=connections, timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        )
        # The caller of a watch sets its idle timeout.
        self.watches = self._session(limit=0, timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT))

    async def close(self) -> None:
        """Close all connections and wait for that, for a second at most.

        A TLS socket is closed a few turns of the event loop after aiohttp reports it; one whose request was cancelled
        at the end of the handshake, only after the server has answered the close.
        """
        for session in (self.calls, self.watches):
            await session.close()
        for _ in range(_LAYERS):
            await asyncio.sleep(0)
        with anyio.move_on_after(_CLOSE_SECONDS):
            while any(each.fileno() >= 0 for each in list(self._sockets)):  # noqa: ASYNC110  (a socket has no event)
                await anyio.sleep(_POLL_SECONDS)

    def _session(self, *, limit: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=60.0, socket_factory=self._tcp_socket),
            timeout=timeout,
            trust_env=False,  # reading the environment costs five times the request
            auto_decompress=True,
            read_bufsize=_READ_BUFFER,
            cookie_jar=aiohttp.DummyCookieJar(),
            raise_for_status=False,
        )

    def _tcp_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = info
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.add(made)
        return made


async def read_body(response: aiohttp.ClientResponse, *, max_bytes: int | None) -> bytes:
    """The whole body. Raises `aiohttp.ClientPayloadError` if it is longer than `max_bytes`."""
    if max_bytes is None:
        return await response.read()
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            response.close()  # the rest is not read, so the connection cannot be reused
            raise aiohttp.ClientPayloadError(f"it is larger than {max_bytes} bytes")
    return bytes(body)
