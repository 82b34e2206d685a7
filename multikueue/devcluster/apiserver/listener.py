# SPDX-License-Identifier: Apache-2.0
"""An API server at a port, in the event loop of whoever wants one.

Owns the listening socket, TLS with optional client certificates, and the open connections. An async context manager.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from multikueue.devcluster.apiserver.requests import Reply, Request, User
from multikueue.devcluster.apiserver.server import ApiServer
from multikueue.devcluster.apiserver.wire import Connection, factory


@dataclass(frozen=True, slots=True)
class Serving:
    """The certificate to serve with, and the authority whose client certificates count."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """What a server socket needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


class Listener:
    """Serves an `ApiServer`, which it closes when it is closed."""

    def __init__(
        self, api: ApiServer, *, host: str = "127.0.0.1", port: int = 0, serving: Serving | None = None
    ) -> None:
        self.api = api
        self._host = host
        self._port = port
        self._serving = serving
        self._server: asyncio.Server | None = None
        self._live: set[Connection] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._serving else 'http'}://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen."""
        context = self._serving.context() if self._serving is not None else None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            factory(self, self._live), self._host, self._port, ssl=context, backlog=512
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more, end every stream and connection; the objects stay as they are."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for feed in list(self.api.reader.feeds):
            feed.finish()
        for connection in list(self._live):
            connection.finish()
        for _ in range(100):  # TLS says goodbye before its sockets close
            if not self._live:
                break
            await asyncio.sleep(0.01)
        for connection in list(self._live):
            connection.abort()
        await asyncio.sleep(0)

    def handle(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        """Pass a request on."""
        return self.api.handle(request)

    def certificate_user(self, certificate: bytes) -> User | None:
        """Who a client certificate belongs to."""
        return self.api.certificate_user(certificate)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        await self.api.close()
