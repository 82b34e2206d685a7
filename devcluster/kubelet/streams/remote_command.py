# SPDX-License-Identifier: Apache-2.0
"""exec and attach: the streams of one command, over WebSocket channels or SPDY streams.

Limits: a session ends after `MAX_SECONDS`, at most `MAX_UNREAD` bytes of unread input are buffered, and output waits
for a slow client.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import orjson

from devcluster.apiserver.http.requests import Sink
from devcluster.kubelet.containers.command_result import CommandResult
from devcluster.kubelet.streams import websocket
from devcluster.kubelet.streams.spdy import SpdyConnection
from devcluster.kubelet.streams.upgrade import COMMAND_PROTOCOLS, Upgrade
from devcluster.kubelet.streams.websocket import ProtocolBroken, WebSocketReader
from multikueue.api.meta import JsonObject
from multikueue.core.errors import MultikueueError

log = logging.getLogger(__name__)

MAX_SECONDS: Final = 3600.0
MAX_UNREAD: Final = 4 << 20
_STREAMS_WITHIN: Final = 30.0
_GOODBYE: Final = 5.0
_INPUT, _OUTPUT, _ERRORS, _STATUS, _RESIZE, _END_OF = 0, 1, 2, 3, 4, 255
_END_OF_INPUT: Final = bytes((_INPUT,))
_TYPES: Final = {"stdin": _INPUT, "stdout": _OUTPUT, "stderr": _ERRORS, "error": _STATUS, "resize": _RESIZE}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStreams:
    """The streams that the client requested."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> RequestedStreams:
        """From the query parameters of the API server."""
        tty = query.get("tty") == "1"
        return cls(
            stdin=query.get("input") == "1",
            stdout=query.get("output") == "1",
            stderr=query.get("error") == "1" and not tty,
            tty=tty,
        )

    @property
    def channels(self) -> set[int]:
        """The streams that a SPDY client opens before the command starts."""
        named = {_INPUT: self.stdin, _OUTPUT: self.stdout, _ERRORS: self.stderr, _STATUS: True, _RESIZE: self.tty}
        return {channel for channel, there in named.items() if there}


class StandardInput:
    """The input of the client, in order."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        """Append input. Raises `ProtocolBroken` if too much is unread."""
        self._size += len(data)
        if self._size > MAX_UNREAD:
            raise ProtocolBroken(f"more than {MAX_UNREAD} bytes of input not read", code=websocket.TOO_BIG)
        self._parts.append(data)
        self._news.set()

    def end(self) -> None:
        """End of the input."""
        self._ended = True
        self._news.set()

    async def read(self) -> bytes:
        """The next part; empty at the end."""
        while not self._parts and not self._ended:
            self._news.clear()
            await self._news.wait()
        if not self._parts:
            return b""
        part = self._parts.popleft()
        self._size -= len(part)
        return part


class CommandStreams:
    """The input and output streams of a command."""

    def __init__(self, stdin: StandardInput, write: Callable[[int, bytes], Awaitable[None]]) -> None:
        self.stdin = stdin
        self._write = write

    async def stdout(self, data: bytes) -> None:
        """Write to standard output."""
        await self._write(_OUTPUT, data)

    async def stderr(self, data: bytes) -> None:
        """Write to standard error."""
        await self._write(_ERRORS, data)


RunCommand: TypeAlias = Callable[[CommandStreams], Awaitable[CommandResult]]


class CommandSession(ABC):
    """One command over one upgraded connection; a `requests.Duplex`."""

    def __init__(
        self, upgrade: Upgrade, wanted: RequestedStreams, run: RunCommand, *, ended: Callable[[], None]
    ) -> None:
        self._upgrade = upgrade
        self._wanted = wanted
        self._run = run
        self._on_end = ended
        self._stdin = StandardInput()
        if not wanted.stdin:
            self._stdin.end()
        self._sink: Sink | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    def start(self, sink: Sink) -> None:
        """Answer the upgrade request, then run the command."""
        self._sink = sink
        sink.write(self._upgrade.head)
        self._task = asyncio.get_running_loop().create_task(self._serve(), name="virtual command")
        self._task.add_done_callback(lambda _: self._on_end())

    def receive(self, data: bytes) -> None:
        """Handle data of the client."""
        try:
            if self._sink is not None and self._sink.pending > MAX_UNREAD:
                raise ProtocolBroken("the client does not read its answers", code=websocket.TOO_BIG)
            self._take(data)
        except ProtocolBroken as error:
            log.debug("session closed error=%s", error)
            self._broken(error)
            self.stop()
            if self._sink is not None:
                self._sink.close()

    def stop(self) -> None:
        """Close: the client has disconnected, or the server stops."""
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        assert self._sink is not None
        try:
            async with asyncio.timeout(_STREAMS_WITHIN):
                await self._ready.wait()
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    found = await self._run(CommandStreams(self._stdin, self._print))
            except TimeoutError:
                found = CommandResult(errors=f"command exceeded the limit of {MAX_SECONDS:.0f} seconds\n", code=137)
            except MultikueueError as error:
                found = CommandResult(errors=f"{error}\n", code=1)
            await self._print(_OUTPUT, found.output.encode())
            await self._print(_OUTPUT if self._wanted.tty else _ERRORS, found.errors.encode())
            self._finish(orjson.dumps(command_status(found.code)))
            await asyncio.sleep(self._goodbye)
        except TimeoutError:
            log.debug("client opened no streams in time seconds=%s", _STREAMS_WITHIN)
        finally:
            self._sink.close()

    async def _print(self, channel: int, data: bytes) -> None:
        assert self._sink is not None
        if not data or not (self._wanted.stdout if channel == _OUTPUT else self._wanted.stderr):
            return
        if self._wanted.tty:
            data = data.replace(b"\n", b"\r\n")
        self._write(channel, data)
        await self._sink.drained()

    _goodbye = 0.0

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Process data of the client. Raises `ProtocolBroken`."""

    @abstractmethod
    def _write(self, channel: int, data: bytes) -> None:
        """Send bytes on a channel."""

    @abstractmethod
    def _finish(self, status: bytes) -> None:
        """Send the exit status and close the streams."""

    def _broken(self, error: ProtocolBroken) -> None:
        return


class WebSocketCommand(CommandSession):
    """Commands over WebSocket: the first byte of a message is the channel."""

    def __init__(
        self, upgrade: Upgrade, wanted: RequestedStreams, run: RunCommand, *, ended: Callable[[], None]
    ) -> None:
        super().__init__(upgrade, wanted, run, ended=ended)
        self._reader = WebSocketReader()
        self._ready.set()

    def _take(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            if message.opcode == websocket.CLOSE:
                self._frame(websocket.CLOSE, message.payload[:2])
                self.stop()
            elif message.opcode == websocket.PING:
                self._frame(websocket.PONG, message.payload)
            elif message.opcode in (websocket.BINARY, websocket.TEXT) and message.payload:
                channel, payload = message.payload[0], message.payload[1:]
                if channel == _INPUT and payload and self._wanted.stdin:
                    self._stdin.put(payload)
                elif channel == _END_OF and payload == _END_OF_INPUT and self._upgrade.protocol == COMMAND_PROTOCOLS[0]:
                    self._stdin.end()

    def _write(self, channel: int, data: bytes) -> None:
        self._frame(websocket.BINARY, bytes((channel,)) + data)

    def _finish(self, status: bytes) -> None:
        self._write(_STATUS, status)
        self._frame(websocket.CLOSE, websocket.NORMAL.to_bytes(2, "big"))

    def _broken(self, error: ProtocolBroken) -> None:
        self._frame(websocket.CLOSE, error.code.to_bytes(2, "big") + str(error).encode()[:100])

    def _frame(self, opcode: int, payload: bytes) -> None:
        if self._sink is not None:
            self._sink.write(websocket.encode(opcode, payload))


class SpdyCommand(CommandSession):
    """Commands over SPDY: one stream per channel, with header `streamtype`; a `spdy.Streams`."""

    _goodbye = _GOODBYE

    def __init__(
        self, upgrade: Upgrade, wanted: RequestedStreams, run: RunCommand, *, ended: Callable[[], None]
    ) -> None:
        super().__init__(upgrade, wanted, run, ended=ended)
        self._connection = SpdyConnection(self, send=self._send)
        self._stream_of: dict[int, int] = {}

    def opened(self, stream: int, headers: Mapping[str, str]) -> None:
        """The client opened a stream."""
        channel = _TYPES.get(headers.get("streamtype", "").lower())
        if channel is None or channel in self._stream_of:
            raise ProtocolBroken(f"unexpected stream type {headers.get('streamtype')!r}")
        self._stream_of[channel] = stream
        if set(self._stream_of) >= self._wanted.channels:
            self._ready.set()

    def data(self, stream: int, payload: bytes) -> None:
        """The client sent data on the stream."""
        if stream == self._stream_of.get(_INPUT) and self._wanted.stdin:
            self._stdin.put(payload)

    def ended(self, stream: int) -> None:
        """The client closed its side of the stream."""
        if stream == self._stream_of.get(_INPUT):
            self._stdin.end()

    def reset(self, stream: int) -> None:
        """The client reset the stream."""
        self.ended(stream)

    def _take(self, data: bytes) -> None:
        self._connection.feed(data)

    def _write(self, channel: int, data: bytes) -> None:
        self._connection.write(self._stream_of[channel], data)

    def _finish(self, status: bytes) -> None:
        self._connection.write(self._stream_of[_STATUS], status)
        for stream in self._stream_of.values():
            self._connection.end(stream)

    def _send(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.write(data)


def command_status(code: int) -> JsonObject:
    """The Status object for an exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
