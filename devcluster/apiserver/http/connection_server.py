# SPDX-License-Identifier: Apache-2.0
"""A port whose connections have all ended when it has stopped, those that are still in their TLS handshake too.

A server of asyncio knows neither a connection in its handshake nor one that it accepted in the turn in which it is
closed: both would stay open until the other side gives up. So connections are accepted here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from functools import partial
from typing import Final

import anyio

from devcluster.apiserver.http.wire import Handler, ServerConnection

_LOG: Final = logging.getLogger(__name__)
_CLOSE_LOOKS: Final = 100
"""How often it looks, each 10 ms, whether the TLS shutdown of open connections has ended, before it cuts them."""
_ACCEPT_AGAIN_SECONDS: Final = 1.0
"""How long no connection is accepted after one could not be: the process has no more file descriptors."""


class ConnectionServer:
    """Accepts connections and gives their requests to a handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._context: ssl.SSLContext | None = None
        self._listening: socket.socket | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._open: set[ServerConnection] = set()

    def start(self, host: str, port: int, *, context: ssl.SSLContext | None, backlog: int) -> int:
        """Listen; returns the port, which the kernel chooses for 0. Raises `OSError`."""
        self._context = context
        self._listening = socket.create_server((host, port), backlog=backlog)
        self._listening.setblocking(False)
        self._accept_later()
        return int(self._listening.getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close every connection. A cancellation waits until that is done."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        asyncio.get_running_loop().remove_reader(listening)
        listening.close()
        with anyio.CancelScope(shield=True):
            for handshake in (handshakes := tuple(self._handshakes)):
                handshake.cancel()
            await asyncio.gather(*handshakes, return_exceptions=True)
            for connection in tuple(self._open):
                connection.finish()
            for _ in range(_CLOSE_LOOKS):
                if not self._open:
                    break
                await asyncio.sleep(0.01)
            for connection in tuple(self._open):
                connection.abort()
            await asyncio.sleep(0)  # sockets close in the next turn of the loop

    def _accept_later(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                _LOG.warning("cannot accept a connection reason=%s", error)
                loop.remove_reader(listening)
                loop.call_later(_ACCEPT_AGAIN_SECONDS, self._accept_later)
                return
            accepted.setblocking(False)
            task = loop.create_task(self._serve(accepted), name="tls-handshake")
            self._handshakes.add(task)
            task.add_done_callback(partial(self._accepted, accepted))

    async def _serve(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._connection, accepted, ssl=self._context)
        except OSError as error:  # there is no connection to answer on
            _LOG.debug("TLS handshake failed reason=%s", error)

    def _accepted(self, accepted: socket.socket, handshake: asyncio.Task[None]) -> None:
        self._handshakes.discard(handshake)
        if handshake.cancelled():
            accepted.close()  # a task that is cancelled before its first step has not closed it

    def _connection(self) -> ServerConnection:
        return ServerConnection(self._handler, self._open)
