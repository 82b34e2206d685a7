# SPDX-License-Identifier: Apache-2.0
"""An HTTP server whose every answer a test decides.

Owns a loopback server that writes down each request and asks the test's function for the answer. Not a Kubernetes: what
has to be true of a real API server is tested on one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.tls import TlsSource
from multikueue.kube.rest.tokens import TokenSource

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class StubApi:
    """What was asked, and the server's URL."""

    url: str
    answer: Answer
    seen: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def config(self, tokens: TokenSource | None = None) -> ClusterConfig:
        """How to reach it."""
        return ClusterConfig(name="stub", server=self.url, tls=TlsSource(), tokens=tokens)

    def client(self, **options: Any) -> KubeClient:
        """A client of it."""
        return KubeClient(self.config(options.pop("tokens", None)), **options)


@asynccontextmanager
async def stub_api(answer: Answer) -> AsyncIterator[StubApi]:
    """Serve while inside."""
    stub = StubApi("", answer)

    async def handle(request: web.Request) -> web.StreamResponse:
        stub.seen.append(f"{request.method} {request.path_qs}")
        stub.bodies.append(await request.read())
        return await stub.answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stub
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)


def json_answer(body: object, status: int = 200, **headers: str) -> web.Response:
    """An answer with a JSON body; `Retry_After="1"` becomes the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json", headers=named)


def status_answer(code: int, reason: str, message: str = "", **headers: str) -> web.Response:
    """A Kubernetes `Status` that says what went wrong."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json_answer({**body, "message": message or reason}, code, **headers)


def listing(*items: dict[str, Any], version: str = "10", token: str = "") -> web.Response:
    """A list answer."""
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return json_answer({"kind": "JobList", "apiVersion": "batch/v1", "metadata": metadata, "items": list(items)})


def thing(name: str, version: str = "1", *, uid: str = "", **spec: Any) -> dict[str, Any]:
    """A small object in namespace `ns`."""
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"metadata": metadata, "spec": spec}


async def stream(request: web.Request, *events: bytes, then: Callable[[], Awaitable[None]] | None = None) -> Any:
    """A watch answer: the lines, then whatever `then` waits for, then the end."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    if then is not None:
        await then()
    return response


def event(kind: str, obj: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return b'{"type":"' + kind.encode() + b'","object":' + orjson.dumps(obj) + b"}\n"
