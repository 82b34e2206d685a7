# SPDX-License-Identifier: Apache-2.0
"""The HTTP sessions of one cluster.

Owns sockets: two pools, one for calls and one for watches, so that a hundred open watches never starve a write.
Promises that every wait has an end: connecting, answering, and a link whose other side is gone without a word (TCP
keep-alive and TCP_USER_TIMEOUT). Never looks at the environment on a request.
"""

from __future__ import annotations

import socket
from typing import Final

import aiohttp

CONNECT_TIMEOUT: Final = 5.0
CALL_TIMEOUT: Final = 30.0
_KEEPALIVE_IDLE: Final = 15
_KEEPALIVE_INTERVAL: Final = 5
_KEEPALIVE_PROBES: Final = 3
_USER_TIMEOUT_MS: Final = 30_000  # unacknowledged data for this long means the peer is gone
_READ_BUFFER: Final = 2**18


def _tcp_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = info
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def call_session(*, limit: int) -> aiohttp.ClientSession:
    """Connections for requests that end: at most `limit`, kept for reuse."""
    return _session(limit=limit, timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT, sock_connect=CONNECT_TIMEOUT))


def watch_session() -> aiohttp.ClientSession:
    """Connections that stay open; the caller sets how long each may be silent."""
    return _session(limit=0, timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT))


def _session(*, limit: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=60.0, socket_factory=_tcp_socket),
        timeout=timeout,
        trust_env=False,  # asking the environment on each request costs five times the request
        auto_decompress=True,
        read_bufsize=_READ_BUFFER,
        cookie_jar=aiohttp.DummyCookieJar(),
        raise_for_status=False,
    )
