# SPDX-License-Identifier: Apache-2.0
"""Overlays an informer's cache with the controller's own recent writes.

A controller that reads a cache which lags behind its writes would create a pod twice. A write is visible at once, a
later version in the cache replaces it, and it expires if the cache does not show it in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.store import Indexer

_MAX_AGE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Entry:
    version: int
    uid: str
    value: JsonObject
    at: float


class RecentWrites:
    """The objects of an informer, overlaid with recent writes."""

    def __init__(self, informer: Informer, *, clock: Clock, indexer: Indexer | None = None) -> None:
        self._store = informer.store
        self._clock = clock
        self._indexer = indexer
        self._entries: dict[Key, _Entry] = {}
        self._indexed: dict[str, set[Key]] = {}
        self._deleted: dict[str, float] = {}
        self._seen = 0
        informer.add_handler(self._changed)

    def put(self, value: JsonObject) -> None:
        """Record an object that the server stored."""
        metadata = value["metadata"]
        key, version = Key(metadata.get("namespace", ""), metadata["name"]), int(metadata["resourceVersion"])
        if version <= self._seen:
            return
        self._drop(key)
        self._entries[key] = _Entry(version, metadata["uid"], value, self._clock.monotonic())
        for term in self._indexer(value) if self._indexer is not None else ():
            self._indexed.setdefault(term, set()).add(key)

    def mark_deleted(self, uid: str) -> None:
        """Record that the server accepted the deletion of this uid."""
        now = self._clock.monotonic()
        for old in [key for key, at in self._deleted.items() if now - at > _MAX_AGE_SECONDS]:
            del self._deleted[old]
        self._deleted[uid] = now

    def object(self, key: Key) -> JsonObject | None:
        """The latest known version of the object; the caller may change it."""
        entry = self._fresh(key)
        if entry is None:
            found = self._store.object(key)
        else:
            row = self._store.get(key)
            newer = row is not None and row.uid != entry.uid
            found = self._store.object(key) if newer else dict(entry.value)
        if found is not None and found["metadata"]["uid"] in self._deleted:
            metadata = {"deletionTimestamp": format_time(self._clock.now()), **found["metadata"]}
            found = {**found, "metadata": metadata}
        return found

    def objects(self, index: str, value: str) -> list[JsonObject]:
        """The objects with `value` in the index."""
        keys = dict.fromkeys(row.key for row in self._store.list(index, value))
        keys.update(dict.fromkeys(self._indexed.get(value, ())))
        found = [self.object(key) for key in keys]
        return [entry for entry in found if entry is not None and self._belongs(entry, value)]

    def _belongs(self, entry: JsonObject, value: str) -> bool:
        return self._indexer is None or value in tuple(self._indexer(entry))

    def _fresh(self, key: Key) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is not None and self._clock.monotonic() - entry.at > _MAX_AGE_SECONDS:
            self._drop(key)
            return None
        return entry

    def _changed(self, change: Change) -> None:
        row = change.row
        version = int(row.resource_version or 0)
        self._seen = max(self._seen, version)
        entry = self._entries.get(change.key)
        if entry is not None and (version >= entry.version or (change.new is None and row.uid == entry.uid)):
            self._drop(change.key)
        if change.new is None or row.deleting:
            self._deleted.pop(row.uid, None)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        for term in self._indexer(entry.value) if entry is not None and self._indexer is not None else ():
            members = self._indexed.get(term, set())
            members.discard(key)
            if not members:
                self._indexed.pop(term, None)
