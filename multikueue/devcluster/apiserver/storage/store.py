# SPDX-License-Identifier: Apache-2.0
"""The store: every resource's collection under one line of resource versions.

Owns versions and the order of writes. Promises that a write is kept by the journal before anybody hears of it, that
versions grow by one with each write, and that an object's bytes say the version they were written at. Only the event
loop's thread writes, and a write has no await in it, so there are no locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.storage.collection import Collection
from multikueue.devcluster.apiserver.storage.entry import Entry, Event


class Journal(Protocol):
    """What keeps writes beyond the process."""

    def load(self) -> tuple[int, Iterator[tuple[str, Entry]]]:
        """The last version written, and every object with its collection's name."""

    def put(self, collection: str, entry: Entry) -> None:
        """Keep an object; it is kept when this returns."""

    def remove(self, collection: str, key: str, version: int) -> None:
        """Keep a removal; it is kept when this returns."""

    def close(self) -> None:
        """Give back what is open."""


class Memory:
    """Keeps nothing."""

    def load(self) -> tuple[int, Iterator[tuple[str, Entry]]]:
        """Nothing."""
        return 0, iter(())

    def put(self, collection: str, entry: Entry) -> None:
        """The collection has it already."""

    def remove(self, collection: str, key: str, version: int) -> None:
        """The collection has forgotten it already."""

    def close(self) -> None:
        """Nothing is open."""


class Store:
    """All objects of a cluster."""

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal if journal is not None else Memory()
        self._collections: dict[str, Collection] = {}
        self._listeners: list[Callable[[str, Event], None]] = []
        last, rows = self._journal.load()
        self.version = max(last, 1)
        """The version of the newest write."""
        restored: dict[str, list[Entry]] = {}
        for name, entry in rows:
            restored.setdefault(name, []).append(entry)
        for name, entries in restored.items():
            self.collection(name).restore(entries)

    def collection(self, name: str) -> Collection:
        """The collection of that name; made when it is first asked for."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(version=self.version)
        return found

    @property
    def names(self) -> list[str]:
        """The names of all collections."""
        return list(self._collections)

    def listen(self, listener: Callable[[str, Event], None]) -> None:
        """Call `listener` with every change of every collection, within the write, after the watchers."""
        self._listeners.append(listener)

    def put(self, collection: str, key: str, value: JsonObject) -> Entry:
        """Write an object; its `metadata.resourceVersion` is set."""
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        entry = Entry(key=key, version=self.version, raw=_exact(documents.dump_object(value)))
        self._journal.put(collection, entry)
        rows = self.collection(collection)
        self._tell(collection, rows, Event(key=key, version=self.version, old=rows.get(key), entry=entry))
        return entry

    def remove(self, collection: str, key: str, last: JsonObject | None = None) -> Event:
        """Remove an object that is there; `last` is what watchers see of it. Raises `KeyError`."""
        rows = self.collection(collection)
        old = rows.get(key)
        if old is None:
            raise KeyError(key)
        self.version += 1
        value = old.parse() if last is None else last
        value["metadata"]["resourceVersion"] = str(self.version)
        self._journal.remove(collection, key, self.version)
        event = Event(key=key, version=self.version, old=old, entry=None, last=_exact(documents.dump_object(value)))
        self._tell(collection, rows, event)
        return event

    def drop(self, collection: str) -> None:
        """Forget a collection that has become empty, such as that of a removed definition."""
        self._collections.pop(collection, None)

    def compact(self) -> None:
        """Forget the history of every collection: readers of old versions get 410."""
        for rows in self._collections.values():
            rows.compact(self.version)

    def close(self) -> None:
        """Give back what the journal holds."""
        self._journal.close()

    def _tell(self, collection: str, rows: Collection, event: Event) -> None:
        rows.commit(event)
        for listener in self._listeners:
            listener(collection, event)
        event.forget()  # the history keeps it for long, and seldom needs more than its bytes


def _exact(raw: bytes) -> bytes:
    """The same bytes without the room that the encoder left behind them, which is kept as long as they are."""
    return bytes(memoryview(raw))
