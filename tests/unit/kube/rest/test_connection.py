# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import gc
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
import trustme

from multikueue.kube.rest.connection import Sessions

_CA = trustme.CA()


@dataclass
class BusyServer:
    """A TLS server in a thread, that does nothing else for a while once it has a request."""

    port: int = 0
    asked: threading.Event = field(default_factory=threading.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request, answer none."""
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        time.sleep(0.2)  # noqa: ASYNC251  (so that it cannot answer the close of a connection at once)
        with suppress(OSError):
            await reader.read()
        writer.close()


@contextmanager
def busy_server() -> Iterator[BusyServer]:
    made, ready = BusyServer(), threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _CA.issue_cert("127.0.0.1").configure_cert(context)
    loop = asyncio.new_event_loop()

    async def start() -> None:
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
        made.port = server.sockets[0].getsockname()[1]
        ready.set()
        try:
            await server.serve_forever()
        finally:
            server.close()

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()

    task = loop.create_task(start())
    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


async def give_up_a_request(server: BusyServer) -> None:
    trusting = ssl.create_default_context()
    _CA.configure_trust(trusting)
    sessions = Sessions(connections=1)

    async def ask() -> None:
        async with sessions.calls.get(f"https://127.0.0.1:{server.port}/", ssl=trusting) as answer:
            await answer.read()

    asking = asyncio.ensure_future(ask())
    await asyncio.to_thread(server.asked.wait)
    asking.cancel()
    with suppress(asyncio.CancelledError, aiohttp.ClientError):
        await asking
    await sessions.close()


def test_no_connection_is_left_open_when_a_request_was_given_up_and_the_server_is_slow() -> None:
    with busy_server() as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(give_up_a_request(server))
        gc.collect()
    assert [str(each.message) for each in caught] == []
