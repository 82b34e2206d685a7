# SPDX-License-Identifier: Apache-2.0
"""An HTTPS server in a separate event loop, so that its connections belong to no test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Thread

from aiohttp import web


@contextmanager
def serving(app: web.Application, context: ssl.SSLContext) -> Iterator[str]:
    """A running one; its address."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="background server")
    thread.start()
    url, stop = asyncio.run_coroutine_threadsafe(_start(app, context), loop).result()
    try:
        yield url
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _start(
    app: web.Application, context: ssl.SSLContext
) -> tuple[str, Callable[[], Coroutine[object, object, None]]]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    # Clients keep their connections open for half a minute.
    listening = await asyncio.get_running_loop().create_server(
        runner.server, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=0.1
    )

    async def stop() -> None:
        listening.close()
        await runner.cleanup()
        await asyncio.sleep(0.3)

    return f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}", stop
