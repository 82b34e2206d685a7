# SPDX-License-Identifier: Apache-2.0
"""What a network and a busy server do to a client, on demand.

Owns two proxies in front of a real API server. `TcpProxy` passes bytes, so TLS stays end to end: it can cut every
connection, swallow what comes (a half-open link), or refuse. `HttpProxy` passes requests: it can answer in the server's
place, or late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.tls import TlsSource


class TcpProxy:
    """Relays connections to `target` until it is given a fault."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_refusing = False
        self.port = 0

    @property
    def url(self) -> str:
        """The address to connect to instead of the target's."""
        return f"https://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; on the same port as before after a `refuse`."""
        self._is_refusing = False
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Close the port and every connection, as a server that is gone."""
        self._is_refusing = True
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Go on accepting, and deliver nothing in either direction."""
        self._flowing.clear()

    def flow(self) -> None:
        """Deliver again, also what was held back."""
        self._flowing.set()

    async def close(self) -> None:
        """End the proxy and wait for its tasks."""
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._join(reader, writer)
        except asyncio.CancelledError:
            return  # by `close`; the server would log a task that ends so

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        if self._is_refusing:  # since it was accepted: `cut` did not know it yet
            for end in ends:
                end.transport.abort()
            return
        self._writers |= ends
        try:
            pumps = [
                asyncio.create_task(self._pump(reader, far_writer)),
                asyncio.create_task(self._pump(far_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def tcp_proxy(target: str) -> AsyncIterator[TcpProxy]:
    """A `TcpProxy` that is closed at the end."""
    proxy = TcpProxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class HttpProxy:
    """Passes requests on to the real server unless `fault` answers them."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self.fault: Fault | None = None
        self.passed = 0
        self.url = ""

    def config(self) -> ClusterConfig:
        """How to reach the proxy; it has the identity of the config it was made with."""
        return ClusterConfig(name="faulty", server=self.url, tls=TlsSource())

    async def handle(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        """One request."""
        if self.fault is not None and (instead := await self.fault(request)) is not None:
            return instead
        self.passed += 1
        headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        async with session.request(
            request.method,
            self._config.server + request.path_qs,
            data=await request.read(),
            headers=headers,
            ssl=self._config.tls.context(),
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response


@asynccontextmanager
async def http_proxy(config: ClusterConfig) -> AsyncIterator[HttpProxy]:
    """An `HttpProxy` that is closed at the end."""
    proxy = HttpProxy(config)
    async with aiohttp.ClientSession() as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            return await proxy.handle(request, session)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield proxy
        finally:
            await runner.cleanup()
