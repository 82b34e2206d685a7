# SPDX-License-Identifier: Apache-2.0
"""The informer: a cache of one resource that follows the API server by list and watch.

Owns the failures between the two: pages over a snapshot that expires, a stream that ends, breaks, stalls or is too old
(410), an unreachable server. Promises that handlers see each change once, after the store has it, that objects
which were deleted between two watches are reported as deleted, and that an unreachable server is retried with a
jittered, growing pause. Handlers are synchronous and cheap: they add keys to queues. An object for which a handler
raises is quarantined for that handler only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Final

import anyio
import anyio.lowlevel
import orjson

from multikueue.api.resource import Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.keys import Key
from multikueue.core.parsing import version_number
from multikueue.kube import errors
from multikueue.kube.cache.store import Indexer, Row, Store, read_row, read_version, row_of
from multikueue.kube.cache.subscribers import Change, Handler, Subscribers
from multikueue.kube.rest import watch
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine

__all__ = ["Change", "Handler", "Informer"]

logger = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=0.25, factor=2.0, cap=30.0, jitter=0.5)
_BATCH: Final = 1000  # objects of a list per turn of the event loop: some 20 ms
_EVENTS_AT_ONCE: Final = 8  # many arrive in one piece, and their handlers would hold up all other tasks
_WATCH_SECONDS: Final = (300.0, 600.0)  # drawn anew each time, so that many watches do not end together


class Informer:
    """Follows one resource, whole or by namespace and selectors.

    `shrink` may reduce each object, which it may change, to the bytes to keep: identity, version and index values are
    read before, labels after.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        indexers: Mapping[str, Indexer] | None = None,
        page_size: int = 500,
        metadata_only: bool = False,
        shrink: Callable[[dict[str, Any]], bytes] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        backoff: Backoff = _BACKOFF,
        quarantine: Quarantine | None = None,
        on_list: Callable[[], None] | None = None,
        on_restored: Callable[[], None] | None = None,
        on_version_too_large: Callable[[], None] | None = None,
    ) -> None:
        """`on_list` is called after each list, once the store has it and handlers were called.

        `on_restored` is called after a list which shows that the server lost writes: it was restored from a backup.
        `on_version_too_large` is called when the server has not reached the version that was followed (it was restored,
        or is a replica that lags); by default the informer lists again.
        """
        self.resource = resource
        self._quarantine = quarantine if quarantine is not None else Quarantine(clock=clock, random=random)
        self.store = Store(indexers, unindexable=self._unindexable)
        self.synced = anyio.Event()
        self.connected = False
        self.last_error: errors.KubeError | None = None
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._page_size = page_size
        self._metadata_only = metadata_only
        self._shrink = shrink
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._backoff = backoff
        self._subscribers = Subscribers(resource, quarantine=self._quarantine, lookup=self.store.get)
        self._version: str | None = None
        self.lists = 0
        """How many lists were begun. Within one list and the watch after it, the server is the same."""
        self.last_contact = self._clock.monotonic()
        self._failures = 0
        self._expired = False
        self._must_list = False
        self._newest = 0
        self._saw_older = False
        self._scope = anyio.CancelScope()
        self._on_list = on_list
        self._on_restored = on_restored
        self._on_version_too_large = on_version_too_large or self.restart

    @property
    def version(self) -> int:
        """The newest version that was read from the server; 0 until there is one that is valid."""
        known = None if self._must_list else self._version
        return version_number(known or "")

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` for each change from now on, and now for each object in the store."""
        reader = self._subscribers.add(handler)
        for row in self.store.list():
            self._subscribers.call(reader, handler, Change(watch.ADDED, row.key, None, row))

    async def run(self) -> None:
        """Follow until cancelled; no server error ends it."""
        while True:
            if self._must_list:
                self._must_list, self._version = False, None
            try:
                with anyio.CancelScope() as self._scope:
                    if self._version is None:
                        await self.relist()
                    await self.follow()
            except errors.KubeError as error:
                self._on_error(error)
                if isinstance(error, errors.VersionTooLarge):
                    self._on_version_too_large()
                await anyio.sleep(self._backoff.delay(self._failures, self._random))
            except Exception as error:
                # Bytes that are not an object: the store may be wrong.
                logger.exception(
                    "informer failed; listing again cluster=%s resource=%s",
                    self._client.config.name,
                    self.resource.plural,
                )
                self._on_error(errors.KubeError(f"{self._client.config.name}: {self.resource.plural}: {error!r}"))
                self._version = None
                await anyio.sleep(self._backoff.delay(self._failures, self._random))

    def restart(self) -> None:
        """List again and watch from there: the server is not the one that was followed so far."""
        self._must_list = True
        self._scope.cancel()

    def forget(self) -> None:
        """Mark the store as outdated: `synced` is set again after the next list."""
        self.synced = anyio.Event()
        self.restart()

    def clear(self) -> None:
        """Report every object as deleted: the server has the resource no longer. As after `forget`, it lists next."""
        keys = self.store.keys()
        for key in keys:
            self._drop(key, None)
        self.forget()

    async def relist(self) -> None:
        """Replace the contents of the store by a new list; objects that are gone are reported as deleted.

        Each page is stored as it arrives: all pages at once would be memory that the process never returns.
        """
        self.lists += 1
        present: set[Key] = set()
        token: str | None = None
        limit = self._page_size
        while True:
            try:
                page = await self._client.list_page(
                    self.resource,
                    namespace=self._namespace,
                    label_selector=self._label_selector,
                    field_selector=self._field_selector,
                    limit=limit,
                    continue_token=token,
                    metadata_only=self._metadata_only,
                )
            except errors.Gone:
                if token is None:
                    raise
                # The snapshot of the pages has expired: list again without pages.
                token, limit = None, 0
                present.clear()
                continue
            self._on_contact()
            for number, raw in enumerate(page.items, 1):
                present.add(self._store(raw).key)
                if number % _BATCH == 0:
                    await anyio.lowlevel.checkpoint()
            token = page.continue_token
            if not token:
                break
        for key in set(self.store.keys()) - present:
            self._drop(key, None)
        self._version = page.resource_version
        newest = version_number(page.resource_version)
        was_restored = self._saw_older or newest < self._newest
        self._saw_older, self._newest = False, newest
        if was_restored and self._on_restored is not None:
            self._on_restored()
        self.synced.set()
        if self._on_list is not None:
            self._on_list()

    async def follow(self) -> None:
        """One watch from the current version to its end. A version that is too old requires a new list."""
        seconds = self._random.uniform(*_WATCH_SECONDS)
        events = self._client.watch(
            self.resource,
            namespace=self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=seconds,
            metadata_only=self._metadata_only,
            opened=self._on_contact,
        )
        started = self._clock.monotonic()
        try:
            # Closed here, so that a cancelled watch releases its connection before `run` ends.
            async with aclosing(events):
                number = 0
                async for event in events:
                    self._on_contact()
                    self._expired = False
                    self._apply(event)
                    number += 1
                    if number % _EVENTS_AT_ONCE == 0:
                        await anyio.lowlevel.checkpoint()
        except errors.Gone as error:
            logger.info(
                "version too old; listing again cluster=%s resource=%s error=%s",
                self._client.config.name,
                self.resource.plural,
                error,
            )
            self._version = None
            if self._expired:
                raise  # the version of a new list is too old as well: retry with a pause
            self._expired = True
            return
        finally:
            self.connected = False
        if self._clock.monotonic() - started < 1.0:
            # A server that ends each stream at once would otherwise be retried in a hot loop.
            raise errors.Unreachable(
                f"{self._client.config.name}: WATCH {self.resource.plural}: the server ended the stream at once"
            )

    def _apply(self, event: watch.WatchEvent) -> None:
        if event.type == watch.BOOKMARK:
            self._version = read_version(event.raw)
        elif event.type == watch.DELETED:
            row = read_row(event.raw)
            row.raw = self._small(row, None, event.raw)
            self._drop(row.key, row)
            self._version = row.resource_version
        else:
            self._version = self._store(event.raw).resource_version
        self._newest = max(self._newest, version_number(self._version or ""))

    def _store(self, raw: bytes) -> Row:
        parsed = self._parsed(raw) if self.store.indexed or self._shrink is not None else None
        row = row_of(parsed, raw) if parsed else read_row(raw)
        self._quarantine.release("index", self.resource, row.key)
        old = self.store.put(row, parsed)
        row.raw = self._small(row, parsed, raw)
        if old is None:
            self._notify(Change(watch.ADDED, row.key, None, row))
        elif old.uid != row.uid:
            # Deleted and created again between two watches: two objects, not one that changed.
            self._notify(Change(watch.DELETED, row.key, old, None))
            self._notify(Change(watch.ADDED, row.key, None, row))
        elif old.resource_version != row.resource_version:
            # Versions of one resource are ordered, and a list is never older than an earlier one.
            self._saw_older |= version_number(row.resource_version) < version_number(old.resource_version)
            self._notify(Change(watch.MODIFIED, row.key, old, row))
        return row

    def _drop(self, key: Key, last: Row | None) -> None:
        old = self.store.remove(key)
        if old is not None:
            self._notify(Change(watch.DELETED, key, last or old, None))

    def _parsed(self, raw: bytes) -> dict[str, Any]:
        """The object; empty if it is nested too deep to be parsed, which leaves it out of all indexes."""
        try:
            parsed: dict[str, Any] = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return {}
        return parsed

    def _small(self, row: Row, parsed: dict[str, Any] | None, raw: bytes) -> bytes:
        """The bytes to keep of the object, parsed if it was; none if `shrink` cannot read it."""
        if self._shrink is None:
            return raw
        try:
            small = self._shrink(parsed or orjson.loads(raw))
        except Exception as error:
            self._quarantine.add("cache", self.resource, row.key, error, version=row.resource_version)
            return b""
        self._quarantine.release("cache", self.resource, row.key)
        return small

    def _unindexable(self, row: Row, error: Exception) -> None:
        self._quarantine.add("index", self.resource, row.key, error, version=row.resource_version)

    def _notify(self, change: Change) -> None:
        if change.new is None:
            for reader in ("cache", "index"):
                self._quarantine.release(reader, self.resource, change.key)
        self._subscribers.notify(change)

    def _on_contact(self) -> None:
        self.last_contact = self._clock.monotonic()
        self.connected = True
        self._failures = 0
        self.last_error = None

    def _on_error(self, error: errors.KubeError) -> None:
        self.connected = False
        self._failures += 1
        self.last_error = error
        log = logger.warning if self._failures == 1 else logger.debug
        log(
            "cannot follow resource; retrying cluster=%s resource=%s error=%s",
            self._client.config.name,
            self.resource.plural,
            error,
        )
