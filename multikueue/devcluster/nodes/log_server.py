# SPDX-License-Identifier: Apache-2.0
"""The one endpoint of a kubelet that `kubectl logs` needs, with the few lines a virtual container has to say.

Serves TLS with the cluster's CA and answers only the API server's own client certificate: a log says what ran, and on a
shared machine anyone could dial the port.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from aiohttp import web

from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_micro_time
from multikueue.devcluster.nodes.lifecycle import Life
from multikueue.kube import serve

Story = Callable[[Key], tuple[JsonObject, Life] | None]
_FOLLOW_SECONDS: Final = 0.2
_LINE_PARTS: Final = 2  # a time stamp and a text


def lines(pod: JsonObject, life: Life, *, container: str) -> list[tuple[str, str]]:
    """Time and text of each line of a container's log."""
    node = pod["spec"]["nodeName"]
    said = []
    if life.started_at is not None:
        said.append((format_micro_time(life.started_at), f"{container} started on virtual node {node}"))
    if life.finished_at is not None and life.exit_code is not None:
        said.append((format_micro_time(life.finished_at), f"{container} ended with exit code {life.exit_code}"))
    return said


def application(story: Story, *, caller: str) -> web.Application:
    """Serves `/containerLogs/NAMESPACE/POD/CONTAINER` to the client certificate of that common name."""

    async def logs(request: web.Request) -> web.StreamResponse:
        if _common_name(request) != caller:
            return web.Response(status=403, text=f"only {caller} may read logs\n")
        key = Key(request.match_info["namespace"], request.match_info["pod"])
        container = request.match_info["container"]
        found = story(key)
        if found is None:
            return web.Response(status=404, text=f"pod {key} does not run on a virtual node of this cluster\n")
        answer = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await answer.prepare(request)
        stamped = request.query.get("timestamps") == "true"
        tail = int(request.query["tailLines"]) if request.query.get("tailLines", "").isdecimal() else None
        said = lines(*found, container=container)
        shown = max(0, len(said) - tail) if tail is not None else 0
        while True:
            for time, text in said[shown:]:
                await answer.write(f"{time} {text}\n".encode() if stamped else f"{text}\n".encode())
            shown = len(said)
            found = story(key)
            if request.query.get("follow") != "true" or found is None or shown >= _LINE_PARTS:
                break
            await anyio.sleep(_FOLLOW_SECONDS)
            said = lines(*found, container=container)
        await answer.write_eof()
        return answer

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    return app


@asynccontextmanager
async def log_server(story: Story, *, pem: bytes, ca: bytes, caller: str) -> AsyncIterator[int]:
    """Serve with the certificate and key in `pem` while inside; gives the port."""
    serving = serve.ServingCertificate(pem)
    serving.context.load_verify_locations(cadata=ca.decode())
    serving.context.verify_mode = ssl.CERT_REQUIRED
    async with serve.serving(application(story, caller=caller), "127.0.0.1:0", certificate=serving) as port:
        yield port


def _common_name(request: web.Request) -> str | None:
    transport = request.transport
    peer = transport.get_extra_info("peercert") if transport is not None else None
    for part in (peer or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return None
