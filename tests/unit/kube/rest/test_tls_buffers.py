# SPDX-License-Identifier: Apache-2.0
"""The memory of TLS connections is limited, and answers larger than a buffer arrive whole."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol

import pytest
import trustme

from multikueue.kube.rest.tls_buffers import BUFFER_BYTES, limit_tls_buffers

pytestmark = pytest.mark.anyio


async def test_a_connection_has_the_smaller_buffer_and_passes_a_large_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    limit_tls_buffers()
    authority = trustme.CA()
    served, trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(served)
    authority.configure_trust(trusted)
    body = b"x" * (5 * BUFFER_BYTES + 7)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=served) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost")
        assert await reader.read(-1) == body
        assert len(writer.transport._ssl_protocol._ssl_buffer) == BUFFER_BYTES  # type: ignore[attr-defined]
        writer.close()
