# SPDX-License-Identifier: Apache-2.0
"""The objects of one resource as rows of raw bytes.

Owns rows and their indexes. Promises that a stored row is never changed, that indexes are up to date after every
change, and that the garbage collector has almost nothing to do: a row has strings and bytes, never a parsed tree. An
object is parsed for each read, and its bytes may be packed.

Reading a row is the fast path of every watch event: pydantic-core builds only the named fields, so that a 5 KiB object
costs some 20 µs and leaves nothing for the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from sys import intern
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from multikueue.core.keys import Key
from multikueue.kube.cache.packing import unpacked
from multikueue.kube.rest.json_slices import members

NO_LABELS: Final[Mapping[str, str]] = {}
"""Shared by all rows without labels; never changed."""
Indexer = Callable[[dict[str, Any]], Iterable[str]]
"""The values of an object in one index."""
_Terms = str | tuple[str, ...]
"""The same as it is kept: one alone, or any other number of them."""


class Row:
    """One object: its identity, version and bytes."""

    __slots__ = ("_bytes", "_key", "deleting", "generation", "resource_version", "uid")

    def __init__(
        self,
        *,
        key: Key,
        uid: str,
        resource_version: str,
        generation: int,
        deleting: bool,
        raw: bytes,
    ) -> None:
        # The garbage collector untracks a plain tuple of strings; a Key it would traverse each time.
        self._key = (intern(key.namespace), key.name)
        self.uid = uid
        self.resource_version = resource_version
        self.generation = generation
        self.deleting = deleting
        self._bytes = raw

    @property
    def raw(self) -> bytes:
        """The object's bytes, as JSON."""
        return unpacked(self._bytes)

    @raw.setter
    def raw(self, raw: bytes) -> None:
        self._bytes = raw

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels by name, read for each call: few ask; none of an object that could not be read."""
        found: Mapping[str, str] | None = self.object()["metadata"].get("labels") if self._bytes else None
        return found or NO_LABELS

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(*self._key)

    def object(self) -> dict[str, Any]:
        """The object, parsed for each call: the caller may change it."""
        parsed: dict[str, Any] = orjson.loads(self.raw)
        return parsed

    def __repr__(self) -> str:
        return f"Row({self.key}, version {self.resource_version})"


def row_of(parsed: Mapping[str, Any], raw: bytes) -> Row:
    """The row of a parsed object."""
    metadata = parsed["metadata"]
    return Row(
        key=Key(metadata.get("namespace", ""), metadata["name"]),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        raw=raw,
    )


class Store:
    """Rows by key and by the values of the indexers. Written by its informer only.

    An object that an indexer cannot read is stored without index values; `unindexable` is called with it.
    """

    def __init__(
        self,
        indexers: Mapping[str, Indexer] | None = None,
        *,
        unindexable: Callable[[Row, Exception], None] = lambda row, error: None,
    ) -> None:
        self._unindexable = unindexable
        self._rows: dict[tuple[str, ...], Row] = {}  # equal to Keys, see Row
        self._indexers = dict(indexers or {})
        self._indexes = {name: _Index() for name in self._indexers}
        self._values: dict[tuple[str, ...], tuple[_Terms, ...]] = {}
        self._no_terms: tuple[_Terms, ...] = tuple(() for _ in self._indexers)  # as most Jobs have, kept once

    @property
    def indexed(self) -> bool:
        """Whether there are indexes, so that objects are parsed to be stored."""
        return bool(self._indexers)

    def like(self) -> Store:
        """An empty store with the same indexes."""
        return Store(self._indexers)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def keys(self) -> tuple[Key, ...]:
        """All keys."""
        return tuple(Key(*key) for key in self._rows)

    def get(self, key: Key) -> Row | None:
        """The row of that key; None if there is none."""
        return self._rows.get(key)

    def object(self, key: Key) -> dict[str, Any] | None:
        """The object of that key, parsed; None if there is none."""
        row = self._rows.get(key)
        return row.object() if row is not None else None

    def list(self, index: str | None = None, value: str = "") -> list[Row]:
        """All rows, or those with `value` in the index. Raises `KeyError` for an unknown index."""
        if index is None:
            return list(self._rows.values())
        return [self._rows[key] for key in self._indexes[index].keys(value)]

    def count(self, index: str, value: str) -> int:
        """How many objects have `value` in the index. Raises `KeyError` for an unknown index."""
        return len(self._indexes[index].keys(value))

    def has(self, index: str, value: str, key: Key) -> bool:
        """Whether the object of that key has `value` in the index. Raises `KeyError` for an unknown index."""
        return key in self._indexes[index].keys(value)

    def objects(self, index: str | None = None, value: str = "") -> Iterator[dict[str, Any]]:
        """As `list`, parsed one at a time."""
        for row in self.list(index, value):
            yield row.object()

    def put(self, row: Row, parsed: Mapping[str, Any] | None = None) -> Row | None:
        """Store a row; returns the one it replaces. `parsed` saves parsing it for the indexes."""
        key = row._key
        old = self._rows.get(key)
        self._rows[key] = row
        if self._indexers:
            values = self._terms(row, parsed if parsed is not None else row.object())
            before = self._values.get(key)
            if values != before:
                self._unindex(key)
                self._values[key] = values
                for index, terms in zip(self._indexes.values(), values, strict=True):
                    for term in _each(terms):
                        index.add(term, key)
        return old

    def _terms(self, row: Row, parsed: Mapping[str, Any]) -> tuple[_Terms, ...]:
        found = dict(parsed)
        try:
            terms = tuple(
                _kept(indexer(found), index)
                for indexer, index in zip(self._indexers.values(), self._indexes.values(), strict=True)
            )
        except Exception as error:
            self._unindexable(row, error)
            return self._no_terms
        return self._no_terms if terms == self._no_terms else terms

    def remove(self, key: Key) -> Row | None:
        """Remove a row; returns it, None if there was none."""
        self._unindex(key)
        return self._rows.pop(key, None)

    def _unindex(self, key: tuple[str, ...]) -> None:
        for index, terms in zip(self._indexes.values(), self._values.pop(key, ()), strict=False):
            for term in _each(terms):
                index.discard(term, key)


def _kept(values: Iterable[str], index: _Index) -> _Terms:
    # What many objects have is kept once; to intern a value of one object, as an owner's name is, costs its size again.
    found = tuple(intern(value) if value in index else value for value in dict.fromkeys(values))
    return found[0] if len(found) == 1 else found


def _each(terms: _Terms) -> tuple[str, ...]:
    return (terms,) if isinstance(terms, str) else terms


class _Index:
    """The keys of the objects with each value, in the order in which they got it."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        # A value of one object, as an owner's name is, has its key alone: a dict for each is a fifth of a KiB.
        self._keys: dict[str, tuple[str, ...] | dict[tuple[str, ...], None]] = {}

    def __contains__(self, value: str) -> bool:
        return value in self._keys

    def keys(self, value: str) -> Collection[tuple[str, ...]]:
        found = self._keys.get(value)
        if found is None:
            return ()
        return found if isinstance(found, dict) else (found,)

    def add(self, value: str, key: tuple[str, ...]) -> None:
        found = self._keys.get(value)
        if found is None:
            self._keys[value] = key
        elif isinstance(found, dict):
            found[key] = None
        else:
            self._keys[value] = {found: None, key: None}

    def discard(self, value: str, key: tuple[str, ...]) -> None:
        found = self._keys[value]
        if isinstance(found, dict):
            del found[key]
        if found == key or not found:
            del self._keys[value]


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    deletionTimestamp: str


class _Header(TypedDict):
    metadata: _Metadata


_HEADER: Final = TypeAdapter(_Header)


def read_row(raw: bytes) -> Row:
    """The row of an object's bytes."""
    metadata = _metadata(raw)
    return Row(
        key=Key(metadata.get("namespace", ""), metadata["name"]),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        raw=raw,
    )


def read_version(raw: bytes) -> str:
    """The resource version, as of a bookmark."""
    return _metadata(raw).get("resourceVersion", "")


def _metadata(raw: bytes) -> _Metadata:
    try:
        return _HEADER.validate_json(raw)["metadata"]
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        # The object is nested deeper than the parser allows; its metadata need not be.
        metadata = orjson.loads(members(raw).get("metadata", b"null"))
        return _HEADER.validate_python({"metadata": metadata})["metadata"]
