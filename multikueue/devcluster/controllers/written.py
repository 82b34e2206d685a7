# SPDX-License-Identifier: Apache-2.0
"""What a controller wrote and its cache has not told it yet.

A controller that decides by a cache that lags behind its own writes makes a pod twice. Promises that what was written
is seen at once, that what the cache learns later wins, and that nothing is believed longer than some seconds on which
the cache never heard a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.kube.informer import Change, Informer
from multikueue.kube.store import Indexer

_BELIEVED_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Entry:
    version: int
    uid: str
    value: JsonObject
    at: float


class Written:
    """The objects of an informer with the controller's own writes laid over them."""

    def __init__(self, informer: Informer, *, clock: Clock, indexer: Indexer | None = None) -> None:
        self._store = informer.store
        self._clock = clock
        self._indexer = indexer
        self._entries: dict[Key, _Entry] = {}
        self._indexed: dict[str, set[Key]] = {}
        self._asked: dict[str, float] = {}
        self._seen = 0
        informer.add_handler(self._changed)

    def put(self, value: JsonObject) -> None:
        """The server stored this."""
        metadata = value["metadata"]
        key, version = Key(metadata.get("namespace", ""), metadata["name"]), int(metadata["resourceVersion"])
        if version <= self._seen:
            return
        self._drop(key)
        self._entries[key] = _Entry(version, metadata["uid"], value, self._clock.monotonic())
        for term in self._indexer(value) if self._indexer is not None else ():
            self._indexed.setdefault(term, set()).add(key)

    def asked_to_go(self, uid: str) -> None:
        """The server accepted to delete this."""
        now = self._clock.monotonic()
        for old in [key for key, at in self._asked.items() if now - at > _BELIEVED_SECONDS]:
            del self._asked[old]
        self._asked[uid] = now

    def object(self, key: Key) -> JsonObject | None:
        """The object as it was last heard of; the caller may change it."""
        entry = self._believed(key)
        if entry is None:
            found = self._store.object(key)
        else:
            row = self._store.get(key)
            newer = row is not None and row.uid != entry.uid
            found = self._store.object(key) if newer else dict(entry.value)
        if found is not None and found["metadata"]["uid"] in self._asked:
            metadata = {"deletionTimestamp": format_time(self._clock.now()), **found["metadata"]}
            found = {**found, "metadata": metadata}
        return found

    def objects(self, index: str, value: str) -> list[JsonObject]:
        """Those that the index holds under `value`."""
        keys = dict.fromkeys(row.key for row in self._store.list(index, value))
        keys.update(dict.fromkeys(self._indexed.get(value, ())))
        found = [self.object(key) for key in keys]
        return [entry for entry in found if entry is not None and self._belongs(entry, value)]

    def _belongs(self, entry: JsonObject, value: str) -> bool:
        return self._indexer is None or value in tuple(self._indexer(entry))

    def _believed(self, key: Key) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is not None and self._clock.monotonic() - entry.at > _BELIEVED_SECONDS:
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
            self._asked.pop(row.uid, None)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        for term in self._indexer(entry.value) if entry is not None and self._indexer is not None else ():
            members = self._indexed.get(term, set())
            members.discard(key)
            if not members:
                self._indexed.pop(term, None)
