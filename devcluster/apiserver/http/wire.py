# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 on an asyncio protocol: requests in, answers and chunked streams out.

Owns one connection: keep-alive, one request after the other, bodies by length or in chunks. A web framework would take
longer for a request than the whole answer may take (GET ≥ 12,000 a second on one core). A handler that does not wait is
answered within the read. Routing, users and everything of Kubernetes belong to the handler.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Final, Protocol, cast
from urllib.parse import unquote

import orjson

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.http.requests import IMPERSONATES, Answer, Duplex, Reply, Request, Stream, Tunnel, User

_LOG: Final = logging.getLogger(__name__)
_MAX_HEAD: Final = 64 << 10
_MAX_BODY: Final = 3 << 20
"""About what etcd and a real API server accept."""
_STATUS_LINES: Final = {code.value: f"HTTP/1.1 {code.value} {code.phrase}\r\n".encode() for code in HTTPStatus}
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Handler(Protocol):
    """Answers requests."""

    def handle(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        """The answer, or a coroutine that returns it; a coroutine that returns None closes the connection."""

    def certificate_user(self, certificate: bytes) -> User | None:
        """The user of a client certificate (DER) that the authority has signed."""


class ServerConnection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_buffer",
        "_busy",
        "_certificate",
        "_connections",
        "_drained",
        "_handler",
        "_stream",
        "_task",
        "_transport",
        "_tunnel",
    )

    def __init__(self, handler: Handler, connections: set[ServerConnection]) -> None:
        self._handler = handler
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._tunnel: Duplex | None = None
        self._drained: asyncio.Event | None = None
        """Exists while the write buffer is full; set when the client has read enough of it."""
        self._certificate: User | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        tls = transport.get_extra_info("ssl_object")
        if isinstance(tls, ssl.SSLObject):
            found = tls.getpeercert(binary_form=True)
            if found:
                self._certificate = self._handler.certificate_user(found)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        if self._task is not None:
            self._task.cancel()
        self.resume_writing()
        self._end_stream()

    def pause_writing(self) -> None:
        self._drained = asyncio.Event()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set()

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.receive(data)
            return
        self._buffer = self._buffer + data if self._buffer else data
        if not self._busy:
            self._advance()

    # a Sink for streams

    @property
    def closed(self) -> bool:
        """Whether the client is gone."""
        return self._transport is None or self._transport.is_closing()

    @property
    def pending(self) -> int:
        """The number of bytes that the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def drained(self) -> None:
        """Wait until the client has read most of the buffer."""
        if self._drained is not None:
            await self._drained.wait()

    def write(self, chunk: bytes) -> None:
        """Send one chunk."""
        if self._transport is not None and self._tunnel is not None:
            self._transport.write(chunk)
        elif self._transport is not None:
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def close(self) -> None:
        """End the stream in order, and continue with the next request."""
        if self._transport is not None and self._tunnel is not None:
            self._transport.close()
        elif self._transport is not None and self._stream is not None:
            self._stream = None
            self._transport.write(b"0\r\n\r\n")
            self._busy = False
            if self._buffer:
                self._advance()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Close the connection; the server stops."""
        self._end_stream()
        if self._transport is not None:
            self._transport.close()

    # requests

    def _advance(self) -> None:
        while self._buffer and not self._busy and self._transport is not None:
            request = self._take()
            if request is None:
                return
            self._busy = True
            try:
                reply = self._handler.handle(request)
            except Exception as error:
                reply = _broken(request, error)
            if isinstance(reply, Answer):
                self._busy = False
                self._answer(reply, request)
            elif isinstance(reply, Stream):
                self._begin(reply)
            elif isinstance(reply, Tunnel):
                self._open(reply)
            else:
                self._task = asyncio.get_running_loop().create_task(self._await(reply, request), name="api request")

    async def _await(self, waiting: Coroutine[object, object, Reply | None], request: Request) -> None:
        try:
            reply = await waiting
        except Exception as error:
            reply = _broken(request, error)
        self._task = None
        if self._transport is None:
            if isinstance(reply, Stream | Tunnel):
                reply.feed.stop()
            return
        if reply is None:
            self._transport.abort()
        elif isinstance(reply, Answer):
            self._busy = False
            self._answer(reply, request)
            self._advance()
        elif isinstance(reply, Tunnel):
            self._open(reply)
        else:
            self._begin(reply)

    def _take(self) -> Request | None:
        """The next request if all of it is here."""
        buffer = self._buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(buffer) > _MAX_HEAD:
                self._refuse(431)
            return None
        try:
            first, *lines = buffer[:end].decode("latin-1").split("\r\n")
            method, url, _ = first.split(" ", 2)
            headers: dict[str, str] = {}
            for line in lines:
                name, _, value = line.partition(":")
                name = name.lower()
                value = value.strip()
                if name in headers:
                    # The names of groups may have commas.
                    between = "\n" if name.startswith(IMPERSONATES) else ", "
                    value = f"{headers[name]}{between}{value}"
                headers[name] = value
            length = _count(headers.get("content-length", "0"))
        except ValueError:
            self._refuse(400)
            return None
        start = end + 4
        if "transfer-encoding" in headers and headers["transfer-encoding"].lower() == "chunked":
            found = self._chunks(start)
            if found is None:
                self._expect(headers)
                return None
            body, self._buffer = found
        else:
            if length > _MAX_BODY:
                self._refuse(413)
                return None
            if len(buffer) < start + length:
                self._expect(headers)
                return None
            body = buffer[start : start + length]
            self._buffer = buffer[start + length :]
        path, _, query = url.partition("?")
        if path.startswith("http"):
            path = "/" + path.partition("//")[2].partition("/")[2]
        if "%" in path and "%2f" not in path.lower():
            path = unquote(path)
        return Request(method, path, query, headers, body, certificate=self._certificate)

    def _expect(self, headers: dict[str, str]) -> None:
        if headers.get("expect", "").lower() == "100-continue" and self._transport is not None and self._buffer:
            # Sent once: the header is blanked, so that it is not found again when more of the request has come.
            self._transport.write(_CONTINUE)
            self._buffer = self._buffer.replace(b"100-continue", b"none        ", 1)

    def _chunks(self, position: int) -> tuple[bytes, bytes] | None:
        parts: list[bytes] = []
        total = 0
        buffer = self._buffer
        while True:
            end = buffer.find(b"\r\n", position)
            if end < 0:
                return None
            try:
                size = _count(buffer[position:end].partition(b";")[0].decode("latin-1").strip(), base=16)
            except ValueError:
                self._refuse(400)
                return None
            total += size
            if total > _MAX_BODY:
                self._refuse(413)
                return None
            if size == 0:
                last = buffer.find(b"\r\n\r\n", end)  # trailers, if any, are skipped
                return None if last < 0 else (b"".join(parts), buffer[last + 4 :])
            if len(buffer) < end + 2 + size + 2:
                return None
            parts.append(buffer[end + 2 : end + 2 + size])
            position = end + 2 + size + 2

    def _refuse(self, code: int) -> None:
        if self._transport is not None:
            self._transport.write(_STATUS_LINES[code] + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            self._transport.close()
            self._buffer = b""

    def _answer(self, reply: Answer, request: Request) -> None:
        transport = self._transport
        if transport is None:
            return
        head = b"%bContent-Type: %b\r\nContent-Length: %d\r\n" % (
            _STATUS_LINES.get(reply.status) or f"HTTP/1.1 {reply.status} Unknown\r\n".encode(),
            reply.content_type.encode(),
            len(reply.body),
        )
        if reply.headers or request.warnings:
            head += _lines(reply.headers, request.warnings)
        if request.method == "HEAD":
            transport.write(head + b"\r\n")
        else:
            transport.write(b"%b\r\n%b" % (head, reply.body))
        if request.headers.get("connection", "").lower() == "close":
            transport.close()

    def _begin(self, reply: Stream) -> None:
        if self._transport is None:
            return
        self._stream = reply
        head = (
            _STATUS_LINES[reply.status]
            + b"Content-Type: "
            + reply.content_type.encode()
            + b"\r\nTransfer-Encoding: chunked\r\n"
            + _lines(reply.headers, ())
        )
        self._transport.write(head + b"\r\n")
        reply.feed.start(self)

    def _open(self, reply: Tunnel) -> None:
        """Pass the connection to the feed of a tunnel, with the bytes that have been received already."""
        self._tunnel = reply.feed
        reply.feed.start(self)
        if self._buffer:
            reply.feed.receive(self._buffer)
            self._buffer = b""

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.feed.stop()
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is not None:
            tunnel.stop()


def _broken(request: Request, error: Exception) -> Answer:
    """The answer after an unexpected error of a handler; nothing has been sent yet."""
    if isinstance(error, RecursionError | orjson.JSONEncodeError):
        # A real server accepts some thousand levels, this one as many as its parser.
        failed = errors.bad_request(f"the object is nested too deep: {error}")
    else:
        _LOG.error("request failed method=%s path=%s", request.method, request.path, exc_info=error)
        failed = errors.internal(f"{type(error).__name__}: {error}")
    return Answer(failed.code, documents.dump(failed.document()))


def _lines(headers: object, warnings: object) -> bytes:
    found = []
    if isinstance(headers, dict):
        found = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if isinstance(warnings, list):
        found += [f'Warning: 299 - "{text.replace(chr(34), chr(92) + chr(34))}"\r\n' for text in warnings]
    return "".join(found).encode("utf-8", "replace")


def _count(text: str, *, base: int = 10) -> int:
    found = int(text, base)
    if found < 0:
        raise ValueError(text)
    return found
