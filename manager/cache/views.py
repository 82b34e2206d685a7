# SPDX-License-Identifier: Apache-2.0
"""The view of one resource: an informer's cache with the manager's writes over it, and its subscribers.

A subscriber gets each version of an object at most once and never an older one after a newer one; a subscription
starts with the objects that are there. A subscriber that raises quarantines the object for itself alone. Reads are
cheap: an object is parsed when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import anyio.lowlevel

from multikueue.api.meta import JsonObject
from multikueue.api.resource import KUEUE_GROUP, OWN_GROUP, Resource
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Informer
from multikueue.kube.cache.overlay import WriteOverlay
from multikueue.kube.cache.store import Row, Store
from multikueue.kube.cache.subscribers import Change, Handler, Subscribers
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import watch
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine

__all__ = ["Handler", "View", "completed"]

_GROUPS_WITH_SPEC: Final = frozenset({KUEUE_GROUP, OWN_GROUP})
_BATCH: Final = 50  # objects that are replayed in one turn of the event loop: some 20 ms of the engine


class View:
    """One resource."""

    def __init__(
        self,
        resource: Resource,
        *,
        clock: Clock,
        store: Store | None = None,
        quarantine: Quarantine | None = None,
        has_spec: bool | None = None,
    ) -> None:
        """`has_spec` is whether its objects have a spec; None decides by the group, as for our own kinds."""
        self.resource = resource
        self._has_spec = resource.group in _GROUPS_WITH_SPEC if has_spec is None else has_spec
        self._clock = clock
        self._overlay = WriteOverlay(Store() if store is None else store, clock=clock)
        self._subscribers = Subscribers(
            resource,
            quarantine=quarantine if quarantine is not None else Quarantine(clock=clock),
            lookup=self.get,
        )

    @property
    def store(self) -> Store:
        """What the informer holds, without our own writes."""
        return self._overlay.store

    def follow(self, informer: Informer) -> None:
        """Show what `informer` holds, from now on."""
        self._overlay = WriteOverlay(informer.store, clock=self._clock)
        informer.add_handler(self._on_change)

    def subscribe(self, handler: Handler) -> None:
        """Call `handler` for each change from now on, and now for each object that is here."""
        reader = self._subscribers.add(handler)
        for row in self.rows():
            self._subscribers.call(reader, handler, Change(watch.ADDED, row.key, None, row))

    async def replay(self, handler: Handler, *, reader: str = "") -> None:
        """As `subscribe`, but yields to other tasks in between: a slow handler may need seconds for all objects.

        An object that changes before its turn is reported as it is then; one that is deleted before its turn is not
        reported.
        """
        waiting = dict.fromkeys(row.key for row in self.rows())

        def once(change: Change) -> None:
            if change.key not in waiting:
                handler(change)
                return
            del waiting[change.key]
            if change.new is not None:
                handler(Change(watch.ADDED, change.key, None, change.new))

        reader = self._subscribers.add(once, reader=reader)
        for number, key in enumerate(tuple(waiting), 1):
            row = self.get(key) if key in waiting else None
            if row is not None:
                self._subscribers.call(reader, once, Change(watch.ADDED, key, None, row))
            if number % _BATCH == 0:
                await anyio.lowlevel.checkpoint()

    def call(self, reader: str, handler: Handler, change: Change) -> None:
        """Call `handler` with a change; what it raises quarantines the object for `reader`."""
        self._subscribers.call(reader, handler, change)

    def unsubscribe_all(self) -> None:
        """Call no handler any more; the cache is still updated."""
        self._subscribers.clear()

    def on_write(self, raw: bytes) -> None:
        """Take in the object that the API server answered to a write of ours."""
        self._notify(self._overlay.on_write(raw))

    def on_not_found(self, key: Key) -> None:
        """Take in that the server has no such object: what we wrote of it is dropped."""
        self._notify(self._overlay.on_not_found(key))

    async def verify_writes(self, client: KubeClient) -> None:
        """Ask the server about each write that the informer has not shown for long: its object may be gone.

        Raises `KubeError`; what was not asked about is asked about next time.
        """
        for row in self._overlay.overdue():
            if not await self._read(client, row.key) and self._overlay.holds(row):
                self.on_not_found(row.key)  # and not one that was created meanwhile

    async def refresh(self, client: KubeClient, key: Key) -> None:
        """Take in an object as it is on the server, which this cache may lag behind. Raises `KubeError`."""
        with suppress(NotFound):  # the kind was removed
            await self._read(client, key)

    async def _read(self, client: KubeClient, key: Key) -> bool:
        """Whether the object is there. It is listed by its name: a manager may list all that it caches."""
        named = f"metadata.name={key.name}"
        page = await client.list_page(self.resource, namespace=key.namespace or None, field_selector=named)
        for raw in page.items:
            self.on_write(raw)
        return bool(page.items)

    def get(self, key: Key) -> Row | None:
        """The newest row."""
        return self._overlay.get(key)

    def object(self, key: Key) -> JsonObject | None:
        """The newest object; the caller may change it."""
        row = self.get(key)
        return None if row is None else self.parse(row)

    def parse(self, row: Row) -> JsonObject:
        """The object of a row, complete enough to be read without asking at each step."""
        return completed(row.object(), self.resource, has_spec=self._has_spec)

    def keys(self) -> tuple[Key, ...]:
        """All keys, as of now."""
        return self._overlay.keys()

    def rows(self) -> Iterator[Row]:
        """All rows, each the newest."""
        return self._overlay.rows()

    def indexed(self, index: str, value: str) -> tuple[Key, ...]:
        """The keys that an index holds, or held before a write of ours; none of a kind that is not installed."""
        return self._overlay.indexed(index, value)

    def count(self, index: str, value: str) -> int:
        """How many keys an index holds, or held before a write of ours."""
        return self._overlay.count(index, value)

    def has(self, index: str, value: str, key: Key) -> bool:
        """Whether the newest object of that key has that value in the index; it is not parsed."""
        return self._overlay.has(index, value, key)

    def objects(self, index: str | None = None, value: str = "") -> Iterator[JsonObject]:
        """All objects, or those that an index holds; each the newest."""
        for key in self.keys() if index is None else self.indexed(index, value):
            row = self.get(key)
            if row is not None:
                yield self.parse(row)

    def _on_change(self, change: Change) -> None:
        self._notify(self._overlay.on_change(change))

    def _notify(self, change: Change | None) -> None:
        if change is not None:
            self._subscribers.notify(change)


def completed(obj: JsonObject, resource: Resource, *, has_spec: bool | None = None) -> JsonObject:
    """`obj` with the kind that items of a list lack, and a spec where its schema lets one leave it out."""
    obj.setdefault("apiVersion", resource.api_version)
    obj.setdefault("kind", resource.kind)
    if resource.group in _GROUPS_WITH_SPEC if has_spec is None else has_spec:
        obj.setdefault("spec", {})
    return obj
