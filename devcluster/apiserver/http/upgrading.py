# SPDX-License-Identifier: Apache-2.0
"""The answer of another server to an upgrade of a connection.

Only a connection that was answered with 101 may be passed to the client. After any other answer the connection still
speaks HTTP with this server's credentials: a client that got it could send requests in this server's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned

SWITCHING: Final = 101
_MAX_HEAD: Final = 64 << 10
_MAX_BODY: Final = 3 << 20


class BadAnswer(OSError):
    """The other server's answer is not HTTP, or too large."""


@dataclass(frozen=True, slots=True)
class UpgradeAnswer:
    """The head of an answer."""

    status: int
    head: bytes
    """The bytes as received, with the empty line."""
    headers: Mapping[str, str]
    """Names in lower case."""


async def read_head(reader: asyncio.StreamReader) -> UpgradeAnswer:
    """The head of the answer. Raises `OSError`."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        raise BadAnswer("EOF") from error
    except asyncio.LimitOverrunError as error:
        raise BadAnswer(f"the head of the answer is larger than {_MAX_HEAD} bytes") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    try:
        status = parse_unsigned(parts[1] if len(parts) > 1 else "", field="status", maximum=999)
    except BadInput as error:
        raise BadAnswer(f"the answer is not HTTP: {error}") from error
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    return UpgradeAnswer(status, head, headers)


async def read_body(reader: asyncio.StreamReader, answer: UpgradeAnswer) -> bytes:
    """The body that follows the head of an answer other than 101. Raises `OSError`."""
    try:
        if answer.headers.get("transfer-encoding", "").lower() == "chunked":
            return await _chunks(reader)
        size = parse_unsigned(answer.headers.get("content-length", "0"), field="Content-Length", maximum=_MAX_BODY)
        return await reader.readexactly(size)
    except (BadInput, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BadAnswer(f"cannot read the body of the answer: {error}") from error


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0].strip() or b"x", 16)
        if not 0 <= size <= _MAX_BODY - len(body):
            raise BadAnswer(f"the body of the answer is larger than {_MAX_BODY} bytes")
        chunk = await reader.readexactly(size + 2)
        if not size:
            return bytes(body)
        body += chunk[:-2]
