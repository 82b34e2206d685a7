# SPDX-License-Identifier: Apache-2.0
"""The objects of one resource as rows of raw bytes.

Owns rows and their indexes. Promises that nobody changes a row once it is stored, that an index is up to date with
every change, and that the garbage collector has almost nothing to walk: a row holds strings and bytes, never a parsed
tree. An object is parsed when somebody asks for it and is not kept; its bytes may be packed meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from sys import intern
from typing import Any, Final

import orjson

from multikueue.core.keys import Key

NO_LABELS: Final[Mapping[str, str]] = {}
"""Shared by all rows without labels; nobody writes to it."""

Indexer = Callable[[dict[str, Any]], Iterable[str]]
"""The values under which an object is found in one index."""


_PACKED: Final = b"x"  # what zlib begins with, and JSON never


def packed(raw: bytes) -> bytes:
    """Bytes of an object as a row may keep them: less than half, for 3 µs at each look."""
    return zlib.compress(raw, 1)


class Row:
    """One object: its identity, its version, and its bytes."""

    __slots__ = ("_bytes", "_key", "deleting", "generation", "labels", "resource_version", "uid")

    def __init__(
        self,
        *,
        key: Key,
        uid: str,
        resource_version: str,
        generation: int,
        labels: Mapping[str, str],
        deleting: bool,
        raw: bytes,
    ) -> None:
        # The collector forgets a plain tuple of strings at its first look; a Key it would walk for ever.
        self._key = (intern(key.namespace), key.name)
        self.uid = uid
        self.resource_version = resource_version
        self.generation = generation
        self.labels = labels
        self.deleting = deleting
        self._bytes = raw

    @property
    def raw(self) -> bytes:
        """The object's bytes, as JSON."""
        return zlib.decompress(self._bytes) if self._bytes.startswith(_PACKED) else self._bytes

    @raw.setter
    def raw(self, raw: bytes) -> None:
        self._bytes = raw

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(*self._key)

    def object(self) -> dict[str, Any]:
        """The object, parsed anew: the caller may change it."""
        parsed: dict[str, Any] = orjson.loads(self.raw)
        return parsed

    def __repr__(self) -> str:
        return f"Row({self.key}, version {self.resource_version})"


def row_of(parsed: Mapping[str, Any], raw: bytes) -> Row:
    """The row of an object that was just parsed."""
    metadata = parsed["metadata"]
    return Row(
        key=Key(metadata.get("namespace", ""), metadata["name"]),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        labels=metadata.get("labels") or NO_LABELS,
        deleting="deletionTimestamp" in metadata,
        raw=raw,
    )


class Store:
    """Rows by key, and by whatever the given indexers say. Written by its informer only."""

    def __init__(self, indexers: Mapping[str, Indexer] | None = None) -> None:
        self._rows: dict[tuple[str, ...], Row] = {}  # equal to Keys, see Row
        self._indexers = dict(indexers or {})
        self._indexes: dict[str, dict[str, dict[tuple[str, ...], None]]] = {name: {} for name in self._indexers}
        self._values: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}

    @property
    def indexed(self) -> bool:
        """Whether a change has to be parsed to be stored."""
        return bool(self._indexers)

    def like(self) -> Store:
        """An empty store with the same indexes."""
        return Store(self._indexers)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def keys(self) -> tuple[Key, ...]:
        """All keys, as of now."""
        return tuple(Key(*key) for key in self._rows)

    def get(self, key: Key) -> Row | None:
        """The row of that key."""
        return self._rows.get(key)

    def object(self, key: Key) -> dict[str, Any] | None:
        """The object of that key, parsed anew."""
        row = self._rows.get(key)
        return row.object() if row is not None else None

    def list(self, index: str | None = None, value: str = "") -> list[Row]:
        """All rows, or those that the index holds under `value`. Raises `KeyError` for an unknown index."""
        if index is None:
            return list(self._rows.values())
        return [self._rows[key] for key in self._indexes[index].get(value, ())]

    def objects(self, index: str | None = None, value: str = "") -> Iterator[dict[str, Any]]:
        """The same, parsed one at a time."""
        for row in self.list(index, value):
            yield row.object()

    def put(self, row: Row, parsed: Mapping[str, Any] | None = None) -> Row | None:
        """Take a row in; returns the one it replaces. `parsed` saves a parse where there are indexes."""
        key = row._key
        old = self._rows.get(key)
        self._rows[key] = row
        if self._indexers:
            found = dict(parsed) if parsed is not None else row.object()
            # Many objects are found under the same value, which is kept once.
            values = tuple(tuple(map(intern, indexer(found))) for indexer in self._indexers.values())
            before = self._values.get(key)
            if values != before:
                self._unindex(key)
                self._values[key] = values
                for index, terms in zip(self._indexes.values(), values, strict=True):
                    for term in terms:
                        index.setdefault(term, {})[key] = None
        return old

    def remove(self, key: Key) -> Row | None:
        """Forget a row; returns it if it was there."""
        self._unindex(key)
        return self._rows.pop(key, None)

    def _unindex(self, key: tuple[str, ...]) -> None:
        for index, terms in zip(self._indexes.values(), self._values.pop(key, ()), strict=False):
            for term in terms:
                members = index[term]
                del members[key]
                if not members:
                    del index[term]
