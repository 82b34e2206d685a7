# SPDX-License-Identifier: Apache-2.0
"""The pending workloads of a queue as the API shows them, a page at a time.

Sorting a long queue and reading many objects take a while, in which the manager does nothing else: both count against a
budget, and an order is used again for ten times as long as it took to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from manager.cache.caches import Caches
from manager.visibility.budget import WorkBudget
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
        self._budget = WorkBudget(clock)

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
        engine = await self._engines.current()
        found = self._usable(cluster_queue, engine)
        if found is None:
            await self._budget.turn()
            found = self._usable(cluster_queue, engine)  # another request may have sorted it meanwhile
        return self._sort(cluster_queue, engine) if found is None else found

    def _usable(self, cluster_queue: str, engine: Engine) -> Sequence[PendingPosition] | None:
        """The order that was found before, if it may be used again."""
        kept = self._orders.get(cluster_queue)
        usable = kept is not None and kept.engine is engine and self._clock.monotonic() < kept.until
        return kept.positions if kept is not None and usable else None

    def _sort(self, cluster_queue: str, engine: Engine) -> Sequence[PendingPosition]:
        began = self._clock.monotonic()
        positions = engine.pending(cluster_queue)
        done = self._clock.monotonic()
        self._budget.spend(done - began)
        self._orders.pop(cluster_queue, None)
        self._orders[cluster_queue] = _Order(engine, positions, done + _USED_AGAIN * (done - began))
        if len(self._orders) > _ORDERS_KEPT:
            del self._orders[next(iter(self._orders))]
        return positions

    async def _items(self, positions: Sequence[PendingPosition], page: PendingPage) -> list[JsonObject]:
        workloads, found = self._caches.view(WORKLOADS), list[JsonObject]()
        shown = positions[page.offset : page.offset + page.limit]
        for first in range(0, len(shown), _BATCH):
            await self._budget.turn()
            began = self._clock.monotonic()
            found += [_item(each, workloads.object(each.workload)) for each in shown[first : first + _BATCH]]
            self._budget.spend(self._clock.monotonic() - began)
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
