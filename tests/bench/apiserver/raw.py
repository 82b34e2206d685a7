# SPDX-License-Identifier: Apache-2.0
"""A client that costs next to nothing: bytes made beforehand, sockets read by epoll, answers counted and not parsed.

One request is on its way on each connection; the next goes out when its answer is whole.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import perf_counter
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and who we are there."""

    url: str
    tls: ssl.SSLContext | None = None

    def connect(self) -> socket.socket:
        """A connection."""
        parts = urlsplit(self.url)
        found = socket.create_connection((parts.hostname, parts.port))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.tls.wrap_socket(found, server_hostname=parts.hostname) if self.tls is not None else found


def request(method: str, path: str, body: bytes = b"", media: str = "application/json") -> bytes:
    """A request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n"
    if body:
        head += f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


class Line:
    """One connection."""

    def __init__(self, address: Address) -> None:
        self.socket = address.connect()
        self._buffer = bytearray()

    def ask(self, text: bytes) -> tuple[int, bytes]:
        """The answer's status and body."""
        self.socket.sendall(text)
        while True:
            found = self._take()
            if found is not None:
                return found
            self._read()

    def answered(self) -> bool:
        """Read what has come; whether the answer is whole. Raises `RuntimeError` when it is an error."""
        self._read()
        found = self._take()
        if found is None:
            return False
        if found[0] >= 300:
            raise RuntimeError(f"{found[0]}: {found[1][:300]!r}")
        return True

    def shut(self) -> None:
        """Close it, even during a read."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def _read(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data  # a list of many megabytes comes in records of 16 KiB
        while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            self._buffer += self.socket.recv(1 << 20)

    def _take(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        status = int(buffer[9:12])
        head = buffer[:end].lower()
        at = head.find(b"content-length:")
        if at >= 0:
            stop = head.find(b"\r\n", at)
            length = int(head[at + 15 : stop if stop > 0 else end])
            if len(buffer) < end + 4 + length:
                return None
            self._buffer = buffer[end + 4 + length :]
            return status, bytes(buffer[end + 4 : end + 4 + length])
        if not buffer.endswith(b"0\r\n\r\n"):
            return None
        self._buffer = bytearray()
        return status, _dechunk(bytes(buffer[end + 4 :]))


def _dechunk(body: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size


def play(
    address: Address, requests: Iterator[bytes], *, connections: int = 16, seconds: float = inf
) -> tuple[int, float]:
    """Send all requests, or those that go in so many seconds; how many there were, and the seconds that it took."""
    lines = [Line(address) for _ in range(connections)]
    count = 0
    with selectors.DefaultSelector() as waiting:
        begun = perf_counter()
        for line in lines:
            text = next(requests, None)
            if text is not None:
                line.socket.sendall(text)
                waiting.register(line.socket, selectors.EVENT_READ, line)
        while waiting.get_map():
            for key, _ in waiting.select():
                if not key.data.answered():
                    continue
                count += 1
                text = next(requests, None) if perf_counter() - begun < seconds else None
                if text is None:
                    waiting.unregister(key.fileobj)
                else:
                    key.data.socket.sendall(text)
        taken = perf_counter() - begun
    for line in lines:
        line.close()
    return count, taken
