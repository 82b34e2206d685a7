# SPDX-License-Identifier: Apache-2.0
"""SPDY/3.1 frames as bytes; kubectl and a real API server speak with it in tests/component."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import pytest

from devcluster.kubelet.streams.spdy import DICTIONARY, HeaderCodec, SpdyConnection
from devcluster.kubelet.streams.websocket import ProtocolBroken

SYN_STREAM, SYN_REPLY, RST_STREAM, PING = 1, 2, 3, 6


class Told:
    """Keeps what is told of streams."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def opened(self, stream: int, headers: Mapping[str, str]) -> None:
        self.told.append(("opened", stream, dict(headers)))

    def data(self, stream: int, payload: bytes) -> None:
        self.told.append(("data", stream, payload))

    def ended(self, stream: int) -> None:
        self.told.append(("ended", stream))

    def reset(self, stream: int) -> None:
        self.told.append(("reset", stream))


class Client:
    """A client and the server's side of its connection."""

    def __init__(self) -> None:
        self.seen = Told()
        self.sent = bytearray()
        self.codec = HeaderCodec()
        self.server = SpdyConnection(self.seen, send=self.sent.extend)

    def control(self, kind: int, payload: bytes, *, flags: int = 0, version: int = 3) -> bytes:
        head = (0x8000 | version).to_bytes(2, "big") + kind.to_bytes(2, "big")
        return head + bytes([flags]) + len(payload).to_bytes(3, "big") + payload

    def syn(self, stream: int, headers: Mapping[str, str], *, flags: int = 0) -> bytes:
        payload = stream.to_bytes(4, "big") + bytes(6) + self.codec.write(headers)
        return self.control(SYN_STREAM, payload, flags=flags)

    def data(self, stream: int, payload: bytes, *, flags: int = 0) -> bytes:
        return stream.to_bytes(4, "big") + bytes([flags]) + len(payload).to_bytes(3, "big") + payload


def test_the_dictionary_is_that_of_the_standard() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_streams_are_opened_written_to_and_half_closed() -> None:
    client = Client()
    sent = client.syn(1, {"streamType": "stdin"}) + client.syn(3, {"streamType": "error"}, flags=1)
    sent += client.data(1, b"hello") + client.data(1, b"", flags=1) + client.data(1, b"late")
    for byte in sent:
        client.server.feed(bytes([byte]))
    assert client.seen.told == [
        ("opened", 1, {"streamtype": "stdin"}),
        ("opened", 3, {"streamtype": "error"}),
        ("ended", 3),
        ("data", 1, b"hello"),
        ("ended", 1),
    ]
    assert client.sent[:4] == bytes((0x80, 3, 0, SYN_REPLY))


def test_data_of_the_server_is_cut_into_frames_and_ended() -> None:
    client = Client()
    client.server.write(5, b"x" * 100_000)
    client.server.end(5)
    sizes, position = [], 0
    while position < len(client.sent):
        sizes.append(int.from_bytes(client.sent[position + 5 : position + 8], "big"))
        position += 8 + sizes[-1]
    assert sum(sizes) == 100_000
    assert max(sizes) <= 32_768
    assert client.sent[-8:] == bytes((0, 0, 0, 5, 1, 0, 0, 0))


def test_a_ping_comes_back() -> None:
    client = Client()
    client.server.feed(client.control(PING, b"\0\0\0\7"))
    assert bytes(client.sent) == client.control(PING, b"\0\0\0\7")


def test_what_is_not_needed_is_passed_over() -> None:
    client = Client()
    client.server.feed(client.control(4, bytes(12)) + client.control(9, bytes(8)))
    assert client.seen.told == []


def test_a_stream_too_many_is_reset_and_the_others_continue() -> None:
    client = Client()
    for number in range(257):
        client.server.feed(client.syn(2 * number + 1, {"streamtype": "data"}))
    assert len(client.seen.told) == 256
    assert bytes((0x80, 3, 0, RST_STREAM)) in bytes(client.sent)


def test_headers_that_unpack_to_very_much_are_refused() -> None:
    client = Client()
    with pytest.raises(ProtocolBroken, match="header block has more than"):
        client.server.feed(client.syn(1, {"bomb": "0" * 10_000_000}))


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        pytest.param(Client().control(SYN_STREAM, b"\0\0\0\1", version=2), "SPDY version is 2", id="another version"),
        pytest.param(Client().syn(2, {}), "stream id 2", id="a stream of the server"),
        pytest.param(Client().control(SYN_STREAM, b"\0\0"), "too short", id="a short frame"),
        pytest.param(Client().control(SYN_STREAM, b"\0\0\0\1" + bytes(6)), "too short", id="no headers"),
        pytest.param(
            Client().control(SYN_STREAM, b"\0\0\0\1" + bytes(6) + b"junk"), "invalid header compression", id="no zlib"
        ),
        pytest.param(b"\0\0\0\1\0\xff\xff\xff", "frame has 16777215 bytes", id="a huge frame"),
    ],
)
def test_what_is_no_spdy_is_refused(sent: bytes, why: str) -> None:
    with pytest.raises(ProtocolBroken, match=why):
        Client().server.feed(sent)
