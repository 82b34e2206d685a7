# SPDX-License-Identifier: Apache-2.0
"""What a new cluster begins with: the storage of an earlier one with the same definitions.

A real API server takes 3 s of CPU time to start with an empty storage, and as much again to create the definitions of
Kueue, each of which it writes four times. With both in its storage it takes 3 s in all, as after any restart.

The first cluster of a process saves its storage as soon as its definitions are there, before anybody else writes. A
later one gets new uids, so that no two clusters have the same namespace `kube-system`. What an API server writes about
itself is left out: it does so at each start.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import anyio
import orjson

from multikueue.api.meta import JsonObject

_OF_THE_SERVER: Final = (
    b"leases/",
    b"masterleases/",
    b"peerserverleases/",
    b"events/",
    b"configmaps/kube-system/extension-apiserver-authentication",
)
_UID: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

_SAVED: Final[dict[str, Mapping[bytes, bytes]]] = {}
"""Of all providers of this process, by what a template depends on."""


class Storage(Protocol):
    """The data of one cluster; `ClusterStorage` is that in etcd."""

    async def is_empty(self) -> bool:
        """Whether no API server has ever stored anything here."""

    async def read(self) -> Mapping[bytes, bytes]:
        """Everything."""

    async def write(self, entries: Mapping[bytes, bytes]) -> None:
        """Put all entries."""


class Templates:
    """The templates of a provider."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[str, anyio.Lock] = {}

    def of(self, definitions: Sequence[JsonObject], storage: Storage, *, binaries: Path) -> ClusterTemplate:
        """That of clusters with these definitions, for the storage of one of them."""
        text = orjson.dumps(definitions)
        key = hashlib.sha256(str(binaries).encode() + text).hexdigest()
        return ClusterTemplate(key, storage, first=self._first.setdefault(key, anyio.Lock()), definitions=text)


class ClusterTemplate:
    """The template of one cluster; implements `devcluster.cluster.Template`."""

    __slots__ = ("_definitions", "_first", "_key", "_storage")

    def __init__(self, key: str, storage: Storage, *, first: anyio.Lock, definitions: bytes) -> None:
        """`first` is held by the cluster that becomes the template; others wait, since all at once take longer."""
        self._key = key
        self._storage = storage
        self._first = first
        self._definitions = definitions

    @asynccontextmanager
    async def filled(self) -> AsyncIterator[bool]:
        """Fill an empty storage from the template; without one, the storage after the body becomes it.

        False if the definitions must be created, and for a cluster with data of its own, which is left as it is.
        """
        if not await self._storage.is_empty():
            yield False
            return
        async with AsyncExitStack() as stack:
            if self._key not in _SAVED:
                await stack.enter_async_context(self._first)
            if self._key not in _SAVED:
                yield False
                found = await self._storage.read()
                _SAVED[self._key] = {key: found[key] for key in found if not key.startswith(_OF_THE_SERVER)}
                return
        await self._storage.write(with_new_uids(_SAVED[self._key], keep=self._definitions))
        yield True


def with_new_uids(
    entries: Mapping[bytes, bytes], *, keep: bytes, make: Callable[[], bytes] = lambda: str(uuid4()).encode()
) -> Mapping[bytes, bytes]:
    """The entries with new uids: each uid is replaced by the same new one everywhere. Uids in the text `keep` stay.

    All uids have the same length, so that protocol buffers stay valid.
    """
    own = set(_UID.findall(keep))
    new: dict[bytes, bytes] = {}

    def replaced(found: re.Match[bytes]) -> bytes:
        uid = found[0]
        if uid in own:
            return uid
        if uid not in new:
            new[uid] = make()
        return new[uid]

    return {key: _UID.sub(replaced, value) for key, value in entries.items()}
