# SPDX-License-Identifier: Apache-2.0
"""Which servers a client trusts: those that a Go client trusts."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from devcluster.pki import Authority
from multikueue.core.certificate_trust import client_context


@pytest.fixture
def server_pair(tmp_path: Path) -> tuple[Authority, Path]:
    authority = Authority.create("ca")
    pair = authority.serving("localhost", hosts=["localhost", "127.0.0.1"])
    file = tmp_path / "pair.pem"
    file.write_bytes(pair.certificate + pair.key)
    return authority, file


async def connect(file: Path, bundle: bytes) -> None:
    """Connect to a server with the certificate in `file`. Raises `ssl.SSLError` if it is not trusted."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(bundle.decode()))
        writer.close()
        await writer.wait_closed()


async def test_a_server_of_the_authority_is_trusted(server_pair: tuple[Authority, Path]) -> None:
    await connect(server_pair[1], server_pair[0].certificate)


async def test_the_servers_own_certificate_is_enough(server_pair: tuple[Authority, Path]) -> None:
    text = server_pair[1].read_bytes()
    await connect(server_pair[1], text[: text.index(b"-----END CERTIFICATE-----") + 26])


async def test_a_server_of_another_authority_is_not_trusted(server_pair: tuple[Authority, Path]) -> None:
    with pytest.raises(ssl.SSLError):
        await connect(server_pair[1], Authority.create("other").certificate)


def test_a_bundle_without_certificates_is_refused() -> None:
    with pytest.raises((ssl.SSLError, ValueError)):
        client_context("no certificate")
