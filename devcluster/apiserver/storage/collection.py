# SPDX-License-Identifier: Apache-2.0
"""The objects of one resource in the order of their keys, and the recent changes of them.

Owns the rows, the ring of changes and the watchers. Promises that a list at any resource version that the ring still
holds is exact, that watchers get each change once and in order, and that a change is sent to the watchers before the
next one is made. Resource versions and durability are the store's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from devcluster.apiserver.storage.entry import StoredChange, StoredObject

_HISTORY_EVENTS: Final = 20_000
_HISTORY_BYTES: Final = 24 << 20  # of superseded versions, for slow readers


class Watcher(Protocol):
    """Receives changes."""

    def notify(self, event: StoredChange) -> None:
        """Receive one change. Called within the write, in order; must neither raise nor wait."""


class Compacted(Exception):
    """The requested version is older than the changes that the ring holds."""

    def __init__(self, *, requested: int, oldest: int) -> None:
        super().__init__(f"{requested} ({oldest})")
        self.requested = requested
        self.oldest = oldest


class Collection:
    """All objects of one resource."""

    __slots__ = ("_bytes", "_history", "_keys", "_rows", "_watchers", "oldest", "version")

    def __init__(self, *, version: int) -> None:
        self._rows: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._history: deque[StoredChange] = deque()
        self._bytes = 0
        self._watchers: dict[int, Watcher] = {}
        self.oldest = version
        """The newest version whose later changes are not all in the ring."""
        self.version = version
        """The version of the last change in this collection."""

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> StoredObject | None:
        """The newest version of one object."""
        return self._rows.get(key)

    def get_at(self, key: str, version: int) -> StoredObject | None:
        """One object at an older version. Raises `Compacted`."""
        past = self._past(version)
        return past[key] if key in past else self._rows.get(key)

    def restore(self, entries: Sequence[StoredObject]) -> None:
        """Fill an empty collection with the objects from disk."""
        self._rows = {entry.key: entry for entry in entries}
        self._keys = sorted(self._rows)

    def commit(self, event: StoredChange) -> None:
        """Make a change and notify the watchers."""
        if event.entry is None:
            del self._rows[event.key]
            del self._keys[bisect_left(self._keys, event.key)]
        else:
            if event.old is None:
                insort(self._keys, event.key)
            self._rows[event.key] = event.entry
        self.version = event.version
        self._history.append(event)
        self._bytes += _weight(event)
        while len(self._history) > _HISTORY_EVENTS or self._bytes > _HISTORY_BYTES:
            self._drop()
        if self._watchers:
            for watcher in list(self._watchers.values()):
                watcher.notify(event)

    def amend(self, entry: StoredObject) -> None:
        """Replace an object that is there, without a change that watchers or readers of older versions see."""
        self._rows[entry.key] = entry

    def compact(self, version: int) -> None:
        """Forget all changes up to `version`."""
        while self._history and self._history[0].version <= version:
            self._drop()
        self.oldest = max(self.oldest, version)

    def watch(self, watcher: Watcher) -> None:
        """Notify `watcher` of every change from now on."""
        self._watchers[id(watcher)] = watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Stop notifying `watcher`; does nothing if it does not watch."""
        self._watchers.pop(id(watcher), None)

    @property
    def watchers(self) -> Sequence[Watcher]:
        """The current watchers."""
        return list(self._watchers.values())

    def since(self, version: int) -> list[StoredChange]:
        """All changes after `version`, oldest first. Raises `Compacted`."""
        if version < self.oldest:
            raise Compacted(requested=version, oldest=self.oldest)
        found = []
        for event in reversed(self._history):
            if event.version <= version:
                break
            found.append(event)
        found.reverse()
        return found

    def entries(self, *, prefix: str = "", after: str = "", at: int | None = None) -> Iterator[StoredObject]:
        """The objects whose keys begin with `prefix` and follow `after`, in order, as they were at version `at`.

        Raises `Compacted` before the first one if the ring does not go back to `at`.
        """
        past = self._past(at)
        start = bisect_left(self._keys, max(prefix, after))
        keys: Sequence[str] = self._keys
        if past:
            extra = [key for key, entry in past.items() if entry is not None and key not in self._rows]
            if extra:
                keys = sorted([*self._keys, *extra])
                start = bisect_left(keys, max(prefix, after))
        for index in range(start, len(keys)):
            key = keys[index]
            if not key.startswith(prefix):
                return
            if key == after:
                continue
            entry = past[key] if key in past else self._rows[key]
            if entry is not None:
                yield entry

    def count(self, *, prefix: str = "", after: str = "") -> int:
        """The number of objects that follow `after` now, for `remainingItemCount`."""
        start = bisect_left(self._keys, max(prefix, after))
        if start < len(self._keys) and self._keys[start] == after:
            start += 1
        end = bisect_left(self._keys, prefix + "\U0010ffff") if prefix else len(self._keys)
        return max(0, end - start)

    def _past(self, at: int | None) -> dict[str, StoredObject | None]:
        if at is None or at >= self.version:
            return {}
        return {event.key: event.old for event in reversed(self.since(at))}

    def _drop(self) -> None:
        event = self._history.popleft()
        self._bytes -= _weight(event)
        self.oldest = max(self.oldest, event.version)


def _weight(event: StoredChange) -> int:
    return len(event.old.raw) if event.old is not None else 0
