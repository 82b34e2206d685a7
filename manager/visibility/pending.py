# SPDX-License-Identifier: Apache-2.0
"""The pending workloads of a queue as the API shows them, a page at a time.

Sorting a long queue takes a while, in which the manager does nothing else. So an order is used again for ten times as
long as it took to find, which bounds what clients can cost: at most a tenth of the manager's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import anyio.lowlevel

from manager.cache.caches import Caches
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.engine.decisions import PendingPosition
from multikueue.engine.engine import Engine

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 100_000
_USED_AGAIN: Final = 10.0  # times the seconds that sorting took
_ORDERS_KEPT: Final = 64
_BATCH: Final = 50  # objects that are read in one turn of the event loop


@dataclass(frozen=True, slots=True)
class PendingPage:
    """Which of the workloads are shown."""

    offset: int = 0
    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class _Order:
    engine: Engine
    positions: tuple[PendingPosition, ...]
    until: float


class CurrentEngine(Protocol):
    """What finds the engine of this replica."""

    async def current(self) -> Engine:
        """The engine, filled."""


class PendingWorkloads:
    """The items of a PendingWorkloadsSummary."""

    def __init__(self, caches: Caches, engines: CurrentEngine, *, clock: Clock) -> None:
        self._caches = caches
        self._engines = engines
        self._clock = clock
        self._orders: dict[str, _Order] = {}

    async def of_cluster_queue(self, name: str, page: PendingPage) -> list[JsonObject] | None:
        """Of all LocalQueues of a ClusterQueue; None if it does not exist."""
        order = await self._order(name)
        return await self._items(order, page) if self._exists(name) else None

    async def of_local_queue(self, key: Key, page: PendingPage) -> list[JsonObject] | None:
        """Of one LocalQueue; None if it does not exist."""
        queue = self._caches.view(LOCAL_QUEUES).object(key)
        if queue is None:
            return None
        cluster_queue = str(queue["spec"].get("clusterQueue") or "")
        order = await self._order(cluster_queue) if self._exists(cluster_queue) else ()
        return await self._items([position for position in order if position.local_queue == key], page)

    def _exists(self, cluster_queue: str) -> bool:
        return self._caches.view(CLUSTER_QUEUES).get(Key("", cluster_queue)) is not None

    async def _order(self, cluster_queue: str) -> Sequence[PendingPosition]:
        engine, now = await self._engines.current(), self._clock.monotonic()
        kept = self._orders.get(cluster_queue)
        if kept is not None and kept.engine is engine and now < kept.until:
            return kept.positions
        positions = engine.pending(cluster_queue)
        done = self._clock.monotonic()
        self._orders.pop(cluster_queue, None)
        self._orders[cluster_queue] = _Order(engine, positions, done + _USED_AGAIN * (done - now))
        if len(self._orders) > _ORDERS_KEPT:
            del self._orders[next(iter(self._orders))]
        return positions

    async def _items(self, positions: Sequence[PendingPosition], page: PendingPage) -> list[JsonObject]:
        workloads, found = self._caches.view(WORKLOADS), []
        for number, position in enumerate(positions[page.offset : page.offset + page.limit], 1):
            found.append(_item(position, workloads.object(position.workload)))
            if number % _BATCH == 0:
                await anyio.lowlevel.checkpoint()
        return found


def _item(position: PendingPosition, workload: JsonObject | None) -> JsonObject:
    """A PendingWorkload; one that was just deleted is shown without its owners."""
    metadata: JsonObject = {
        "name": position.workload.name,
        "namespace": position.workload.namespace,
        "creationTimestamp": format_time(position.created),
    }
    owners = ((workload or {}).get("metadata") or {}).get("ownerReferences")
    if owners:
        metadata["ownerReferences"] = owners
    return {
        "metadata": metadata,
        "priority": position.priority,
        "localQueueName": position.local_queue.name,
        "positionInClusterQueue": position.position_in_cluster_queue,
        "positionInLocalQueue": position.position_in_local_queue,
    }
