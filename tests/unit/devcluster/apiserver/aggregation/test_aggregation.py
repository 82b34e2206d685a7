# SPDX-License-Identifier: Apache-2.0
"""Aggregated APIs over real connections; the answers of a real server are compared in tests/conformance."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.storage.durable import SqliteJournal
from devcluster.pki import Authority, front_proxy
from tests.support.embedded import MERGE, api_server

_GROUP: Final = "/apis/hello.example.test/v1"
_SERVICE: Final = "/apis/apiregistration.k8s.io/v1/apiservices/v1.hello.example.test"
_PATIENCE: Final = 60.0


@dataclass
class Backend:
    """A server of one group, which trusts the front proxy of the folder."""

    authority: Authority
    address: str

    def registration(self) -> dict[str, Any]:
        spec = {
            "group": "hello.example.test",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "service": {"name": "hello", "namespace": "default"},
            "caBundle": b64encode(self.authority.certificate).decode(),
        }
        return {"metadata": {"name": "v1.hello.example.test"}, "spec": spec}


async def _hello(request: web.Request) -> web.StreamResponse:
    if request.path.endswith("/endless"):
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first")
        await asyncio.Event().wait()
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    user = request.headers.get("X-Remote-User", "")
    return web.json_response({"kind": "Hello", "to": user, "resources": [], "shown": bool(certificate)})


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Backend]:
    authority = Authority.create("backend")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.serving("hello", hosts=["hello.default.svc"]).write(tmp_path, name="backend"))
    context.load_verify_locations(front_proxy(tmp_path).authority)
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", _hello)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield Backend(authority, f"127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()


async def _register(client: aiohttp.ClientSession, backend: Backend) -> None:
    service = {"metadata": {"name": "hello"}, "spec": {"ports": [{"port": 443}]}}
    for path, body in (
        ("/api/v1/namespaces/default/services", service),
        (_SERVICE.rpartition("/")[0], backend.registration()),
    ):
        async with client.post(path, json=body) as answer:
            assert answer.status == 201


async def _get(client: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with client.get(path) as answer:
        return answer.status, await answer.text()


async def _until_available(client: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(_PATIENCE):
        while (await _get(client, f"{_GROUP}/hellos"))[0] != 200:
            await asyncio.sleep(0.02)


async def test_a_registration_holds_over_a_restart(tmp_path: Path, backend: Backend) -> None:
    for run in range(2):
        api = api_server(
            journal=SqliteJournal(tmp_path / "data"),
            services={"default/hello": backend.address},
            proxy=front_proxy(tmp_path),
        )
        async with Listener(api) as listener, aiohttp.ClientSession(listener.url) as client:
            if run == 0:
                await _register(client, backend)
            await _until_available(client)
            _, text = await _get(client, f"{_GROUP}/hellos")
            assert json.loads(text) == {"kind": "Hello", "to": "admin", "resources": [], "shown": True}


async def test_a_stream_of_a_backend_ends_with_the_server(tmp_path: Path, backend: Backend) -> None:
    api = api_server(services={"default/hello": backend.address}, proxy=front_proxy(tmp_path))
    async with Listener(api) as listener, aiohttp.ClientSession(listener.url) as client:
        await _register(client, backend)
        await _until_available(client)
        answer = await client.get(f"{_GROUP}/hellos/endless")
        assert await answer.content.readany() == b"first"
        await listener.stop()
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_removed_registration_is_not_served(tmp_path: Path, backend: Backend) -> None:
    api = api_server(services={"default/hello": backend.address}, proxy=front_proxy(tmp_path))
    async with Listener(api) as listener, aiohttp.ClientSession(listener.url) as client:
        await _register(client, backend)
        await _until_available(client)
        await client.delete("/api/v1/namespaces/default/services/hello")
        async with asyncio.timeout(_PATIENCE):
            while (await _get(client, f"{_GROUP}/hellos"))[0] != 503:
                await asyncio.sleep(0.02)
        async with client.get(_SERVICE) as answer:
            (condition,) = (await answer.json())["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "ServiceNotFound")
        await client.delete(_SERVICE)
        assert (await _get(client, f"{_GROUP}/hellos"))[0] == 404


async def test_a_bundle_without_certificate_is_reported_until_it_is_fixed(tmp_path: Path, backend: Backend) -> None:
    api = api_server(services={"default/hello": backend.address}, proxy=front_proxy(tmp_path))
    async with Listener(api) as listener, aiohttp.ClientSession(listener.url) as client:
        trusted = backend.registration()["spec"]["caBundle"]
        await _register(client, backend)
        for bundle, reason in (("aGVsbG8=", "FailedDiscoveryCheck"), (trusted, "Passed")):
            patch = json.dumps({"spec": {"caBundle": bundle}})
            async with client.patch(_SERVICE, data=patch, headers={"Content-Type": MERGE}) as answer:
                assert answer.status == 200
            async with asyncio.timeout(_PATIENCE):
                while f'"reason":"{reason}"' not in (await _get(client, _SERVICE))[1]:
                    await asyncio.sleep(0.02)


async def test_after_a_refused_upgrade_the_client_has_no_connection_to_the_backend(
    tmp_path: Path, backend: Backend
) -> None:
    # Otherwise a client could send a second request on it, with a user of its choice, as the front proxy.
    api = api_server(services={"default/hello": backend.address}, proxy=front_proxy(tmp_path))
    async with Listener(api) as listener, aiohttp.ClientSession(listener.url) as client:
        await _register(client, backend)
        await _until_available(client)
        host, port = listener.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        upgrade = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket"
        writer.write(f"GET {_GROUP}/hellos HTTP/1.1\r\n{upgrade}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        forged = "Host: x\r\nX-Remote-User: forged\r\nConnection: close"
        writer.write(f"GET {_GROUP}/hellos HTTP/1.1\r\n{forged}\r\n\r\n".encode())
        async with asyncio.timeout(_PATIENCE):
            rest = await reader.read()
        writer.close()
    assert head.startswith(b"HTTP/1.1 200")
    assert rest.count(b'"to": "admin"') == 2
    assert b"forged" not in rest
