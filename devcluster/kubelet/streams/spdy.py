# SPDX-License-Identifier: Apache-2.0
"""The server side of SPDY/3.1 as bytes in and out, as far as Kubernetes clients use it; no sockets.

Supports streams opened by the client, their headers and data, half-closing, resets and pings. Not supported, as those
clients do not use it: flow control, settings, streams opened by the server. The sizes of frames and of compressed and
uncompressed header blocks, and the number of streams are limited; exceeding a limit raises `ProtocolBroken`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from devcluster.kubelet.streams.websocket import ProtocolBroken

MAX_FRAME: Final = 1 << 20
_MAX_HEADERS: Final = 64 << 10
_MAX_STREAMS: Final = 256
_CHUNK: Final = 32 << 10
_VERSION: Final = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN: Final = 0x01
_CONTROL: Final = 0x80000000
_ID: Final = 0x7FFFFFFF
_REFUSED_STREAM: Final = 3

# The header compression dictionary of SPDY/3: entries with length prefixes.
_ENTRIES: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie "
    "keep-alive origin"
)
_TAIL: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Au"
    "thoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidd"
    "en404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr Ma"
    "y Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,imag"
    "e/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicpri"
    "vatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    entries = (entry.replace("_", " ").encode() for entry in _ENTRIES.split(" "))
    return b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries) + _TAIL.encode()


DICTIONARY: Final = _dictionary()


class Streams(Protocol):
    """The callbacks for the client's streams."""

    def opened(self, stream: int, headers: Mapping[str, str]) -> None:
        """The client opened a stream."""

    def data(self, stream: int, payload: bytes) -> None:
        """The client sent data on the stream."""

    def ended(self, stream: int) -> None:
        """The client closed its side of the stream."""

    def reset(self, stream: int) -> None:
        """The client reset the stream."""


class HeaderCodec:
    """Header compression of one connection; blocks must be processed in order."""

    def __init__(self) -> None:
        self._inward = zlib.decompressobj(zdict=DICTIONARY)
        self._outward = zlib.compressobj(zdict=DICTIONARY)

    def read(self, block: bytes) -> dict[str, str]:
        """The headers. Raises `ProtocolBroken`."""
        try:
            raw = self._inward.decompress(block, _MAX_HEADERS)
        except zlib.error as error:
            raise ProtocolBroken(f"invalid header compression: {error}") from error
        if self._inward.unconsumed_tail:
            raise ProtocolBroken(f"header block has more than {_MAX_HEADERS} bytes")
        position = 0

        def take(size: int) -> bytes:
            nonlocal position
            found = raw[position : position + size]
            if len(found) != size:
                raise ProtocolBroken("header block is too short")
            position += size
            return found

        headers: dict[str, str] = {}
        for _ in range(int.from_bytes(take(4), "big")):
            name = take(int.from_bytes(take(4), "big")).decode("latin-1").lower()
            value = take(int.from_bytes(take(4), "big")).decode("latin-1")
            headers[name] = value.replace("\0", ", ")
        return headers

    def write(self, headers: Mapping[str, str]) -> bytes:
        """The compressed block of these headers."""
        raw = len(headers).to_bytes(4, "big")
        for pair in headers.items():
            for text in pair:
                encoded = text.encode("latin-1", "replace")
                raw += len(encoded).to_bytes(4, "big") + encoded
        return self._outward.compress(raw) + self._outward.flush(zlib.Z_SYNC_FLUSH)


class SpdyConnection:
    """One connection; `send` receives the bytes for the client."""

    def __init__(self, streams: Streams, *, send: Callable[[bytes], None]) -> None:
        self._streams = streams
        self._send = send
        self._buffer = bytearray()
        self._headers = HeaderCodec()
        self._open: set[int] = set()
        self._last = 0

    def feed(self, data: bytes) -> None:
        """Process data of the client. Raises `ProtocolBroken`."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first = int.from_bytes(self._buffer[:4], "big")
            flags, size = self._buffer[4], int.from_bytes(self._buffer[5:8], "big")
            if size > MAX_FRAME:
                raise ProtocolBroken(f"frame has {size} bytes, more than {MAX_FRAME}")
            if len(self._buffer) < 8 + size:
                return
            payload = bytes(self._buffer[8 : 8 + size])
            del self._buffer[: 8 + size]
            if first & _CONTROL:
                self._control(first, flags, payload)
            else:
                self._data(first & _ID, flags, payload)

    def write(self, stream: int, payload: bytes) -> None:
        """Send data on a stream."""
        for start in range(0, len(payload), _CHUNK):
            part = payload[start : start + _CHUNK]
            self._send(stream.to_bytes(4, "big") + len(part).to_bytes(4, "big") + part)

    def end(self, stream: int) -> None:
        """Close the server's side of a stream."""
        self._send(stream.to_bytes(4, "big") + bytes((_FIN, 0, 0, 0)))

    def go_away(self) -> None:
        """Announce the end of the connection."""
        self._frame(_GOAWAY, self._last.to_bytes(4, "big") + bytes(4))

    def _frame(self, kind: int, payload: bytes) -> None:
        head = (0x8000 | _VERSION).to_bytes(2, "big") + kind.to_bytes(2, "big")
        self._send(head + len(payload).to_bytes(4, "big") + payload)

    def _control(self, first: int, flags: int, payload: bytes) -> None:
        if (first >> 16) & 0x7FFF != _VERSION:
            raise ProtocolBroken(f"SPDY version is {(first >> 16) & 0x7FFF}, expected {_VERSION}")
        match first & 0xFFFF:
            case kind if kind == _SYN_STREAM:
                self._begin(flags, payload)
            case kind if kind == _RST_STREAM:
                stream = self._id(payload)
                self._open.discard(stream)
                self._streams.reset(stream)
            case kind if kind == _PING:
                self._frame(_PING, payload)
            case _:
                return  # settings, window updates and late headers are ignored

    def _begin(self, flags: int, payload: bytes) -> None:
        stream = self._id(payload)
        if stream % 2 == 0 or stream <= self._last:
            raise ProtocolBroken(f"stream id {stream} after {self._last}")
        headers = self._headers.read(payload[10:])  # always, as the compression state spans all blocks
        self._last = stream
        if len(self._open) >= _MAX_STREAMS:
            self._frame(_RST_STREAM, stream.to_bytes(4, "big") + _REFUSED_STREAM.to_bytes(4, "big"))
            return
        self._open.add(stream)
        self._frame(_SYN_REPLY, stream.to_bytes(4, "big") + self._headers.write({}))
        self._streams.opened(stream, headers)
        if flags & _FIN:
            self._streams.ended(stream)

    def _data(self, stream: int, flags: int, payload: bytes) -> None:
        if stream not in self._open:
            return
        if payload:
            self._streams.data(stream, payload)
        if flags & _FIN:
            self._open.discard(stream)
            self._streams.ended(stream)

    def _id(self, payload: bytes) -> int:
        if len(payload) < 4:
            raise ProtocolBroken("control frame is too short")
        return int.from_bytes(payload[:4], "big") & _ID
