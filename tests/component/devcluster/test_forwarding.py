# SPDX-License-Identifier: Apache-2.0
"""The addresses of an installed manager: a port that stays while processes change, and servers by other names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from devcluster.errors import DevclusterError
from devcluster.federation.installed.forwarding import NamedServers, PodsService
from devcluster.ports import LOOPBACK
from tests.support.managers import free_port

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def echo(prefix: bytes) -> AsyncIterator[int]:
    """A server that answers each connection's first line with its prefix before it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(prefix + await reader.readline())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def say(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(text)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_connection_goes_to_the_first_port_that_accepts() -> None:
    async with echo(b"1 ") as first, echo(b"2 ") as second:
        targets = [free_port(), second, first]
        async with PodsService(free_port(), lambda: targets) as service:
            assert await say(service.port, b"hello\n") == b"2 hello\n"
            targets[:] = [first]
            assert await say(service.port, b"hello\n") == b"1 hello\n"


async def test_connections_that_are_open_at_the_end_are_closed_without_a_report() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with echo(b"1 ") as port:
        async with PodsService(free_port(), lambda: [port]) as service:
            reader, writer = await asyncio.open_connection(LOOPBACK, service.port)
            while not service.connections:
                await asyncio.sleep(0)
        assert await reader.read() == b""
        writer.close()
    assert reported == []


async def test_a_connection_ends_at_once_while_nothing_accepts() -> None:
    async with PodsService(free_port(), lambda: [free_port()]) as service:
        assert await say(service.port, b"hello\n") == b""


async def test_a_port_that_is_in_use_is_named() -> None:
    async with echo(b"1 ") as port:
        with pytest.raises(DevclusterError, match=f"cannot listen on {LOOPBACK}:{port}"):
            async with PodsService(port, lambda: ()):
                pytest.fail("two servers listen on one port")


async def test_a_server_is_reached_by_its_other_name() -> None:
    async with echo(b"1 ") as port:
        servers = {"a-control-plane:6443": (LOOPBACK, port)}
        async with NamedServers(free_port(), servers) as proxy:
            head = b"HTTP/1.1 200 Connection established\r\n\r\n"
            asked = b"CONNECT a-control-plane:6443 HTTP/1.1\r\nHost: a-control-plane:6443\r\n\r\nhello\n"
            assert await say(proxy.port, asked) == head + b"1 hello\n"
            other = f"CONNECT {LOOPBACK}:{port} HTTP/1.1\r\n\r\nhello\n".encode()
            assert await say(proxy.port, other) == head + b"1 hello\n"


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://x/ HTTP/1.1\r\n\r\n",
        b"CONNECT x HTTP/1.1\r\n\r\n",
        b"CONNECT x:\xb2 HTTP/1.1\r\n\r\n",
        b"\xff" * 20000,
    ],
    ids=["another method", "no port", "a port of other digits", "no end"],
)
async def test_a_request_that_is_no_connect_ends(head: bytes) -> None:
    async with NamedServers(free_port(), {}) as proxy:
        try:
            assert await say(proxy.port, head) == b""
        except ConnectionResetError:
            return  # closed while more of it was on its way
