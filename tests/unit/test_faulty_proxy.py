# SPDX-License-Identifier: Apache-2.0
"""The proxy of the tests leaves no connection open that it is to refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.faulty_proxy import tcp_proxy


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_being_opened_is_refused_as_well(turns: int) -> None:
    """What was accepted a turn of the loop ago has no connection to the target yet."""
    async with _echo() as target, tcp_proxy(target) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        for _ in range(turns):
            await asyncio.sleep(0)

        await proxy.refuse()

        assert await _answer(reader, writer) == b""


async def test_connections_are_relayed_again_after_a_start() -> None:
    async with _echo() as target, tcp_proxy(target) as proxy:
        await proxy.refuse()
        await proxy.start()

        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)

        assert await _answer(reader, writer) == b"x"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    try:
        writer.write(b"x")
        return await reader.read(1)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@asynccontextmanager
async def _echo() -> AsyncIterator[str]:
    """The address of a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                writer.write(data)
        except ConnectionError:
            return
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
