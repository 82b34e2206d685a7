# SPDX-License-Identifier: Apache-2.0
"""Port forwarding: connections of a client to programs of one virtual pod.

Over SPDY, directly or inside WebSocket messages, each connection is a pair of streams; over WebSocket channels each
port is a pair of channels. No socket is opened: the program in the pod handles the connection, and a port without a
program is refused with a message.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from devcluster.apiserver.http.requests import Sink
from devcluster.apiserver.http.wire import Handler, ServerConnection
from devcluster.kubelet.pod_network import ConnectionRefused
from devcluster.kubelet.streams import websocket
from devcluster.kubelet.streams.spdy import SpdyConnection
from devcluster.kubelet.streams.upgrade import SPDY, TUNNEL_PREFIX, Upgrade
from devcluster.kubelet.streams.websocket import ProtocolBroken, WebSocketReader
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned

MAX_SECONDS: Final = 4 * 3600.0
MAX_PENDING: Final = 4 << 20
"""The limit of bytes that a client has not read."""
_MAX_PORT: Final = 65_535
_MAX_PORTS: Final = 64

OpenPort = Callable[[int], Handler]
"""The handler of HTTP requests on a port. Raises `ConnectionRefused`."""


class _Inlet(asyncio.Transport):
    """A transport that writes to a stream of the client."""

    def __init__(self, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
        super().__init__()
        self._write = write
        self._close = close
        self._closing = False

    def write(self, data: Any) -> None:
        """Send to the client."""
        if not self._closing:
            self._write(bytes(data))

    def close(self) -> None:
        """Close the stream."""
        if not self._closing:
            self._closing = True
            self._close()

    def abort(self) -> None:
        """Close the stream."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """0, as nothing is buffered."""
        return 0


class PodConnection:
    """One connection of a client to a port of the pod."""

    def __init__(self, handler: Handler, *, write: Callable[[bytes], None], closed: Callable[[], None]) -> None:
        self._protocol = ServerConnection(handler, set())
        self._inlet = _Inlet(write, closed)
        self._protocol.connection_made(self._inlet)

    def feed(self, data: bytes) -> None:
        """Handle data of the client."""
        if not self._inlet.is_closing():
            self._protocol.data_received(data)

    def close(self) -> None:
        """Close: the client has disconnected."""
        self._inlet.close()
        self._protocol.connection_lost(None)


class ForwardSession(ABC):
    """One upgraded connection; a `requests.Duplex`."""

    def __init__(self, upgrade: Upgrade, open_port: OpenPort, *, ended: Callable[[], None]) -> None:
        self._upgrade = upgrade
        self.open_port = open_port
        self._on_end = ended
        self._sink: Sink | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, sink: Sink) -> None:
        """Answer the upgrade request."""
        self._sink = sink
        self._timer = asyncio.get_running_loop().call_later(MAX_SECONDS, sink.close)
        sink.write(self._upgrade.head)
        self.begin()

    def receive(self, data: bytes) -> None:
        """Handle data of the client."""
        try:
            if self._sink is not None and self._sink.pending > MAX_PENDING:
                raise ProtocolBroken("the client does not read its answers")
            self.take(data)
        except ProtocolBroken:
            self.stop()
            if self._sink is not None:
                self._sink.close()

    def stop(self) -> None:
        """Close: the client has disconnected, or the server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._on_end()
            self.end_all()

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self._sink is not None and not self._sink.closed:
            self._sink.write(data)

    def close(self) -> None:
        """End the connection."""
        if self._sink is not None:
            self._sink.close()

    def begin(self) -> None:
        """Called after the answer to the upgrade; by default nothing is sent."""
        return

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Process data of the client. Raises `ProtocolBroken`."""

    @abstractmethod
    def end_all(self) -> None:
        """Close the connections to the pod."""


@dataclass(slots=True)
class _Pair:
    """The streams of one connection."""

    port: str
    error: int | None = None
    connection: PodConnection | None = None


class SpdyForward(ForwardSession):
    """Pairs of SPDY streams, directly or inside WebSocket messages; a `spdy.Streams`."""

    def __init__(self, upgrade: Upgrade, open_port: OpenPort, *, ended: Callable[[], None]) -> None:
        super().__init__(upgrade, open_port, ended=ended)
        self._reader = WebSocketReader() if upgrade.kind != SPDY else None
        self._connection = SpdyConnection(self, send=self._send_spdy)
        self._pairs: dict[str, _Pair] = {}
        self._pair_of: dict[int, str] = {}

    def take(self, data: bytes) -> None:
        """Process data of the client."""
        if self._reader is None:
            self._connection.feed(data)
            return
        for message in self._reader.feed(data):
            if message.opcode == websocket.BINARY:
                self._connection.feed(message.payload)
            elif message.opcode == websocket.PING:
                self.send(websocket.encode(websocket.PONG, message.payload))
            elif message.opcode == websocket.CLOSE:
                self.send(websocket.encode(websocket.CLOSE, message.payload[:2]))
                self.close()

    def end_all(self) -> None:
        """Close the connections to the pod."""
        for pair in list(self._pairs.values()):
            if pair.connection is not None:
                pair.connection.close()

    def opened(self, stream: int, headers: Mapping[str, str]) -> None:
        """The client opened a stream; an error stream and a data stream form a connection."""
        kind, request = headers.get("streamtype", ""), headers.get("requestid", "")
        pair = self._pairs.setdefault(request, _Pair(headers.get("port", "")))
        if kind == "error":
            pair.error = stream
        elif kind == "data" and pair.connection is None:
            self._pair_of[stream] = request
            self._connect(pair, stream)
        else:
            raise ProtocolBroken(f"unexpected stream type {kind!r}")

    def data(self, stream: int, payload: bytes) -> None:
        """The client sent data on the stream."""
        pair = self._pairs.get(self._pair_of.get(stream, ""))
        if pair is not None and pair.connection is not None:
            pair.connection.feed(payload)

    def ended(self, stream: int) -> None:
        """The client closed its side of the stream; pending requests are still answered."""

    def reset(self, stream: int) -> None:
        """The client reset the stream."""
        pair = self._pairs.pop(self._pair_of.pop(stream, ""), None)
        if pair is not None and pair.connection is not None:
            pair.connection.close()

    def _connect(self, pair: _Pair, stream: int) -> None:
        def closed() -> None:
            self._connection.end(stream)
            if pair.error is not None:
                self._connection.end(pair.error)
            self._pairs.pop(self._pair_of.pop(stream, ""), None)

        try:
            handler = self.open_port(parse_unsigned(pair.port, field="port", maximum=_MAX_PORT))
        except (ConnectionRefused, BadInput) as error:
            if pair.error is not None:
                self._connection.write(pair.error, f"an error occurred forwarding {pair.port}: {error}".encode())
            closed()
            return
        pair.connection = PodConnection(handler, write=lambda data: self._connection.write(stream, data), closed=closed)

    def _send_spdy(self, data: bytes) -> None:
        self.send(data if self._reader is None else websocket.encode(websocket.BINARY, data))


class ChannelForward(ForwardSession):
    """WebSocket channels, two for each port that the request names: data, then errors."""

    def __init__(
        self, upgrade: Upgrade, open_port: OpenPort, ports: Sequence[int], *, ended: Callable[[], None]
    ) -> None:
        super().__init__(upgrade, open_port, ended=ended)
        self._reader = WebSocketReader()
        self._ports = ports
        self._connections: dict[int, PodConnection] = {}

    def begin(self) -> None:
        """Send the port of each channel, then connect each port."""
        for index, port in enumerate(self._ports):
            for channel in (2 * index, 2 * index + 1):
                self._write(channel, port.to_bytes(2, "little"))
        for index, port in enumerate(self._ports):
            self._connect(2 * index, port)

    def take(self, data: bytes) -> None:
        """Process data of the client."""
        for message in self._reader.feed(data):
            if message.opcode == websocket.BINARY and message.payload:
                connection = self._connections.get(message.payload[0])
                if connection is not None:
                    connection.feed(message.payload[1:])
            elif message.opcode == websocket.PING:
                self.send(websocket.encode(websocket.PONG, message.payload))
            elif message.opcode == websocket.CLOSE:
                self.send(websocket.encode(websocket.CLOSE, message.payload[:2]))
                self.close()

    def end_all(self) -> None:
        """Close the connections to the pod."""
        for connection in list(self._connections.values()):
            connection.close()

    def _connect(self, channel: int, port: int) -> None:
        def closed() -> None:
            self._connections.pop(channel, None)
            if not self._connections:
                self.send(websocket.encode(websocket.CLOSE, websocket.NORMAL.to_bytes(2, "big")))

        try:
            handler = self.open_port(port)
        except ConnectionRefused as error:
            self._write(channel + 1, f"an error occurred forwarding {port}: {error}".encode())
            return
        self._connections[channel] = PodConnection(
            handler, write=lambda data: self._write(channel, data), closed=closed
        )

    def _write(self, channel: int, data: bytes) -> None:
        self.send(websocket.encode(websocket.BINARY, bytes((channel,)) + data))


def ports_of(text: str) -> list[int]:
    """The ports in a request. Raises `BadInput`."""
    found = [parse_unsigned(part, field="port", maximum=_MAX_PORT) for part in text.split(",") if part]
    if not found or len(found) > _MAX_PORTS:
        raise BadInput(f"{len(found)} ports, expected 1 to {_MAX_PORTS}")
    return found


def tunnels(upgrade: Upgrade) -> bool:
    """Whether SPDY was negotiated, directly or inside WebSocket messages."""
    return upgrade.kind == SPDY or upgrade.protocol.startswith(TUNNEL_PREFIX)
