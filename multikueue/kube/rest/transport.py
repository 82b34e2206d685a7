# SPDX-License-Identifier: Apache-2.0
"""The HTTP sessions of one cluster.

There are two connection pools, one for calls and one for watches, so that many open watches never block a write. Every
wait has a limit: connecting, answering, and a connection whose peer disappeared (TCP keep-alive and TCP_USER_TIMEOUT).
The environment is not read per request.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final
from weakref import WeakSet

import aiohttp
import anyio

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
