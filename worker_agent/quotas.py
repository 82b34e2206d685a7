# SPDX-License-Identifier: Apache-2.0
"""The quotas of the worker cluster's own ClusterQueues, told to a hub that asks for them.

Owns the watch of ClusterQueues, which begins when the hub asks and ends when it asks no more, and what a ClusterReport
tells of them. Promises to tell nothing before all of them were read, and to say why where this agent may not read them:
a hub must not take what it was not told for quota that is not there. What the hub makes of it is
`multikueue.federation.quota_automation`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

import anyio

from multikueue.api.clusterreport import MAX_QUEUES
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.api.resource import CLUSTER_QUEUES
from multikueue.core.clock import Clock
from multikueue.core.conditions import TRUE
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.federation.quota_automation import nominal_quotas
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import Forbidden, KubeError, NotFound
from multikueue.kube.informer import Change, Informer
from multikueue.kube.store import Row
from worker_agent.queues import Queues
from worker_agent.reconnect import RECONNECT

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 60.0  # how often it is looked whether the agent may read them by now
_MAX_PROBLEM: Final = 1024


class Quotas:
    """The ClusterQueues behind the LocalQueues of this cluster."""

    def __init__(
        self, client: KubeClient, queues: Queues, *, clock: Clock, random: Random, changed: Callable[[], None]
    ) -> None:
        """`changed` hears when something else is to be told."""
        self._client = client
        self._queues = queues
        self._clock = clock
        self._random = random
        self._changed = changed
        self._wanted = False
        self._turned = anyio.Event()
        self._problem = ""
        self._informer: Informer | None = None
        self._none = False

    def ask(self, wanted: bool) -> None:
        """Whether the hub wants to know; as it says again and again."""
        if wanted is not self._wanted:
            self._wanted = wanted
            self._turned.set()

    async def run(self) -> None:
        """Follow them while the hub asks, until cancelled."""
        while True:
            self._turned = anyio.Event()
            if self._wanted:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._follow, name="quotas")
                    await self._turned.wait()
                    tasks.cancel_scope.cancel()
                self._tell(informer=None)
            else:
                await self._turned.wait()

    def report(self) -> JsonObject:
        """What a ClusterReport tells of them; nothing while nobody asks or they are being read."""
        if not self._wanted:
            return {}
        if self._problem:
            return {"quotas": {"problem": self._problem}}
        if self._none:
            return {"quotas": {"clusterQueues": []}}
        if self._informer is None or not self._informer.synced.is_set():
            return {}
        if isinstance(self._informer.last_error, Forbidden):
            # The right was taken away, and what is known grows old.
            return {"quotas": {"problem": _refused(self._informer.last_error)}}
        behind = self._queues.by_cluster_queue()
        if sum(map(len, behind.values())) > MAX_QUEUES:
            return {"quotas": {"problem": f"there are more than {MAX_QUEUES} LocalQueues"}}
        rows = sorted(self._informer.store.list(), key=lambda row: row.key)
        try:
            told = [_told(row, behind[row.key.name]) for row in rows if row.key.name in behind]
        except BadInput as error:
            return {"quotas": {"problem": f"a quota cannot be read: {error}"[:_MAX_PROBLEM]}}
        return {"quotas": {"clusterQueues": told}}

    async def _follow(self) -> None:
        if self._queues.refused:
            self._tell(problem=f"it may not read the queues: {self._queues.refused}"[:_MAX_PROBLEM])
            return
        if not self._queues.present:
            self._tell(none=True)
            return
        attempt = 0
        while True:
            try:
                await self._client.list_page(CLUSTER_QUEUES, limit=1, metadata_only=True)
                break
            except NotFound:
                self._tell(none=True)
                pause = _AGAIN_SECONDS
            except Forbidden as error:
                self._tell(problem=_refused(error))
                pause = _AGAIN_SECONDS
            except KubeError as error:
                _log.debug("whether the ClusterQueues of this cluster can be read is not known yet: %s", error)
                attempt += 1
                pause = RECONNECT.delay(attempt, self._random)
            await anyio.sleep(pause)
        informer = Informer(self._client, CLUSTER_QUEUES, clock=self._clock, random=self._random, backoff=RECONNECT)
        informer.add_handler(self._on_queue)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run, name="informer-clusterqueues")
            await informer.synced.wait()
            self._tell(informer=informer)

    def _tell(self, *, informer: Informer | None = None, problem: str = "", none: bool = False) -> None:
        if problem and problem != self._problem:
            _log.warning("the quotas of this cluster are not told to the hub, which asks for them: %s", problem)
        self._informer, self._problem, self._none = informer, problem, none
        self._changed()

    def _on_queue(self, change: Change) -> None:
        # Its status changes with every admission; only what is told is worth a report.
        before = None if change.old is None else _standing(change.old)
        after = None if change.new is None else _standing(change.new)
        if before != after:
            self._changed()


def _refused(error: Forbidden) -> str:
    return f"it may not read the ClusterQueues: {error.message}"[:_MAX_PROBLEM]


def _told(row: Row, local_queues: Iterable[Key]) -> JsonObject:
    """One queue as it is reported. Raises `BadInput` for an amount that is none."""
    active, groups = _standing(row)
    nominal = nominal_quotas(groups)
    return {
        "name": row.key.name,
        "active": active,
        "localQueues": [{"namespace": key.namespace, "name": key.name} for key in local_queues],
        "resources": [{"name": name, "nominal": str(nominal[name])} for name in sorted(nominal)],
    }


def _standing(row: Row) -> tuple[bool, list[JsonObject]]:
    """What matters of the queue: whether it is active, and its resource groups."""
    queue = row.object()
    entries: list[JsonObject] = (queue.get("status") or {}).get("conditions") or []
    active = any(entry["type"] == ACTIVE_CONDITION and entry["status"] == TRUE for entry in entries)
    return active, (queue.get("spec") or {}).get("resourceGroups") or []
