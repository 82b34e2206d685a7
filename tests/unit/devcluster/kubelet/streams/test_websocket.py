# SPDX-License-Identifier: Apache-2.0
"""WebSocket frames as bytes."""

from __future__ import annotations

import pytest

from devcluster.kubelet.streams.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MAX_MESSAGE,
    PING,
    TOO_BIG,
    Message,
    ProtocolBroken,
    WebSocketReader,
    accept_key,
    encode,
)

MASK = b"\x01\x02\x03\x04"


def frame(opcode: int, payload: bytes, *, final: bool = True, masked: bool = True, size: int | None = None) -> bytes:
    """One from a client; `size` is what it says of itself."""
    size = len(payload) if size is None else size
    flag = 0x80 if masked else 0
    if size < 126:
        head = bytes(((0x80 if final else 0) | opcode, flag | size))
    elif size < 1 << 16:
        head = bytes(((0x80 if final else 0) | opcode, flag | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes(((0x80 if final else 0) | opcode, flag | 127)) + size.to_bytes(8, "big")
    hidden = bytes(byte ^ MASK[index % 4] for index, byte in enumerate(payload))
    return head + (MASK if masked else b"") + hidden


def read(data: bytes) -> list[Message]:
    return list(WebSocketReader().feed(data))


def test_the_answer_to_a_key_is_that_of_the_standard() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_message_is_read_whatever_its_size(size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    assert read(frame(BINARY, payload)) == [Message(BINARY, payload)]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_of_the_server_has_its_size(size: int) -> None:
    sent = encode(BINARY, b"x" * size)
    assert sent[0] == 0x80 | BINARY
    assert sent.endswith(b"x" * size)
    assert not sent[1] & 0x80


def test_bytes_may_come_one_by_one_and_messages_in_parts_with_pings_between() -> None:
    sent = frame(BINARY, b"he", final=False) + frame(PING, b"?") + frame(CONTINUATION, b"llo")
    reader = WebSocketReader()
    found = [message for byte in sent for message in reader.feed(bytes([byte]))]
    assert found == [Message(PING, b"?"), Message(BINARY, b"hello")]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        pytest.param(frame(BINARY, b"x", masked=False), "has no mask", id="no mask"),
        pytest.param(frame(CONTINUATION, b"x"), "neither starts", id="nothing to continue"),
        pytest.param(frame(BINARY, b"x", final=False) + frame(BINARY, b"y"), "neither starts", id="two beginnings"),
        pytest.param(frame(CLOSE, b"x" * 126), "control frame", id="a long control frame"),
        pytest.param(frame(PING, b"", final=False), "control frame", id="a control frame in parts"),
        pytest.param(b"\xf2\x80" + MASK, "reserved", id="reserved bits"),
    ],
)
def test_what_is_no_websocket_is_refused(sent: bytes, why: str) -> None:
    with pytest.raises(ProtocolBroken, match=why):
        read(sent)


def test_a_frame_with_a_huge_size_is_refused_before_its_payload() -> None:
    with pytest.raises(ProtocolBroken, match="more than") as refused:
        read(frame(BINARY, b"", size=2**62))
    assert refused.value.code == TOO_BIG


def test_a_message_in_very_many_parts_is_refused() -> None:
    reader = WebSocketReader()
    first = frame(BINARY, b"x" * MAX_MESSAGE, final=False)
    assert list(reader.feed(first)) == []
    with pytest.raises(ProtocolBroken, match="message has more than"):
        list(reader.feed(frame(CONTINUATION, b"x", final=False)))
