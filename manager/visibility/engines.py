# SPDX-License-Identifier: Apache-2.0
"""The engine that knows the order of the queues on this replica.

It is the scheduler's on the replica that leads. Others answer too, as in Kueue: they fill an engine from their caches
at the first request and keep it up to date until they lead; a replica that is never asked has none.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel

from manager.context import ManagerContext
from manager.scheduler.engine_feed import EngineFeed
from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.keys import Key
from multikueue.engine.engine import Engine
from multikueue.engine.settings import Settings


class QueueEngines:
    """The engine of this replica, whether it leads or not."""

    def __init__(self, context: ManagerContext, *, settings: Settings) -> None:
        self._context = context
        self._settings = settings
        self._scheduler: Callable[[], Engine] | None = None
        self._feed: EngineFeed | None = None
        self._filling = anyio.Lock()
        self._attaching = anyio.CancelScope()
        self._leading = False
        self._changed = anyio.Event()

    def begin_leading(self) -> None:
        """Follow the caches no more: the scheduler begins to. The caller ends all subscriptions of the caches next."""
        self._become(leading=True, scheduler=None)

    def lead(self, engine: Callable[[], Engine]) -> None:
        """Use the scheduler's engine, which is filled now."""
        self._become(leading=True, scheduler=engine)

    def follow(self) -> None:
        """This replica no longer leads. The caller ends all subscriptions of the caches next."""
        self._become(leading=False, scheduler=None)

    async def current(self) -> Engine:
        """The engine, filled. On a replica that does not lead the first call takes as long as reading all objects."""
        while True:
            if self._scheduler is not None:
                return self._scheduler()
            if self._leading:
                await self._changed.wait()
                continue
            async with self._filling:
                feed = await self._following()
            if feed is not None:
                return feed.engine

    def _become(self, *, leading: bool, scheduler: Callable[[], Engine] | None) -> None:
        self._leading, self._scheduler, self._feed = leading, scheduler, None
        self._attaching.cancel()
        self._changed.set()
        self._changed = anyio.Event()

    async def _following(self) -> EngineFeed | None:
        """An engine that follows; None if this replica begins to lead meanwhile."""
        await self._context.caches.synced()
        if self._leading:
            return None
        # A client that disconnects must not leave a part of the subscriptions, or of an engine, behind.
        with anyio.CancelScope(shield=True) as self._attaching:
            if self._feed is None:
                feed = EngineFeed(self._context, settings=self._settings, changed=_ignored)
                await feed.attach()
                self._feed = feed
            elif self._feed.broken:
                await self._feed.rebuild()
        return self._feed


def _ignored(resource: Resource, key: Key, obj: JsonObject | None) -> None:
    """The figures of queues are written by the replica that leads."""
