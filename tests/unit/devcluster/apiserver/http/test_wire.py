# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 byte by byte, through a transport that records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from devcluster.apiserver.http.requests import Answer, Request
from devcluster.apiserver.http.wire import ServerConnection
from tests.support.embedded import Caller, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


class Transport(asyncio.Transport):
    """Records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return bool(self.ended)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "aborted"


class Line:
    """A client's end of one connection."""

    def __init__(self, caller: Caller) -> None:
        self.live: set[ServerConnection] = set()
        self.transport = Transport()
        self.connection = ServerConnection(caller.api, self.live)
        self.connection.connection_made(self.transport)

    def send(self, text: str) -> None:
        self.connection.data_received(text.replace("\n", "\r\n").encode())

    def answers(self) -> Iterator[tuple[int, dict[str, str], str]]:
        rest, self.transport.sent = self.transport.sent.decode(), b""
        while rest:
            head, _, rest = rest.partition("\r\n\r\n")
            first, *lines = head.split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            length = int(headers.get("content-length", "0"))
            yield int(first.split(" ")[1]), headers, rest[:length]
            rest = rest[length:]


@pytest.fixture
def line(admin: Caller) -> Iterator[Line]:
    found = Line(admin)
    yield found
    found.connection.connection_lost(None)
    assert not found.live


def document(answer: tuple[int, dict[str, str], str]) -> Any:
    return json.loads(answer[2])


def post(name: str, *, connection: str = "keep-alive") -> str:
    body = json.dumps(config_map(name))
    head = f"POST {MAPS} HTTP/1.1\nContent-Type: application/json\nContent-Length: {len(body)}\n"
    return f"{head}Connection: {connection}\n\n{body}"


async def test_requests_in_one_piece_are_answered_in_order(line: Line) -> None:
    line.send(post("a") + f"GET {MAPS}/a HTTP/1.1\n\nGET {MAPS}/none HTTP/1.1\n\n")
    assert [status for status, _, _ in line.answers()] == [201, 200, 404]


async def test_a_request_in_many_pieces_is_answered_once_it_is_whole(line: Line) -> None:
    text = post("a").replace("\n", "\r\n").encode()
    for byte in text[:-1]:
        line.connection.data_received(bytes([byte]))
    assert not line.transport.sent
    line.connection.data_received(text[-1:])
    assert [status for status, _, _ in line.answers()] == [201]


async def test_a_body_in_chunks_is_put_together(line: Line) -> None:
    body = json.dumps(config_map("a"))
    line.send(f"POST {MAPS} HTTP/1.1\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n")
    for part in (body[:7], body[7:]):
        line.send(f"{len(part):x};extension=1\n{part}\n")
    assert not line.transport.sent
    line.send("0\n\n")
    assert [status for status, _, _ in line.answers()] == [201]


async def test_each_header_of_a_group_is_one_group_even_with_commas(line: Line) -> None:
    body = json.dumps({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"})
    head = f"Content-Type: application/json\nContent-Length: {len(body)}\nImpersonate-User: joe\n"
    groups = "Impersonate-Group: a,b\nImpersonate-Group: c\nImpersonate-Extra-Scopes: d, e\n"
    line.send(f"POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\n{head}{groups}\n{body}")
    (answer,) = line.answers()
    user = document(answer)["status"]["userInfo"]
    assert user["groups"] == ["a,b", "c", "system:authenticated"]
    assert user["extra"] == {"scopes": ["d, e"]}


async def test_trailers_after_the_last_chunk_are_no_request(line: Line) -> None:
    body = json.dumps(config_map("a"))
    head = f"POST {MAPS} HTTP/1.1\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n"
    line.send(f"{head}{len(body):x}\n{body}\n0\nX-Sum: 1\n\nGET /version HTTP/1.1\n\n")
    assert [status for status, _, _ in line.answers()] == [201, 200]


async def test_a_client_that_expects_100_continue_gets_it_once(line: Line) -> None:
    body = json.dumps(config_map("a"))
    head = f"POST {MAPS} HTTP/1.1\nContent-Type: application/json\nContent-Length: {len(body)}\n"
    line.send(f"{head}Expect: 100-continue\n\n")
    assert line.transport.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    line.transport.sent = b""
    line.send(body[:3])
    assert not line.transport.sent
    line.send(body[3:])
    assert [status for status, _, _ in line.answers()] == [201]


async def test_a_head_request_has_headers_only(line: Line) -> None:
    line.send("HEAD /version HTTP/1.1\n\n")
    assert line.transport.sent.endswith(b"\r\n\r\n")
    assert b"Content-Length: 0" not in line.transport.sent


async def test_a_connection_with_close_is_closed_after_its_answer(line: Line) -> None:
    line.send(post("a", connection="close"))
    assert [status for status, _, _ in line.answers()] == [201]
    assert line.transport.ended == "closed"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("GARBAGE\n\n", 400, id="a line that is no request"),
        pytest.param("GET / HTTP/1.1\nContent-Length: x\n\n", 400, id="a length that is no number"),
        pytest.param("GET / HTTP/1.1\nContent-Length: -5\n\n", 400, id="a negative length"),
        pytest.param("POST / HTTP/1.1\nTransfer-Encoding: chunked\n\nzz\n", 400, id="a chunk without a length"),
        pytest.param("POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n-1\n", 400, id="a chunk of negative length"),
        pytest.param("POST / HTTP/1.1\nContent-Length: 9999999\n\n", 413, id="a body that is too large"),
        pytest.param("POST / HTTP/1.1\nTransfer-Encoding: chunked\n\nffffff\n", 413, id="a chunk that is too large"),
        pytest.param("GET / HTTP/1.1\nX: " + "x" * 70_000, 431, id="a head without end"),
    ],
)
async def test_an_invalid_request_is_refused_and_the_connection_closed(line: Line, text: str, status: int) -> None:
    line.send(text)
    assert [found for found, _, _ in line.answers()] == [status]
    assert line.transport.ended == "closed"


async def test_warnings_are_headers(line: Line) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dat": {}})
    line.send(f"POST {MAPS} HTTP/1.1\nContent-Type: application/json\nContent-Length: {len(body)}\n\n{body}")
    ((status, headers, _),) = line.answers()
    assert (status, headers["warning"]) == (201, '299 - "unknown field \\"dat\\""')


async def test_a_watch_is_chunked_and_ends_with_the_next_request_answered(line: Line, admin: Caller) -> None:
    line.send(f"GET {MAPS}?watch=true HTTP/1.1\n\n")
    line.send("GET /version HTTP/1.1\n\n")  # sent early; answered after the watch
    await admin.create(MAPS, config_map("a"))
    await asyncio.sleep(0)
    head, _, rest = line.transport.sent.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    size, _, chunk = rest.partition(b"\r\n")
    event = json.loads(chunk[: int(size, 16)])
    assert event["type"] == "ADDED"
    line.transport.sent = b""
    for feed in list(admin.api.reader.feeds):
        feed.finish()
    assert line.transport.sent.startswith(b"0\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_a_client_that_disconnects_ends_its_watch(line: Line, admin: Caller) -> None:
    line.send(f"GET {MAPS}?watch=true HTTP/1.1\n\n")
    assert len(admin.api.reader.feeds) == 1
    line.connection.connection_lost(None)
    assert not admin.api.reader.feeds


async def test_a_path_that_is_a_url_is_parsed(line: Line) -> None:
    line.send("GET http://here:1/version HTTP/1.1\n\n")
    ((status, _, _),) = line.answers()
    assert status == 200


class Broken(Exception):
    """An unexpected error of a handler."""


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
async def test_an_unexpected_error_is_an_internal_error(
    line: Line, admin: Caller, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    async def later() -> Answer:
        raise Broken("out of nowhere")

    def handle(request: Request) -> Coroutine[object, object, Answer]:
        if waits:
            return later()
        raise Broken("out of nowhere")

    with monkeypatch.context() as patched:
        patched.setattr(admin.api, "handle", handle)
        line.send(f"GET {MAPS} HTTP/1.1\n\n")
        await asyncio.sleep(0)
    (answer,) = line.answers()
    assert (answer[0], document(answer)["reason"]) == (500, "InternalError")
    assert "out of nowhere" in document(answer)["message"]
    line.send(f"GET {MAPS} HTTP/1.1\n\n")
    assert [status for status, _, _ in line.answers()] == [200]
