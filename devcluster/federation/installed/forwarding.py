# SPDX-License-Identifier: Apache-2.0
"""TCP forwarders on the loopback interface that replace a cluster's network for an installed manager.

`PodsService` is the stable address of the webhooks, or of the visibility API, while pods are replaced. `NamedServers`
is an HTTP proxy that resolves the host names that kind gives to API servers. Both forward bytes unread, except for the
CONNECT request.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self

from devcluster.errors import DevclusterError
from devcluster.ports import LOOPBACK

log = logging.getLogger(__name__)

_CHUNK: Final = 64 * 1024
_CONNECT_SECONDS: Final = 5.0
_HEAD_BYTES: Final = 16 * 1024
_HEAD_SECONDS: Final = 10.0


class Forwarder(ABC):
    """A TCP server on the loopback interface that forwards each connection. An async context manager."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port, limit=_HEAD_BYTES)
        except OSError as error:
            raise DevclusterError(f"cannot listen on {LOOPBACK}:{self.port}: {error.strerror or error}") from error
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    @abstractmethod
    async def open(self, reader: asyncio.StreamReader) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """The upstream of a new connection, and the first answer. Raises `OSError`, `ValueError`, `EOFError`."""

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio prints a traceback for one of its own that is cancelled.
        task = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            far_reader, far, greeting = await self.open(reader)
            writer.write(greeting)
            await asyncio.gather(_pump(reader, far), _pump(far_reader, writer))
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            log.debug("connection closed port=%d error=%s", self.port, error)
        finally:
            for each in (writer, far):
                if each is not None:
                    each.close()


class PodsService(Forwarder):
    """Forwards connections to the first port of `targets` that accepts them."""

    def __init__(self, port: int, targets: Callable[[], Iterable[int]]) -> None:
        super().__init__(port)
        self._targets = targets

    async def open(self, reader: asyncio.StreamReader) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """The first manager that accepts the connection."""
        for port in list(self._targets()):
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return *await asyncio.open_connection(LOOPBACK, port), b""
            except (OSError, TimeoutError):
                continue
        raise ConnectionRefusedError("no pod of the manager accepts connections")


class NamedServers(Forwarder):
    """An HTTP proxy that maps some `HOST:PORT` to other addresses, and connects to all others directly."""

    def __init__(self, port: int, servers: Mapping[str, tuple[str, int]]) -> None:
        super().__init__(port)
        self._servers = servers

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which a process uses it."""
        direct = f"{LOOPBACK},localhost,::1"
        url = f"http://{LOOPBACK}:{self.port}"
        return {"HTTPS_PROXY": url, "https_proxy": url, "NO_PROXY": direct, "no_proxy": direct}

    async def open(self, reader: asyncio.StreamReader) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """The server of the CONNECT request."""
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.decode("latin-1").partition(" ")
        authority = rest.partition(" ")[0]
        host, _, port = authority.rpartition(":")
        if method != "CONNECT" or not host or not port.isdecimal() or len(port) > 5:
            raise ValueError("expected CONNECT HOST:PORT")
        host, number = self._servers.get(authority, (host.strip("[]"), int(port)))
        async with asyncio.timeout(_CONNECT_SECONDS):
            opened = await asyncio.open_connection(host, number)
        return *opened, b"HTTP/1.1 200 Connection established\r\n\r\n"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward bytes until the end of the stream, then close it."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
