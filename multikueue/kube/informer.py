# SPDX-License-Identifier: Apache-2.0
"""A local copy of a resource that follows the API server.

Owns list, watch and everything that goes wrong between them: pages over a snapshot that expires, a stream that ends,
is cut, falls silent, or is too old (410), a server that is away. Promises that handlers see each change once and after
the store has it, that objects which vanished while nobody watched are reported as deleted, and that a server that is
away is asked again with a jittered, growing pause. Handlers are synchronous and cheap: they put keys into queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Final

import anyio
import anyio.lowlevel
import orjson

from multikueue.api.resource import Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.keys import Key
from multikueue.kube import errors, watch
from multikueue.kube.client import KubeClient
from multikueue.kube.header import read_row, read_version
from multikueue.kube.store import Indexer, Row, Store, row_of

logger = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=0.25, factor=2.0, cap=30.0, jitter=0.5)
_BATCH: Final = 1000  # objects of a list taken in one turn of the event loop: some 20 ms
_WATCH_SECONDS: Final = (300.0, 600.0)  # drawn anew each time, so that many watches do not end together


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one object; `old` is None for ADDED, `new` is None for DELETED."""

    type: str
    key: Key
    old: Row | None
    new: Row | None

    @property
    def row(self) -> Row:
        """The object as it is, or as it was last seen."""
        row = self.new if self.new is not None else self.old
        assert row is not None, "a change has a row before or after it"
        return row


Handler = Callable[[Change], None]


class Informer:
    """Follows one resource, whole or by namespace and selectors.

    `shrink` may cut each object down to the bytes that are worth keeping; identity, version and labels are read before.
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
        shrink: Callable[[bytes], bytes] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self.resource = resource
        self.store = Store(indexers)
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
        self._handlers: list[Handler] = []
        self._version: str | None = None
        self.last_contact = self._clock.monotonic()
        self._failures = 0
        self._expired = False
        self._doubted = False
        self._newest = 0
        self._went_back = False
        self._scope = anyio.CancelScope()
        self.was_put_back: Callable[[], None] = lambda: None
        """Called after a list that shows that the server has forgotten what it told: it was restored from a backup."""
        self.put_back: Callable[[], None] = self.restart
        """Called when the server has yet to reach what was followed: it is of the past, or a replica that lags."""

    @property
    def version(self) -> int:
        """The newest version of the server that was heard of; 0 until there is one that can be relied on."""
        known = None if self._doubted else self._version
        return int(known) if known is not None and known.isdigit() else 0

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` for each change from now on, and now for each object that is already here."""
        self._handlers.append(handler)
        for row in self.store.list():
            handler(Change(watch.ADDED, row.key, None, row))

    async def run(self) -> None:
        """Follow until cancelled; no failure of the server ends it."""
        while True:
            if self._doubted:
                self._doubted, self._version = False, None
            try:
                with anyio.CancelScope() as self._scope:
                    if self._version is None:
                        await self.relist()
                    await self.follow()
            except errors.KubeError as error:
                self._note(error)
                if isinstance(error, errors.VersionTooLarge):
                    self.put_back()
                await anyio.sleep(self._backoff.delay(self._failures, self._random))
            except Exception as error:
                # Bytes that are no object, or a handler that breaks: what the store knows is not to be trusted.
                logger.exception("%s: following %s broke", self._client.config.name, self.resource.plural)
                self._note(errors.KubeError(f"{self._client.config.name}: {self.resource.plural}: {error!r}"))
                self._version = None
                await anyio.sleep(self._backoff.delay(self._failures, self._random))

    def restart(self) -> None:
        """List anew and watch from there: somebody knows that the server is not the one that was followed so far."""
        self._doubted = True
        self._scope.cancel()

    async def relist(self) -> None:
        """Make the store equal to a fresh list; what is gone is reported as deleted.

        Each page is taken as it comes: all of them at once would be memory that is never given back.
        """
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
                # The snapshot under the pages is too old: once more, in one piece.
                token, limit = None, 0
                present.clear()
                continue
            self._contact()
            for number, raw in enumerate(page.items, 1):
                present.add(self._take(raw).key)
                if number % _BATCH == 0:
                    await anyio.lowlevel.checkpoint()
            token = page.continue_token
            if not token:
                break
        for key in set(self.store.keys()) - present:
            self._drop(key, None)
        self._version = page.resource_version
        newest = _number(page.resource_version)
        went_back = self._went_back or newest < self._newest
        self._went_back, self._newest = False, newest
        if went_back:
            self.was_put_back()
        self.synced.set()

    async def follow(self) -> None:
        """One watch from the version we have, to its end. A version that is too old asks for a new list."""
        seconds = self._random.uniform(*_WATCH_SECONDS)
        events = self._client.watch(
            self.resource,
            namespace=self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=seconds,
            metadata_only=self._metadata_only,
            opened=self._contact,
        )
        started = self._clock.monotonic()
        try:
            # Closed here and now, so that a cancelled watch gives its connection back before `run` ends.
            async with aclosing(events):
                async for event in events:
                    self._contact()
                    self._expired = False
                    self._apply(event)
        except errors.Gone as error:
            logger.info("%s: %s is too old, listing anew (%s)", self._client.config.name, self.resource.plural, error)
            self._version = None
            if self._expired:
                raise  # the version of a fresh list is too old as well: such a server is given time
            self._expired = True
            return
        finally:
            self.connected = False
        if self._clock.monotonic() - started < 1.0:
            # A server that ends each stream at once would otherwise be asked in a hot loop.
            raise errors.Unreachable(
                f"{self._client.config.name}: WATCH {self.resource.plural}: the server ended the stream at once"
            )

    def _apply(self, event: watch.WatchEvent) -> None:
        if event.type == watch.BOOKMARK:
            self._version = read_version(event.raw)
        elif event.type == watch.DELETED:
            row = read_row(event.raw)
            if self._shrink is not None:
                row.raw = self._shrink(row.raw)
            self._drop(row.key, row)
            self._version = row.resource_version
        else:
            self._version = self._take(event.raw).resource_version
        self._newest = max(self._newest, _number(self._version or ""))

    def _take(self, raw: bytes) -> Row:
        if self.store.indexed:
            parsed = orjson.loads(raw)
            row = row_of(parsed, self._shrink(raw) if self._shrink else raw)
            old = self.store.put(row, parsed)
        else:
            row = read_row(raw)
            if self._shrink is not None:
                row.raw = self._shrink(raw)
            old = self.store.put(row)
        if old is None:
            self._tell(Change(watch.ADDED, row.key, None, row))
        elif old.uid != row.uid:
            # Deleted and made again while nobody watched: two objects, not one that changed.
            self._tell(Change(watch.DELETED, row.key, old, None))
            self._tell(Change(watch.ADDED, row.key, None, row))
        elif old.resource_version != row.resource_version:
            # Versions of one resource are ordered, and a list is never older than what was told before.
            self._went_back |= _number(row.resource_version) < _number(old.resource_version)
            self._tell(Change(watch.MODIFIED, row.key, old, row))
        return row

    def _drop(self, key: Key, last: Row | None) -> None:
        old = self.store.remove(key)
        if old is not None:
            self._tell(Change(watch.DELETED, key, last or old, None))

    def _tell(self, change: Change) -> None:
        for handler in self._handlers:
            handler(change)

    def _contact(self) -> None:
        self.last_contact = self._clock.monotonic()
        self.connected = True
        self._failures = 0
        self.last_error = None

    def _note(self, error: errors.KubeError) -> None:
        self.connected = False
        self._failures += 1
        self.last_error = error
        log = logger.warning if self._failures == 1 else logger.debug
        log("%s; trying again", error)


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
