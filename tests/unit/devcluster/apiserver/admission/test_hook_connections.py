# SPDX-License-Identifier: Apache-2.0
"""A webhook is called again if a kept connection closes during the request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from devcluster.apiserver.admission.hooks import HookFailed, Hooks

pytestmark = pytest.mark.anyio

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def webhook(answers: Callable[[int, int], bool]) -> AsyncIterator[str]:
    """A webhook that answers a request, by the numbers of its connection and request, or closes the connection."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number, requests = connections, 0
        while head := await _head(reader):
            length = next(
                int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-l")
            )
            await reader.readexactly(length)
            requests += 1
            if not answers(number, requests):
                break
            writer.write(_ANSWER)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/validate"


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def test_a_kept_connection_that_ends_is_replaced() -> None:
    hooks = Hooks(rng=random.Random(1))
    async with webhook(lambda connection, request: connection > 1 or request == 1) as url:
        try:
            assert await hooks.call({"url": url}, {}, seconds=5) == {}
            assert await hooks.call({"url": url}, {}, seconds=5) == {}
        finally:
            await hooks.close()


async def test_a_webhook_that_ends_every_connection_has_failed() -> None:
    hooks = Hooks(rng=random.Random(1))
    async with webhook(lambda connection, request: False) as url:
        try:
            with pytest.raises(HookFailed, match="failed to call webhook"):
                await hooks.call({"url": url}, {}, seconds=5)
        finally:
            await hooks.close()
