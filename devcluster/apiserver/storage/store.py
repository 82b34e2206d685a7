# SPDX-License-Identifier: Apache-2.0
"""The store: the collections of all resources, with one sequence of resource versions.

Promises that a write is in the journal before a watcher gets it, that the version grows by one with each write, and
that the stored bytes hold the version they were written at. Only the event loop's thread writes, and a write has no
await in it, so there are no locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.storage.collection import Collection
from devcluster.apiserver.storage.entry import StoredChange, StoredObject


class WriteJournal(Protocol):
    """Keeps writes beyond the life of the process."""

    def load(self) -> tuple[int, Iterator[tuple[str, StoredObject]]]:
        """The last version written, and every object with its collection's name."""

    def put(self, collection: str, entry: StoredObject) -> None:
        """Write an object; durable when this returns."""

    def remove(self, collection: str, key: str, version: int) -> None:
        """Write a removal; durable when this returns."""

    def close(self) -> None:
        """Close the file."""


class NoJournal:
    """Keeps nothing; for a server whose objects are in memory only.

    A server that is started again at the same address begins with `first`: above every version that its clients have
    seen, so that their watches get 410 and they list again. A watch from a version of the future would get nothing.
    """

    def __init__(self, *, first: int = 0) -> None:
        self._first = first

    def load(self) -> tuple[int, Iterator[tuple[str, StoredObject]]]:
        """The version that it begins with, and no objects."""
        return self._first, iter(())

    def put(self, collection: str, entry: StoredObject) -> None:
        """Nothing to do: the collection has the object."""

    def remove(self, collection: str, key: str, version: int) -> None:
        """Nothing to do: the collection has removed the object."""

    def close(self) -> None:
        """Nothing is open."""


class ObjectStore:
    """All objects of a cluster."""

    def __init__(self, journal: WriteJournal | None = None) -> None:
        self._journal = journal if journal is not None else NoJournal()
        self._collections: dict[str, Collection] = {}
        self._listeners: list[Callable[[str, StoredChange], None]] = []
        last, rows = self._journal.load()
        self.version = max(last, 1)
        """The version of the newest write."""
        restored: dict[str, list[StoredObject]] = {}
        for name, entry in rows:
            restored.setdefault(name, []).append(entry)
        for name, entries in restored.items():
            self.collection(name).restore(entries)

    def collection(self, name: str) -> Collection:
        """The collection of that name; created at the first call."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(version=self.version)
        return found

    @property
    def names(self) -> list[str]:
        """The names of all collections."""
        return list(self._collections)

    def listen(self, listener: Callable[[str, StoredChange], None]) -> None:
        """Call `listener` with every change of every collection, within the write, after the watchers."""
        self._listeners.append(listener)

    def put(self, collection: str, key: str, value: JsonObject) -> StoredObject:
        """Write an object; its `metadata.resourceVersion` is set."""
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        entry = StoredObject(key=key, version=self.version, raw=_exact(documents.dump_object(value)))
        self._journal.put(collection, entry)
        rows = self.collection(collection)
        self._notify(collection, rows, StoredChange(key=key, version=self.version, old=rows.get(key), entry=entry))
        return entry

    def amend(self, collection: str, key: str, value: JsonObject) -> None:
        """Replace an object under its version, which no watcher sees: what readers of the stored object get.

        Raises `KeyError`.
        """
        rows = self.collection(collection)
        old = rows.get(key)
        if old is None:
            raise KeyError(key)
        entry = StoredObject(key=key, version=old.version, raw=_exact(documents.dump_object(value)))
        self._journal.put(collection, entry)
        rows.amend(entry)

    def remove(self, collection: str, key: str, last: JsonObject | None = None) -> StoredChange:
        """Remove an object that is there; `last` is what watchers see of it. Raises `KeyError`."""
        rows = self.collection(collection)
        old = rows.get(key)
        if old is None:
            raise KeyError(key)
        self.version += 1
        value = old.parse() if last is None else last
        value["metadata"]["resourceVersion"] = str(self.version)
        self._journal.remove(collection, key, self.version)
        event = StoredChange(
            key=key, version=self.version, old=old, entry=None, last=_exact(documents.dump_object(value))
        )
        self._notify(collection, rows, event)
        return event

    def drop(self, collection: str) -> None:
        """Forget an empty collection, such as that of a removed definition."""
        self._collections.pop(collection, None)

    def compact(self) -> None:
        """Forget the history of every collection; readers of old versions get 410."""
        for rows in self._collections.values():
            rows.compact(self.version)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _notify(self, collection: str, rows: Collection, event: StoredChange) -> None:
        rows.commit(event)
        for listener in self._listeners:
            listener(collection, event)
        event.forget()  # the history seldom needs more than the bytes


def _exact(raw: bytes) -> bytes:
    """The same bytes in a buffer of their size; the encoder's is larger and would be kept with them."""
    return bytes(memoryview(raw))
