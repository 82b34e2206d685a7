# SPDX-License-Identifier: Apache-2.0
"""Clients that watch a collection and drop what they are sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.bench.apiserver.raw import Address, Line, request


@contextmanager
def watching(address: Address, collection: str, *, version: str, watchers: int) -> Iterator[None]:
    """So many watches of a collection from its resourceVersion `version`, each on a connection of its own."""
    begin = request("GET", f"{collection}?watch=true&resourceVersion={version}")
    lines = [Line(address) for _ in range(watchers)]
    readers = [threading.Thread(target=_drop, args=(line,)) for line in lines]
    try:
        for line in lines:
            line.socket.sendall(begin)
            _began(line.socket.recv(1 << 16))
        for reader in readers:
            reader.start()
        yield
    finally:
        for line in lines:
            line.shut()
        for reader in readers:
            if reader.ident is not None:
                reader.join()


def _began(head: bytes) -> None:
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise RuntimeError(f"the server refused a watch: {head[:300]!r}")


def _drop(line: Line) -> None:
    with suppress(OSError, ValueError):  # it is closed while it reads
        while line.socket.recv(1 << 20):
            continue
