# SPDX-License-Identifier: Apache-2.0
"""Serves `pods/log` from the kubelet of the pod's node, like a real API server, also with `follow`."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import aiohttp

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Reply, Request, RequestTarget, Sink, Stream

_TEXT: Final = "text/plain"
_CONNECT: Final = aiohttp.ClientTimeout(total=None, sock_connect=2.0)


class PodLogs:
    """Reads logs from kubelets with the API server's client certificate; implements `server.Logs`."""

    def __init__(self, context: ServerContext, *, pki: Path) -> None:
        self._context = context
        self._tls = ssl.create_default_context(cafile=pki / "ca.crt")
        self._tls.load_cert_chain(pki / "kubelet-client.crt", pki / "kubelet-client.key")

    async def __call__(self, request: Request, meant: RequestTarget) -> Reply:
        """The log of a container, complete or followed."""
        pod = self._context.get("pods", f"{meant.namespace}/{meant.name}") or {}
        containers = [entry["name"] for entry in documents.items(pod, "spec", "containers")]
        container = request.query.get("container") or (containers[0] if containers else "")
        url = f"{kubelet_address(self._context, pod)}/containerLogs/{meant.namespace}/{meant.name}/{container}"
        query = {name: value for name, value in request.query.items() if name != "container"}
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls), timeout=_CONNECT)
        try:
            answer = await session.get(url, params=query)
            if answer.status != 200 or not request.flag("follow"):
                body = await answer.read()
                await session.close()
                return Answer(answer.status, body, _TEXT)
        except (aiohttp.ClientError, OSError) as error:
            await session.close()
            raise errors.internal(f"Get {url!r}: {error}") from error
        return Stream(_Following(session, answer), content_type=_TEXT)


def kubelet_address(context: ServerContext, pod: documents.JsonObject) -> str:
    """The URL of the kubelet of a pod's node. Raises `StatusError`."""
    name = documents.child(pod, "spec").get("nodeName", "")
    node = context.get("nodes", name)
    if node is None:
        raise errors.internal(f'nodes "{name}" not found')
    addresses = documents.items(node, "status", "addresses")
    host = next((entry["address"] for entry in addresses if entry["type"] == "InternalIP"), "")
    port = documents.child(node, "status", "daemonEndpoints", "kubeletEndpoint").get("Port") or 0
    if not host or not port:
        raise errors.internal(f"node {name} has no kubelet address")
    return f"https://{host}:{port}"


class _Following:
    """A followed log; implements `requests.Feed`."""

    def __init__(self, session: aiohttp.ClientSession, answer: aiohttp.ClientResponse) -> None:
        self._session = session
        self._answer = answer
        self._task: asyncio.Task[None] | None = None

    def start(self, sink: Sink) -> None:
        """Forward what the kubelet sends."""
        self._task = asyncio.get_running_loop().create_task(self._forward(sink), name="pod log")

    def stop(self) -> None:
        """Close: the client has disconnected."""
        if self._task is not None:
            self._task.cancel()

    async def _forward(self, sink: Sink) -> None:
        try:
            async for chunk in self._answer.content.iter_any():
                sink.write(chunk)
            sink.close()
        except (aiohttp.ClientError, OSError):
            sink.abort()
        finally:
            await self._session.close()
