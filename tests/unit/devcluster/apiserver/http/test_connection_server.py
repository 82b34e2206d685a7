# SPDX-License-Identifier: Apache-2.0
"""A port is closed with every connection on it, whatever the connection was in the middle of."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import anyio
import pytest

from devcluster.apiserver.http.connection_server import ConnectionServer
from devcluster.apiserver.http.requests import Answer, Request, User
from devcluster.pki import Authority


class Hello:
    """Answers every request."""

    def handle(self, request: Request) -> Answer:
        return Answer(200, b"hello")

    def certificate_user(self, certificate: bytes) -> User | None:
        return None


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    certificate, key = (
        Authority.create("test-ca").serving("server", hosts=["127.0.0.1"]).write(tmp_path, name="serving")
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection, and sends nothing before."""
    with anyio.fail_after(10):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def test_a_connection_whose_client_never_begins_its_handshake_is_closed_with_the_server(
    tls: ssl.SSLContext,
) -> None:
    server = ConnectionServer(Hello())
    port = server.start("127.0.0.1", 0, context=tls, backlog=8)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.sleep(0.05)
    with anyio.fail_after(5):
        await server.stop()
    assert await closed(reader)
    writer.close()


async def test_a_connection_that_arrives_in_the_turn_in_which_the_server_stops_is_closed(tls: ssl.SSLContext) -> None:
    server = ConnectionServer(Hello())
    port = server.start("127.0.0.1", 0, context=tls, backlog=8)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await server.stop()
    assert await closed(reader)
    writer.close()


async def test_bytes_that_are_no_handshake_close_their_connection_and_no_other(tls: ssl.SSLContext) -> None:
    server = ConnectionServer(Hello())
    port = server.start("127.0.0.1", 0, context=tls, backlog=8)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    with anyio.fail_after(10):
        await reader.read()
    writer.close()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await server.stop()


async def test_a_server_without_free_file_descriptors_says_so_and_accepts_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("devcluster.apiserver.http.connection_server._ACCEPT_AGAIN_SECONDS", 0.05)
    server = ConnectionServer(Hello())
    port = server.start("127.0.0.1", 0, context=None, backlog=8)
    assert server._listening is not None
    listening = server._listening
    refusals = iter((OSError(24, "Too many open files"),))

    class Full:
        """The listening socket; its first connection cannot be accepted."""

        def accept(self) -> object:
            for refusal in refusals:
                raise refusal
            return listening.accept()

        def fileno(self) -> int:
            return listening.fileno()

        def close(self) -> None:
            listening.close()

    monkeypatch.setattr(server, "_listening", Full())
    asyncio.get_running_loop().remove_reader(listening)
    server._accept_later()
    with caplog.at_level(logging.WARNING):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with anyio.fail_after(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await server.stop()
    assert "Too many open files" in caplog.text


async def test_a_server_can_start_again_after_it_stopped() -> None:
    server = ConnectionServer(Hello())
    port = server.start("127.0.0.1", 0, context=None, backlog=8)
    await server.stop()
    assert server.start("127.0.0.1", port, context=None, backlog=8) == port
    await server.stop()
    await server.stop()
