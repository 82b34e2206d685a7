# SPDX-License-Identifier: Apache-2.0
"""The data of one cluster in etcd: everything under its prefix, read and written through etcd's JSON gateway."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from devcluster.errors import DevclusterError
from devcluster.providers.binaries.etcd import SOCKET

_PAGE: Final = 200
_PATIENCE: Final = aiohttp.ClientTimeout(total=60.0)
_BYTES_AT_ONCE: Final = 1 << 20
"""Of keys and values in a transaction: etcd refuses requests of more than 1.5 MiB."""
_PUTS_AT_ONCE: Final = 100
"""etcd refuses transactions of more than 128 operations."""


class ClusterStorage:
    """What an API server with this `--etcd-prefix` has stored; keys are without the prefix."""

    __slots__ = ("_folder", "_prefix")

    def __init__(self, *, etcd_folder: Path, prefix: str) -> None:
        self._folder = etcd_folder
        self._prefix = prefix.encode() + b"/"

    async def is_empty(self) -> bool:
        """Whether no API server has ever stored anything here. Raises `DevclusterError` if etcd does not answer."""
        async with self._connected() as session:
            page = await _call(session, "range", {**self._all(self._prefix), "limit": 1, "keys_only": True})
        return not page.get("kvs")

    async def read(self) -> Mapping[bytes, bytes]:
        """Everything, of one moment in each page. Raises `DevclusterError` if etcd does not answer."""
        found: dict[bytes, bytes] = {}
        first, more = self._prefix, True
        async with self._connected() as session:
            while more:
                page = await _call(session, "range", {**self._all(first), "limit": _PAGE})
                for each in page.get("kvs", []):
                    last = b64decode(each["key"])
                    found[last.removeprefix(self._prefix)] = b64decode(each.get("value", ""))
                    first = last + b"\0"
                more = page.get("more", False)
        return found

    async def write(self, entries: Mapping[bytes, bytes]) -> None:
        """Put all entries. Raises `DevclusterError` if etcd does not answer."""
        async with self._connected() as session:
            for puts in self._transactions(entries):
                await _call(session, "txn", {"success": puts})

    def _transactions(self, entries: Mapping[bytes, bytes]) -> Iterator[list[dict[str, Any]]]:
        puts: list[dict[str, Any]] = []
        size = 0
        for key, value in entries.items():
            if puts and (len(puts) == _PUTS_AT_ONCE or size + len(value) > _BYTES_AT_ONCE):
                yield puts
                puts, size = [], 0
            puts.append({"request_put": {"key": _text(self._prefix + key), "value": _text(value)}})
            size += len(key) + len(value)
        if puts:
            yield puts

    def _all(self, first: bytes) -> dict[str, Any]:
        return {"key": _text(first), "range_end": _text(self._prefix[:-1] + bytes([self._prefix[-1] + 1]))}

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiohttp.ClientSession]:
        # The path of a Unix socket has at most 107 bytes; that of a descriptor is short.
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connector = aiohttp.UnixConnector(path=f"/proc/self/fd/{folder}/{SOCKET}")
            async with aiohttp.ClientSession(connector=connector, timeout=_PATIENCE) as session:
                yield session
        finally:
            os.close(folder)


async def _call(session: aiohttp.ClientSession, method: str, request: dict[str, Any]) -> dict[str, Any]:
    try:
        async with session.post(f"http://etcd/v3/kv/{method}", data=orjson.dumps(request)) as answer:
            raw = await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DevclusterError(f"etcd did not answer {method}: {error or type(error).__name__}") from error
    if answer.status != 200:
        raise DevclusterError(f"etcd answered {method} with {answer.status}: {raw[:200].decode(errors='replace')}")
    found: dict[str, Any] = orjson.loads(raw)
    return found


def _text(data: bytes) -> str:
    return b64encode(data).decode()
