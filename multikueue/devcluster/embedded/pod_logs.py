# SPDX-License-Identifier: Apache-2.0
"""Logs of pods, asked of the kubelet of their node as a real API server asks.

Owns the way from `pods/log` to the node's address and port, and the passing on of what comes, also while it is
followed.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import aiohttp

from multikueue.devcluster.apiserver import documents, errors
from multikueue.devcluster.apiserver.requests import Answer, Reply, Request, Sink, Stream, Target
from multikueue.devcluster.apiserver.world import World

_TEXT: Final = "text/plain"
_CONNECT: Final = aiohttp.ClientTimeout(total=None, sock_connect=2.0)


class PodLogs:
    """Asks kubelets with the API server's own client certificate; implements `server.Logs`."""

    def __init__(self, world: World, *, pki: Path) -> None:
        self._world = world
        self._context = ssl.create_default_context(cafile=pki / "ca.crt")
        self._context.load_cert_chain(pki / "kubelet-client.crt", pki / "kubelet-client.key")

    async def __call__(self, request: Request, meant: Target) -> Reply:
        """The log of a container, whole or as it grows."""
        pod = self._world.get("pods", f"{meant.namespace}/{meant.name}") or {}
        containers = [entry["name"] for entry in documents.items(pod, "spec", "containers")]
        container = request.query.get("container") or (containers[0] if containers else "")
        url = f"{self._kubelet(pod)}/containerLogs/{meant.namespace}/{meant.name}/{container}"
        query = {name: value for name, value in request.query.items() if name != "container"}
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._context), timeout=_CONNECT)
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

    def _kubelet(self, pod: documents.JsonObject) -> str:
        name = documents.child(pod, "spec").get("nodeName", "")
        node = self._world.get("nodes", name)
        if node is None:
            raise errors.internal(f'nodes "{name}" not found')
        addresses = documents.items(node, "status", "addresses")
        host = next((entry["address"] for entry in addresses if entry["type"] == "InternalIP"), "")
        port = documents.child(node, "status", "daemonEndpoints", "kubeletEndpoint").get("Port") or 0
        if not host or not port:
            raise errors.internal(f"node {name} has no address that its logs could be asked at")
        return f"https://{host}:{port}"


class _Following:
    """A log that grows; implements `requests.Feed`."""

    def __init__(self, session: aiohttp.ClientSession, answer: aiohttp.ClientResponse) -> None:
        self._session = session
        self._answer = answer
        self._task: asyncio.Task[None] | None = None

    def start(self, sink: Sink) -> None:
        """Pass on what comes."""
        self._task = asyncio.get_running_loop().create_task(self._pass_on(sink), name="pod log")

    def stop(self) -> None:
        """The reader is gone."""
        if self._task is not None:
            self._task.cancel()

    async def _pass_on(self, sink: Sink) -> None:
        try:
            async for chunk in self._answer.content.iter_any():
                sink.write(chunk)
            sink.close()
        except (aiohttp.ClientError, OSError):
            sink.abort()
        finally:
            await self._session.close()
