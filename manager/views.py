# SPDX-License-Identifier: Apache-2.0
"""What the manager sees of one resource: the informer's cache, and over it the answers to our own writes.

Owns the overlay that keeps a reconciler from acting on an object older than its own last write, and the fan-out of
changes to those who subscribed. Promises that a subscriber sees each version of an object at most once and never an
older one after a newer one; that a subscription replays what is there; that an overlay entry goes as soon as the
cache has caught up; and that no late answer brings back what was deleted. Reads are cheap: an object is parsed when it
is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import anyio.lowlevel

from multikueue.api.meta import JsonObject
from multikueue.api.resource import JOBS, KUEUE_GROUP, OWN_GROUP, Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube import watch
from multikueue.kube.header import read_row
from multikueue.kube.informer import Change, Informer
from multikueue.kube.store import Row, Store

Handler = Callable[[Change], None]

_GROUPS_WITH_SPEC: Final = frozenset({KUEUE_GROUP, OWN_GROUP, JOBS.group})
_BATCH: Final = 50  # objects that are told of in one turn of the event loop: some 20 ms of the engine
_OVERLAY_SECONDS: Final = 60.0  # an object that was deleted in the gap of a relist would otherwise be seen for ever
_LATE_SECONDS: Final = 120.0  # longer than any answer takes


class View:
    """One resource."""

    def __init__(self, resource: Resource, *, clock: Clock, store: Store | None = None) -> None:
        self.resource = resource
        self.store = Store() if store is None else store
        self._clock = clock
        self._own = self.store.like()
        self._own_until: dict[Key, float] = {}
        self._deleted: dict[str, float] = {}
        """Until when an answer may still tell of an object that is gone, by its uid; the oldest first."""
        self._handlers: list[Handler] = []

    def follow(self, informer: Informer) -> None:
        """Show what `informer` holds, from now on."""
        self.store = informer.store
        self._own = self.store.like()
        self._own_until.clear()
        informer.add_handler(self._changed)

    def subscribe(self, handler: Handler) -> None:
        """Call `handler` for each change from now on, and now for each object that is here."""
        self._handlers.append(handler)
        for row in self.rows():
            handler(Change(watch.ADDED, row.key, None, row))

    async def replay(self, handler: Handler) -> None:
        """As `subscribe`, but others get a turn in between: a handler that thinks may need seconds for all of them.

        What changes before its turn is told as it is then; what goes before its turn is not told of.
        """
        waiting = dict.fromkeys(row.key for row in self.rows())

        def tell(change: Change) -> None:
            if change.key not in waiting:
                handler(change)
                return
            del waiting[change.key]
            if change.new is not None:
                handler(Change(watch.ADDED, change.key, None, change.new))

        self._handlers.append(tell)
        for number, key in enumerate(tuple(waiting), 1):
            row = self.get(key) if key in waiting else None
            if row is not None:
                tell(Change(watch.ADDED, key, None, row))
            if number % _BATCH == 0:
                await anyio.lowlevel.checkpoint()

    def unsubscribe_all(self) -> None:
        """Nobody is told any more; the cache goes on."""
        self._handlers.clear()

    def observe(self, raw: bytes) -> None:
        """Take in what the server answered to a write of ours."""
        row = read_row(raw)
        if row.uid in self._deleted:
            return
        old = self.get(row.key)
        if old is not None and old.uid == row.uid and not _newer(row, old):
            return
        self._own.put(row)
        self._own_until[row.key] = self._clock.monotonic() + _OVERLAY_SECONDS
        self._tell(Change(watch.ADDED if old is None else watch.MODIFIED, row.key, old, row))

    def gone(self, key: Key) -> None:
        """Take in that the server has no such object: what we wrote of it is not to be seen any more."""
        own = self._own.get(key)
        if own is None:
            return
        self._forget(key)
        cached = self.store.get(key)
        if cached is None:
            self._tell(Change(watch.DELETED, key, own, None))
        elif cached.uid != own.uid:
            self._tell(Change(watch.MODIFIED, key, own, cached))

    def get(self, key: Key) -> Row | None:
        """The newest row known."""
        cached = self.store.get(key)
        own = self._own.get(key)
        if own is None:
            return cached
        if self._clock.monotonic() > self._own_until[key]:
            self._forget(key)
            return cached
        return cached if cached is not None and not _newer(own, cached) else own

    def object(self, key: Key) -> JsonObject | None:
        """The newest object known, parsed anew."""
        row = self.get(key)
        return None if row is None else self.parse(row)

    def parse(self, row: Row) -> JsonObject:
        """The object of a row, complete enough to be read without asking at each step."""
        return completed(row.object(), self.resource)

    def keys(self) -> tuple[Key, ...]:
        """All keys, as of now."""
        return tuple(dict.fromkeys((*self.store.keys(), *self._own.keys())))

    def rows(self) -> Iterator[Row]:
        """All rows, each the newest known."""
        for key in self.keys():
            row = self.get(key)
            if row is not None:
                yield row

    def indexed(self, index: str, value: str) -> tuple[Key, ...]:
        """What an index holds, or held when the cache saw it last; nothing of a kind that is not installed.

        What we wrote ourselves is found before the cache has it: else a change that comes between misses it for ever.
        """
        if not self.store.indexed:
            return ()
        found = (*self.store.list(index, value), *self._own.list(index, value))
        return tuple(dict.fromkeys(row.key for row in found))

    def objects(self, index: str | None = None, value: str = "") -> Iterator[JsonObject]:
        """All objects, or those that an index holds; each the newest known."""
        for key in self.keys() if index is None else self.indexed(index, value):
            row = self.get(key)
            if row is not None:
                yield self.parse(row)

    def _changed(self, change: Change) -> None:
        if change.old is not None and (change.new is None or change.new.uid != change.old.uid):
            self._bury(change.old.uid)
        row = self._own.get(change.key)
        if row is None:
            self._tell(change)
            return
        if change.new is None:
            # The deletion of the object that was there before ours says nothing about ours.
            if change.old is not None and change.old.uid != row.uid:
                return
            self._forget(change.key)
            self._tell(change)
        elif change.new.uid == row.uid and not _newer(change.new, row):
            # Told already when it was written; the cache has it now, or is still on the way there.
            if not _newer(row, change.new):
                self._forget(change.key)
        else:
            self._forget(change.key)
            self._tell(Change(watch.MODIFIED, change.key, row, change.new))

    def _bury(self, uid: str) -> None:
        now = self._clock.monotonic()
        while self._deleted:
            oldest = next(iter(self._deleted))
            if self._deleted[oldest] >= now:
                break
            del self._deleted[oldest]
        self._deleted.setdefault(uid, now + _LATE_SECONDS)

    def _forget(self, key: Key) -> None:
        self._own.remove(key)
        del self._own_until[key]

    def _tell(self, change: Change) -> None:
        for handler in self._handlers:
            handler(change)


def completed(obj: JsonObject, resource: Resource) -> JsonObject:
    """`obj` with the kind that items of a list lack, and a spec where its schema lets one leave it out."""
    obj.setdefault("apiVersion", resource.api_version)
    obj.setdefault("kind", resource.kind)
    if resource.group in _GROUPS_WITH_SPEC:
        obj.setdefault("spec", {})
    return obj


def _newer(row: Row, other: Row) -> bool:
    """Whether `row` is a later version than `other`; versions of one resource are ordered since Kubernetes 1.35."""
    if row.resource_version.isdigit() and other.resource_version.isdigit():
        return int(row.resource_version) > int(other.resource_version)
    return row.resource_version != other.resource_version
