# SPDX-License-Identifier: Apache-2.0
"""The limits of what clients may use of our servers: connections, time and memory.

Owns the limits and their enforcement for every server of `kube.serving.serve`. aiohttp limits headers, bodies and the
time between two requests; this module adds a deadline for headers (408), for bodies (408) and for TLS handshakes, a
limit on the number of connections, and one on the bytes of all bodies that are being read. Promises that a full server
closes the connection that was idle for longest, so that a new client is always accepted.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aiohttp import web

_CLOSE_SECONDS: Final = 2.0  # for a client to close its side, or to finish a body that was refused
_SMALL_BODY: Final = 128 * 1024  # limited by the number of connections; an ordinary Job has 5 KiB
_LATE_TEXT: Final = b"the request did not arrive in time\n"
_LATE_ANSWER: Final = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
    % (len(_LATE_TEXT), _LATE_TEXT)
)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """The limits of one server; the defaults are for a server with few requests."""

    connections: int = 64
    """The most connections, including those in their TLS handshake."""
    read_seconds: float = 10.0
    """For a TLS handshake, for the headers of a request after its first byte, and for its body."""
    idle_seconds: float = 60.0
    """How long a connection may be idle between two requests, and an answer may wait to be read."""
    body_bytes: int = 64 * 1024
    """The largest body; a larger one is answered with 413."""
    body_bytes_by_path: Mapping[str, int] = field(default_factory=dict)
    """The largest body of a path, if it differs."""
    buffered_bytes: int = 64 * 1024 * 1024
    """The limit on all bodies above 128 KiB together; more are answered with 503."""

    def longest_body(self, path: str) -> int:
        """The largest body of a request to `path`, in bytes."""
        return self.body_bytes_by_path.get(path, self.body_bytes)


class Abortable(Protocol):
    """A connection, at any stage."""

    def abort(self) -> None:
        """Close it at once."""


class ConnectionGuard:
    """The connections of one server: the idle ones, in the order in which they became idle, and the busy ones."""

    def __init__(self, limits: ServingLimits) -> None:
        self.limits = limits
        self.buffered = 0
        """The bytes of all bodies that count."""
        self._idle: dict[Abortable, None] = {}
        self._busy: set[Abortable] = set()

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    def admit(self, connection: Abortable) -> bool:
        """Add a new connection; if the limit is reached, closes the oldest idle one. False if all are busy."""
        if len(self) >= self.limits.connections:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.gone(oldest)
            oldest.abort()
        self._idle[connection] = None
        return True

    def hand_over(self, old: Abortable, new: Abortable) -> bool:
        """Replace `old` by `new`; False if `old` was closed meanwhile."""
        if old not in self._idle:
            return False
        self.gone(old)
        self._idle[new] = None
        return True

    def busy(self, connection: Abortable) -> None:
        """A request of the connection is being answered: it is not closed for a new one."""
        self._idle.pop(connection, None)
        self._busy.add(connection)

    def idle(self, connection: Abortable) -> None:
        """The request of the connection was answered."""
        if connection in self._busy:
            self._busy.remove(connection)
            self._idle[connection] = None

    def gone(self, connection: Abortable) -> None:
        """The connection is closed; does nothing for an unknown one."""
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    def abort_all(self) -> None:
        """Close every connection."""
        for connection in (*self._idle, *self._busy):
            self.gone(connection)
            connection.abort()


class GuardedSite(web.BaseSite):
    """Listens on a port like aiohttp's `TCPSite`, with the limits of a guard."""

    def __init__(
        self,
        runner: web.AppRunner,
        guard: ConnectionGuard,
        *,
        host: str | None,
        port: int,
        context: ssl.SSLContext | None,
    ) -> None:
        super().__init__(runner, ssl_context=context)
        self.guard = guard
        self.tasks: set[asyncio.Task[None]] = set()
        """TLS handshakes in progress."""
        self._host = host
        self._port = port

    @property
    def name(self) -> str:
        """Where it listens."""
        return f"{'https' if self._ssl_context else 'http'}://{self._host or '0.0.0.0'}:{self._port}"

    async def start(self) -> None:
        """Listen."""
        await super().start()
        context = self._ssl_context
        make: Callable[[], asyncio.BaseProtocol] = (
            self.connection if context is None else lambda: _Handshake(self, context)
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(make, self._host, self._port, backlog=self._backlog)

    async def stop(self) -> None:
        """Stop listening and cancel handshakes; the runner ends the requests."""
        await super().stop()
        for task in tuple(self.tasks):
            task.cancel()

    def connection(self) -> _Connection:
        """The HTTP side of a new connection."""
        assert isinstance(self._runner.server, web.Server)
        return _Connection(self._runner.server, self.guard)


class _Handshake(asyncio.Protocol):
    """A connection until its TLS handshake has ended."""

    def __init__(self, site: GuardedSite, context: ssl.SSLContext) -> None:
        self._site = site
        self._context = context
        self._transport: asyncio.Transport | None = None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._site.guard.admit(self):
            transport.abort()
            return
        transport.pause_reading()  # the first bytes are the handshake's
        task = asyncio.get_running_loop().create_task(self._run(transport), name="tls-handshake")
        self._site.tasks.add(task)
        task.add_done_callback(self._site.tasks.discard)

    async def _run(self, transport: asyncio.Transport) -> None:
        guard, connection = self._site.guard, self._site.connection()
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                connection,
                self._context,
                server_side=True,
                ssl_handshake_timeout=guard.limits.read_seconds,
                ssl_shutdown_timeout=_CLOSE_SECONDS,
            )
        except OSError:  # the handshake failed: there is no connection to answer on
            secured = None
        finally:
            kept = guard.hand_over(self, connection)
        if secured is None or secured.is_closing() or not kept:
            guard.gone(connection)
            transport.abort()
            return
        connection.connection_made(secured)


class _Connection(web.RequestHandler):
    """One HTTP connection, with the deadlines that aiohttp does not have."""

    def __init__(self, server: web.Server, guard: ConnectionGuard) -> None:
        limits = guard.limits
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"access_log": None}  # aiohttp takes None, its annotations do not
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_seconds + limits.read_seconds,  # it counts the reading of headers as idle
            lingering_time=_CLOSE_SECONDS,
            auto_decompress=False,  # API servers send plain JSON; a short body cannot become a long one
            **options,
        )
        self._guard = guard
        self._clock = loop
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._answering = False
        self._early: list[bytes] | None = []
        """The data that arrived between the end of the handshake and `connection_made`."""

    def abort(self) -> None:
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        secured = transport.get_extra_info("sslcontext") is not None
        if not secured and not self._guard.admit(self):
            transport.abort()
            return
        super().connection_made(transport)
        self._wait(self._guard.limits.idle_seconds, self.abort)
        early, self._early = self._early, None
        for data in early or ():
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)
            return
        if data and not self._reading and not self._answering:
            self._reading = True
            self._wait(self._guard.limits.read_seconds, self._late)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        self._guard.gone(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a malformed request; aiohttp would log a traceback for each."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        answer = web.Response(status=status, text="malformed HTTP request\n")
        answer.force_close()
        return answer

    def begin(self) -> None:
        """The headers of a request were read."""
        self._stop_waiting()
        self._answering = True
        self._guard.busy(self)

    def end(self) -> None:
        """The answer was written, and the client has to read it."""
        self._reading = self._answering = False
        self._guard.idle(self)
        if self.transport is not None:
            self._wait(self._guard.limits.idle_seconds, self.abort)

    def _late(self) -> None:
        if self.transport is not None:
            self.transport.write(_LATE_ANSWER)
            self.force_close()

    def _wait(self, seconds: float, call: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self._clock.call_later(seconds, call)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def guarding(guard: ConnectionGuard) -> Any:
    """The middleware that reads each body within the limits, before all other handlers."""

    @web.middleware
    async def answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
        connection = request.protocol
        if not isinstance(connection, _Connection):
            raise TypeError(f"expected a connection of a GuardedSite, found {type(connection).__name__}")
        connection.begin()
        try:
            request = request.clone(client_max_size=guard.limits.longest_body(request.path))
            async with _body_read(request, guard):
                return await handler(request)
        finally:
            connection.end()

    return answer


@asynccontextmanager
async def _body_read(request: web.Request, guard: ConnectionGuard) -> AsyncIterator[None]:
    """Read the body; its bytes count until the request was answered."""
    longest = guard.limits.longest_body(request.path)
    size = longest if request.content_length is None and request.can_read_body else request.content_length or 0
    if size > longest:
        raise _ending(web.HTTPRequestEntityTooLarge(longest, size))
    counted = size if size > _SMALL_BODY else 0
    if counted and guard.buffered + counted > guard.limits.buffered_bytes:
        raise _ending(web.HTTPServiceUnavailable(text="too many large requests at once; try again\n"))
    guard.buffered += counted
    try:
        try:
            async with asyncio.timeout(guard.limits.read_seconds):
                await request.read()
        except TimeoutError:
            raise _ending(web.HTTPRequestTimeout(text=_LATE_TEXT.decode())) from None
        except web.HTTPRequestEntityTooLarge as error:
            raise _ending(error) from None
        except (ConnectionError, web.RequestPayloadError) as error:
            raise _ending(web.HTTPBadRequest(text=f"the request was interrupted: {error}\n")) from error
        yield
    finally:
        guard.buffered -= counted


def _ending(error: web.HTTPException) -> web.HTTPException:
    """An answer after which the connection is closed, without the rest of the request."""
    error.force_close()
    return error
