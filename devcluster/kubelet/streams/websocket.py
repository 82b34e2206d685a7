# SPDX-License-Identifier: Apache-2.0
"""The server side of WebSocket (RFC 6455) as bytes in and messages out; no sockets.

A message of more than `MAX_MESSAGE` bytes, a frame without a mask, and frames out of order raise `ProtocolBroken` with
the close code for the client.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from multikueue.core.errors import MultikueueError

MAX_MESSAGE: Final = 1 << 20
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_ERROR, TOO_BIG = 1000, 1002, 1009
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_CONTROL: Final = 125


class ProtocolBroken(MultikueueError):
    """The client violates the protocol; `code` is the WebSocket close code."""

    def __init__(self, message: str, *, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Message:
    """A complete message; `opcode` is TEXT, BINARY, CLOSE, PING or PONG."""

    opcode: int
    payload: bytes


def accept_key(key: str) -> str:
    """The Sec-WebSocket-Accept for the client's Sec-WebSocket-Key."""
    return b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def encode(opcode: int, payload: bytes) -> bytes:
    """One frame from the server."""
    size = len(payload)
    if size <= _MAX_CONTROL:
        head = bytes((0x80 | opcode, size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")
    return head + payload


class WebSocketReader:
    """Assembles the frames of one client to messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opcode: int | None = None
        self._parts = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages completed by this data. Raises `ProtocolBroken`."""
        self._buffer += data
        while (frame := self._frame()) is not None:
            final, opcode, payload = frame
            if opcode >= CLOSE:
                if not final or len(payload) > _MAX_CONTROL:
                    raise ProtocolBroken("control frame is too long or fragmented")
                yield Message(opcode, payload)
                continue
            if (opcode == CONTINUATION) is (self._opcode is None):
                raise ProtocolBroken("frame neither starts nor continues a message")
            self._opcode = opcode if self._opcode is None else self._opcode
            self._parts += payload
            if len(self._parts) > MAX_MESSAGE:
                raise ProtocolBroken(f"message has more than {MAX_MESSAGE} bytes", code=TOO_BIG)
            if final:
                message = Message(self._opcode, bytes(self._parts))
                self._opcode = None
                self._parts.clear()
                yield message

    def _frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        if first & 0x70:
            raise ProtocolBroken("frame has reserved bits")
        if not second & 0x80:
            raise ProtocolBroken("frame has no mask")
        size, start = second & 0x7F, 2
        if size >= 126:
            start += 2 if size == 126 else 8
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if size > MAX_MESSAGE:
            raise ProtocolBroken(f"frame has {size} bytes, more than {MAX_MESSAGE}", code=TOO_BIG)
        end = start + 4 + size
        if len(buffer) < end:
            return None
        mask = bytes(buffer[start : start + 4])
        payload = _unmask(bytes(buffer[start + 4 : end]), mask)
        del buffer[:end]
        return bool(first & 0x80), first & 0x0F, payload


def _unmask(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
