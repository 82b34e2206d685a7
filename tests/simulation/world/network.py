# SPDX-License-Identifier: Apache-2.0
"""The network between processes and API servers, without sockets.

Owns delay, loss, duplication and partition of requests and of watch streams. A `Link` joins one process to one server;
a `SimClient` is the real `KubeClient` whose two aiohttp sessions are replaced by one that asks an `ApiServer` in this
process. Requests of one link overtake each other freely; the chunks of one stream do not, as in TCP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping
from datetime import datetime
from enum import StrEnum
from random import Random
from types import TracebackType
from typing import Any, Final, Protocol, Self

import aiohttp
import orjson
from multidict import CIMultiDict
from yarl import URL

from devcluster.apiserver.http.requests import Answer, Feed, Request, Stream, User
from devcluster.apiserver.server import ApiServer
from multikueue.core.clock import Clock
from multikueue.kube.rest import connection
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.tls import TlsSource
from tests.simulation.world.virtual_time import VirtualLoop
from tests.simulation.world.workload_webhook import refusal

_EVENTS: Final = "/apis/events.k8s.io/"  # accepted and not stored: no code here reads events
_OVER: Final = b'{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}'
_TCP_PATIENCE: Final = 30.0  # a connection whose link is cut for longer is gone when the link is back


class WriteFailure(StrEnum):
    """What becomes of a write that a simulation has chosen."""

    CONFLICT = "409"
    TOO_MANY = "429"
    INTERNAL = "500"
    NO_ANSWER = "no answer, not done"
    LOST_ANSWER = "answer lost, done"


_REASONS: Final = {
    WriteFailure.CONFLICT: "Conflict",
    WriteFailure.TOO_MANY: "TooManyRequests",
    WriteFailure.INTERNAL: "InternalError",
}


class WriteObserver(Protocol):
    """Sees every request on its way to a server."""

    def failure(self, server: str, request: Request) -> WriteFailure | None:
        """What is to become of it; None lets it pass. Called in the task of the sender."""


class Server:
    """An API server that may be away; what it stores stays."""

    def __init__(self, name: str, api: ApiServer) -> None:
        self.name = name
        self.api = api
        self.up = True
        self.lost = False
        self.links: list[Link] = []

    def crash(self) -> None:
        """End every stream at once; nothing is answered until `restart`."""
        self.up = False
        for link in self.links:
            link.reset()

    def lose(self) -> None:
        """Go for good, with all that is stored; another one may come in its place."""
        self.crash()
        self.lost = True

    def replace(self, api: ApiServer) -> None:
        """Be another server, or the same with other contents, which does not answer yet."""
        self.api, self.lost = api, False

    def restart(self) -> None:
        """Answer again, unless it is lost; watches that are too old get 410."""
        if self.lost:
            return
        self.up = True
        self.api.compact()


class Link:
    """The way between one process and one server."""

    def __init__(self, server: Server, random: Random, loop: VirtualLoop) -> None:
        self.server = server
        self.random = random
        self.loop = loop
        self.slowest = 0.02
        self.observer: WriteObserver | None = None
        self.loss = 0.0
        self.duplicates = 0.0
        self.latest = 2.0
        """Seconds after which a duplicate may still come."""
        self.dead = False
        """Whether the process at this end was killed: nothing that it sends arrives."""
        self._cut_at: float | None = None
        self._healed = asyncio.Event()
        self._healed.set()
        self._streams: dict[_Sink, None] = {}
        server.links.append(self)

    @property
    def cut(self) -> bool:
        """Whether nothing passes."""
        return self._cut_at is not None

    def partition(self) -> None:
        """Nothing passes any more, without an error at the other end."""
        if self._cut_at is None:
            self._cut_at = self.loop.time()
            self._healed.clear()

    def heal(self) -> None:
        """What TCP has kept is delivered; streams that waited too long are reset."""
        if self._cut_at is None:
            return
        lost = self.loop.time() - self._cut_at > _TCP_PATIENCE
        self._cut_at = None
        self._healed.set()
        for sink in list(self._streams):
            sink.abort() if lost else sink.flush()

    def reset(self) -> None:
        """Break every open stream."""
        for sink in list(self._streams):
            sink.abort()

    def delay(self) -> float:
        """Seconds that one message takes."""
        return 0.001 + self.random.random() ** 3 * self.slowest

    async def travel(self, deadline: float = float("inf")) -> None:
        """Let one message take its time; one that is lost or cut off waits until TCP brings it through.

        Raises `TimeoutError` at the deadline.
        """
        loop = self.loop
        end = loop.time() + self.delay()
        await loop.until(min(end, deadline))  # as `pause`, without a call for each message
        if end > deadline:
            raise TimeoutError
        while self.cut:
            async with asyncio.timeout_at(deadline):
                await self._healed.wait()
            await self.pause(self.delay(), deadline)

    async def pause(self, seconds: float, deadline: float) -> None:
        """Let time pass. Raises `TimeoutError` at the deadline."""
        end = self.loop.time() + seconds
        await self.loop.until(min(end, deadline))
        if end > deadline:
            raise TimeoutError

    def open(self, sink: _Sink) -> None:
        """A stream begins."""
        self._streams[sink] = None

    def close(self, sink: _Sink) -> None:
        """A stream has ended."""
        self._streams.pop(sink, None)


class _Sink:
    """The server's end and the client's end of one stream."""

    def __init__(self, link: Link, feed: Feed, loop: VirtualLoop) -> None:
        self._link = link
        self._feed = feed
        self._loop = loop
        self._due = 0.0
        self._travelling: deque[bytes | None] = deque()
        self._arrived: deque[bytes | None] = deque()
        self._waiting: asyncio.Future[bool] | None = None
        self.broken = False
        self.closed = False
        link.open(self)

    @property
    def pending(self) -> int:
        """Unread bytes; the reader of a simulation is never slow."""
        return 0

    def write(self, chunk: bytes) -> None:
        """Send a chunk after the ones before it."""
        self._send(chunk)

    async def drained(self) -> None:
        """At once: nothing is ever left unread."""

    def close(self) -> None:
        """End in order."""
        if not self.closed:
            self.closed = True
            self._send(None)

    def abort(self) -> None:
        """Both ends learn that the connection is gone."""
        if self.broken:
            return
        self.broken = self.closed = True
        self._link.close(self)
        self._feed.stop()
        self._wake()

    def flush(self) -> None:
        """Deliver what could not pass."""
        while self._travelling and not self._link.cut:
            self._arrived.append(self._travelling.popleft())
            self._wake()

    def leave(self) -> None:
        """The reader goes away."""
        if not self.broken:
            self.broken = self.closed = True
            self._link.close(self)
            self._feed.stop()

    async def read(self, idle: float | None) -> bytes | None:
        """The next chunk, None at the end. Raises as aiohttp does."""
        while not self._arrived:
            if self.broken:
                raise aiohttp.ClientPayloadError("the connection was reset")
            self._waiting = self._loop.create_future() if idle is None else self._loop.until(self._loop.time() + idle)
            if await self._waiting:
                raise aiohttp.SocketTimeoutError("nothing came for too long")
        return self._arrived.popleft()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(False)

    def _send(self, chunk: bytes | None) -> None:
        if self.broken:
            return
        self._travelling.append(chunk)
        self._due = max(self._due + 1e-6, self._loop.time() + self._link.delay())
        self._loop.call_at(self._due, self._arrive)

    def _arrive(self) -> None:
        if self._link.cut or self.broken or not self._travelling:
            return
        self._arrived.append(self._travelling.popleft())
        self._wake()


class _Content:
    def __init__(self, sink: _Sink, idle: float | None) -> None:
        self._sink = sink
        self._idle = idle

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Chunks until the server ends the stream."""
        while (chunk := await self._sink.read(self._idle)) is not None:
            yield chunk


class _WholeContent:
    """The body of an answer that is no stream, such as the error that a watch begins and ends with."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The body at once."""
        yield self._body


class _Response:
    """What `KubeClient` reads of an `aiohttp.ClientResponse`."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes = b"", content: _Content | None = None):
        self.status = status
        self.headers = CIMultiDict(headers)
        self._body = body
        self.content = content or _WholeContent(body)
        self.sink: _Sink | None = None

    async def read(self) -> bytes:
        """The body."""
        return self._body

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.sink is not None:
            self.sink.leave()


class _Session:
    """One process's connections to one server, as one user."""

    def __init__(self, link: Link, user: User | None) -> None:
        self._link = link
        self._loop = link.loop
        self._user = user
        self._until: datetime | None = None

    def be(self, user: User, *, until: datetime) -> None:
        """Show another certificate, which is good until then."""
        self._user, self._until = user, until

    async def request(
        self,
        verb: str,
        url: URL,
        *,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: Any,
        **_: object,
    ) -> _Response:
        """As `aiohttp.ClientSession.request`, with its errors."""
        total = connection.CALL_TIMEOUT
        idle: float | None = None
        if isinstance(timeout, aiohttp.ClientTimeout):
            total, idle = timeout.total or total, timeout.sock_read
        request = Request(
            method=verb,
            path=url.raw_path,
            query_text=url.raw_query_string,
            headers={name.lower(): value for name, value in headers.items()},
            body=data or b"",
            certificate=self._user,
        )
        try:
            return await self._exchange(request, idle, self._loop.time() + total)
        except TimeoutError as error:
            raise aiohttp.SocketTimeoutError("no answer in time") from error

    async def close(self) -> None:
        """Nothing is open."""

    async def _exchange(self, request: Request, idle: float | None, deadline: float) -> _Response:
        link = self._link
        if link.dead:
            await link.pause(float("inf"), deadline)
        if not link.server.up:
            await link.pause(link.delay(), deadline)
            raise _refused()
        if link.cut and link.random.random() < 0.5:
            # A new connection is needed and does not come about; else one that is open swallows the request.
            await link.pause(connection.CONNECT_TIMEOUT, deadline)
            raise aiohttp.ConnectionTimeoutError("the connection was not made in time")
        await link.travel(deadline)
        if link.dead:
            await link.pause(float("inf"), deadline)
        if not link.server.up:
            raise aiohttp.ServerDisconnectedError("the server is gone")
        if link.duplicates and request.method in ("PUT", "PATCH", "DELETE") and link.random.random() < link.duplicates:
            self._loop.call_later(link.random.random() * link.latest, self._again, request)
        if self._until is not None and link.server.api.context.now() > self._until:
            return _Response(401, {"Content-Type": "application/json"}, _OVER)
        failure = link.observer.failure(link.server.name, request) if link.observer is not None else None
        if failure is WriteFailure.NO_ANSWER:
            await link.pause(float("inf"), deadline)
        if failure in _REASONS:
            await link.travel(deadline)
            return _refusal(failure)
        reply = Answer(201, request.body) if request.path.startswith(_EVENTS) else self._handle(request)
        if isinstance(reply, Coroutine):
            async with asyncio.timeout_at(deadline):
                reply = await reply
        if reply is None:
            raise aiohttp.ServerDisconnectedError("the connection was dropped")
        if failure is WriteFailure.LOST_ANSWER or (link.loss and link.random.random() < link.loss):
            raise aiohttp.ServerDisconnectedError("the answer was lost")
        if isinstance(reply, Stream):
            return await self._stream(reply, idle, deadline)
        assert isinstance(reply, Answer)
        await link.travel(deadline)
        headers = {**reply.headers, "Content-Type": reply.content_type}
        return _Response(reply.status, headers, reply.body)

    async def _stream(self, reply: Stream, idle: float | None, deadline: float) -> _Response:
        sink = _Sink(self._link, reply.feed, self._loop)
        reply.feed.start(sink)
        try:
            await self._link.travel(deadline)
        except BaseException:
            sink.leave()
            raise
        response = _Response(reply.status, reply.headers, content=_Content(sink, idle))
        response.sink = sink
        return response

    def _handle(self, request: Request) -> Any:
        return refusal(self._link.server.api, request) or self._link.server.api.handle(request)

    def _again(self, request: Request) -> None:
        """The same request once more: a proxy on the way has sent it twice."""
        if self._link.server.up:
            reply = self._handle(request)
            if isinstance(reply, Coroutine):
                reply.close()
                raise RuntimeError(f"{request.method} {request.path} waits, which nothing in a simulation should")


def _refusal(failure: WriteFailure) -> _Response:
    reason, code = _REASONS[failure], int(failure)
    status = {"kind": "Status", "status": "Failure", "message": "as chosen", "reason": reason, "code": code}
    return _Response(code, {"Content-Type": "application/json"}, orjson.dumps(status))


def _refused() -> aiohttp.ClientConnectorError:
    key = aiohttp.client_reqrep.ConnectionKey("sim", 443, True, True, None, None, None)
    return aiohttp.ClientConnectorError(key, ConnectionRefusedError(111, "Connection refused"))


class _Sessions:
    """Both pools of a client: one link."""

    def __init__(self, session: _Session) -> None:
        self.calls = self.watches = session


class SimClient(KubeClient):
    """The real client over a `Link`, as `user`."""

    def __init__(self, link: Link, user: User | None, *, clock: Clock, random: Random) -> None:
        """Without a user it is who its token says."""
        config = ClusterConfig(name=link.server.name, server="http://sim", tls=TlsSource(clock=clock))
        super().__init__(config, clock=clock, random=random)
        self._sessions_of_the_link = _Sessions(_Session(link, user))

    async def __aenter__(self) -> Self:
        self._sessions = self._sessions_of_the_link  # type: ignore[assignment]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sessions = None
