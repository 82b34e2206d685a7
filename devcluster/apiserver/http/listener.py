# SPDX-License-Identifier: Apache-2.0
"""An API server on a port, in the caller's event loop: the socket, TLS and the open connections."""

from __future__ import annotations

import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from devcluster.apiserver.http.connection_server import ConnectionServer
from devcluster.apiserver.http.fair_turns import FairTurns
from devcluster.apiserver.http.requests import Reply, Request, User
from devcluster.apiserver.server import ApiServer


@dataclass(frozen=True, slots=True)
class Serving:
    """The serving certificate, and the authority of client certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The TLS context of the server socket."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


class Listener:
    """Serves an `ApiServer` and closes it at the end. An async context manager."""

    def __init__(
        self, api: ApiServer, *, host: str = "127.0.0.1", port: int = 0, serving: Serving | None = None
    ) -> None:
        self.api = api
        api.take_turns(FairTurns())
        self._host = host
        self._port = port
        self._serving = serving
        self._server = ConnectionServer(self)

    @property
    def port(self) -> int:
        """The port that it listens on; 0 before `start` if it was not chosen."""
        return self._port

    @property
    def url(self) -> str:
        """The URL it listens at."""
        return f"{'https' if self._serving else 'http'}://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen."""
        context = self._serving.context() if self._serving is not None else None
        self._port = self._server.start(self._host, self._port, context=context, backlog=512)

    async def stop(self) -> None:
        """Stop listening, end every stream and connection; the objects are kept."""
        for feed in list(self.api.reader.feeds):
            feed.finish()
        await self._server.stop()

    def handle(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        """Pass a request to the API server."""
        return self.api.handle(request)

    def certificate_user(self, certificate: bytes) -> User | None:
        """The user of a client certificate."""
        return self.api.certificate_user(certificate)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        await self.api.close()
