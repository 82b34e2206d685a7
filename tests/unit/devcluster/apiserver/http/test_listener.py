# SPDX-License-Identifier: Apache-2.0
"""The server on a port: TLS, client certificates, tokens, and a clean stop."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.http.listener import Listener, Serving
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.server import ApiServer
from devcluster.pki import Authority
from tests.support.embedded import api_server, signing_key

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("test-ca")


@pytest.fixture
def serving(authority: Authority, tmp_path: Path) -> Serving:
    certificate, key = authority.serving("apiserver", hosts=["127.0.0.1"]).write(tmp_path, name="serving")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    return Serving(certificate, key, tmp_path / "ca.crt")


def client_tls(folder: Path, authority: Authority, *, user: str = "", groups: tuple[str, ...] = ()) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if user:
        context.load_cert_chain(*authority.client(user, groups=groups).write(folder, name=user))
    return context


async def ask(listener: Listener, text: str, *, tls: ssl.SSLContext | None = None) -> tuple[int, Any]:
    """The answer to one request on a new connection."""
    host, _, port = listener.url.partition("//")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    writer.write(text.replace("\n", "\r\n").encode())
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.partition(":")[2]) for line in head.split("\r\n") if line.startswith("Content-Length"))
        body = await reader.readexactly(length)
    finally:
        writer.close()
        with suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
    return int(head.split(" ")[1]), json.loads(body)


def review(*headers: str) -> str:
    body = json.dumps(REVIEW)
    lines = "".join(f"{header}\n" for header in headers)
    return f"POST {WHOAMI} HTTP/1.1\nContent-Type: application/json\n{lines}Content-Length: {len(body)}\n\n{body}"


async def test_a_client_certificate_names_the_user(serving: Serving, authority: Authority, tmp_path: Path) -> None:
    async with Listener(ApiServer(signing_key=signing_key()), serving=serving) as listener:
        assert listener.url.startswith("https://127.0.0.1:")
        tls = client_tls(tmp_path, authority, user="jane", groups=("ops", "dev"))
        status, seen = await ask(listener, review(), tls=tls)
    assert status == 201
    assert seen["status"]["userInfo"]["username"] == "jane"
    assert seen["status"]["userInfo"]["groups"] == ["ops", "dev", "system:authenticated"]


async def test_a_certificate_of_another_authority_is_refused(
    serving: Serving, authority: Authority, tmp_path: Path
) -> None:
    other = Authority.create("other-ca")
    context = client_tls(tmp_path, authority)
    context.load_cert_chain(*other.client("jane").write(tmp_path, name="jane"))
    async with Listener(ApiServer(signing_key=signing_key()), serving=serving) as listener:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask(listener, review(), tls=context)


async def test_a_token_names_the_user_and_a_wrong_one_is_refused(
    serving: Serving, authority: Authority, tmp_path: Path
) -> None:
    api = ApiServer(signing_key=signing_key(), static_tokens={"secret": User("bob", ("system:authenticated",))})
    async with Listener(api, serving=serving) as listener:
        tls = client_tls(tmp_path, authority)
        status, seen = await ask(listener, review("Authorization: Bearer secret"), tls=tls)
        assert (status, seen["status"]["userInfo"]["username"]) == (201, "bob")
        status, seen = await ask(listener, review("Authorization: Bearer wrong"), tls=tls)
        assert (status, seen["reason"]) == (401, "Unauthorized")
        for headers in ((), ("Authorization: Basic x",)):
            status, seen = await ask(listener, review(*headers), tls=tls)
            assert (status, seen["reason"]) == (403, "Forbidden"), "without credentials the user is anonymous"


async def test_stop_closes_idle_connections_watches_and_hanging_requests() -> None:
    api = api_server()
    async with Listener(api) as listener:
        host, _, port = listener.url.partition("//")[2].partition(":")
        lines = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        api.faults.rules = [Fault(hang=True, path="/api/v1/nodes")]
        for (_, writer), path in zip(lines[1:], ("pods?watch=true", "nodes"), strict=True):
            writer.write(f"GET /api/v1/{path} HTTP/1.1\r\n\r\n".encode())
        head = await lines[1][0].readuntil(b"\r\n\r\n")
        assert b"chunked" in head
        async with asyncio.timeout(5):
            while not any("api request" in task.get_name() for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        assert await lines[0][0].read() == b""
        assert await lines[1][0].read() == b"0\r\n\r\n"
        assert await lines[2][0].read() == b""
    for _, writer in lines:
        writer.close()
        await writer.wait_closed()


async def test_a_port_is_free_again_after_the_stop() -> None:
    async with Listener(api_server()) as first:
        port = int(first.url.rpartition(":")[2])
    async with Listener(api_server(), port=port) as second:
        status, _ = await ask(second, "GET /version HTTP/1.1\n\n")
    assert status == 200
