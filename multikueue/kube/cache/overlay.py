# SPDX-License-Identifier: Apache-2.0
"""Read your own writes: the API server's answers to our writes, laid over the rows that an informer has seen.

An informer's store lags behind the writes of its own process. `WriteOverlay` shows the newer of both, so that no
reader acts on an object older than what this process last wrote. Each method that takes something in returns the change
as a reader sees it, or None when there is nothing new to a reader: each version of an object is returned at most once,
and never an older one after a newer one. An entry goes once the store has caught up, and is not shown after a minute,
unless its owner keeps it. An answer that comes late does not bring a deleted object back. An object that was deleted
while no watch ran is in no list and ends with no event: who has readers that count on its end asks the server about
what is `overdue`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.parsing import version_number
from multikueue.kube.cache.store import Row, Store, read_row
from multikueue.kube.cache.subscribers import Change
from multikueue.kube.rest import watch

_ENTRY_SECONDS: Final = 60.0  # an object that was deleted in the gap of a relist would otherwise be seen for ever
_OVERDUE_SECONDS: Final = 30.0
_LATE_SECONDS: Final = 120.0  # longer than any answer takes


class WriteOverlay:
    """The objects of one resource: those of the store, and over them what this process wrote."""

    def __init__(self, store: Store, *, clock: Clock, expires: bool = True) -> None:
        """`store` is an informer's, whose every change has to be given to `on_change`.

        Without `expires` an entry is shown until the store has caught up or `on_not_found`: its owner verifies what is
        overdue, and must not take for gone what a server that is away cannot show.
        """
        self.store = store
        self._clock = clock
        self._expiring = expires
        self._written = store.like()
        self._expires: dict[Key, float] = {}
        self._deleted: dict[str, float] = {}
        """Until when an answer may still show an object that is gone, by its uid; the oldest first."""

    def on_write(self, raw: bytes) -> Change | None:
        """Take in the object that the API server answered to a write."""
        row = read_row(raw)
        if row.uid in self._deleted:
            return None
        old = self.get(row.key)
        if old is not None and old.uid == row.uid and not _newer(row, old):
            if row.key in self._expires and self._written.get(row.key) is old:
                self._expires[row.key] = self._clock.monotonic() + _ENTRY_SECONDS
            return None
        self._written.put(row)
        self._expires[row.key] = self._clock.monotonic() + _ENTRY_SECONDS
        return Change(watch.ADDED if old is None else watch.MODIFIED, row.key, old, row)

    def on_not_found(self, key: Key) -> Change | None:
        """Take in that the API server has no such object: what this process wrote of it is dropped."""
        written = self._written.get(key)
        if written is None:
            return None
        self._drop(key)
        cached = self.store.get(key)
        if cached is None:
            return Change(watch.DELETED, key, written, None)
        return Change(watch.MODIFIED, key, written, cached) if cached.uid != written.uid else None

    def on_change(self, change: Change) -> Change | None:
        """Take in a change of the store."""
        if change.old is not None and (change.new is None or change.new.uid != change.old.uid):
            self._bury(change.old.uid)
        written = self._written.get(change.key)
        if written is None:
            return change
        if change.new is None:
            # The deletion of the object that had this name before ours says nothing about ours.
            if change.old is not None and change.old.uid != written.uid:
                return None
            self._drop(change.key)
            return change
        if change.new.uid == written.uid and not _newer(change.new, written):
            # Returned when it was written; the store has it now, or an older version that comes before it.
            if not _newer(written, change.new):
                self._drop(change.key)
            return None
        self._drop(change.key)
        return Change(watch.MODIFIED, change.key, written, change.new)

    def overdue(self) -> tuple[Row, ...]:
        """What was written long ago, and the store has not caught up with."""
        before = self._clock.monotonic() + _ENTRY_SECONDS - _OVERDUE_SECONDS
        rows = (self._written.get(key) for key, expires in self._expires.items() if expires < before)
        return tuple(row for row in rows if row is not None)

    def holds(self, row: Row) -> bool:
        """Whether this is still what was written last of its object."""
        return self._written.get(row.key) is row

    def get(self, key: Key) -> Row | None:
        """The newest row."""
        cached = self.store.get(key)
        written = self._written.get(key)
        if written is None:
            return cached
        if self._expiring and self._clock.monotonic() > self._expires[key]:
            return cached
        return cached if cached is not None and not _newer(written, cached) else written

    def keys(self) -> tuple[Key, ...]:
        """All keys, as of now."""
        return tuple(dict.fromkeys((*self.store.keys(), *self._written.keys())))

    def rows(self) -> Iterator[Row]:
        """All rows, each the newest."""
        for key in self.keys():
            row = self.get(key)
            if row is not None:
                yield row

    def indexed(self, index: str, value: str) -> tuple[Key, ...]:
        """The keys that an index of the store holds under `value`; none when the store has no indexes.

        Both what was written and what the store has are searched: a key may be found although its newest row is no
        longer of that value, but none is missed.
        """
        if not self.store.indexed:
            return ()
        found = (*self.store.list(index, value), *self._written.list(index, value))
        return tuple(dict.fromkeys(row.key for row in found))

    def count(self, index: str, value: str) -> int:
        """How many keys `indexed` would return, without looking at each."""
        if not self.store.indexed:
            return 0
        written = self._written.list(index, value)
        return self.store.count(index, value) + sum(not self.store.has(index, value, row.key) for row in written)

    def has(self, index: str, value: str, key: Key) -> bool:
        """Whether the newest row of that key has `value` in the index; never when the store has no indexes."""
        if not self.store.indexed:
            return False
        written = self._written.get(key)
        newest = self._written if written is not None and written is self.get(key) else self.store
        return newest.has(index, value, key)

    def _bury(self, uid: str) -> None:
        now = self._clock.monotonic()
        while self._deleted:
            oldest = next(iter(self._deleted))
            if self._deleted[oldest] >= now:
                break
            del self._deleted[oldest]
        self._deleted.setdefault(uid, now + _LATE_SECONDS)

    def _drop(self, key: Key) -> None:
        self._written.remove(key)
        del self._expires[key]


def _newer(row: Row, other: Row) -> bool:
    """Whether `row` is a later version than `other`; versions of one resource are ordered since Kubernetes 1.35."""
    versions = version_number(row.resource_version), version_number(other.resource_version)
    return versions[0] > versions[1] if all(versions) else row.resource_version != other.resource_version
