# SPDX-License-Identifier: Apache-2.0
"""What a watch of Workloads shows of a run: waits by class, evictions, ends, and status writes by cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from time import monotonic
from typing import Any

import anyio
import orjson

from multikueue.api.resource import WORKLOADS
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.watch import BOOKMARK
from tests.bench.queueing import causes
from tests.bench.queueing.preemptions import Preemptions
from tests.bench.queueing.workloads import NAMESPACE, class_of
from tests.support.managers import condition, is_true

Object = dict[str, Any]


class Observer:
    """Follows every version of every Workload."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[str, Object] = {}
        self._created: dict[str, float] = {}
        self._admitted: set[str] = set()
        self.began = anyio.Event()
        self.finished = 0
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        """By class: seconds from the creation to the first admission."""
        self.ends: defaultdict[str, list[float]] = defaultdict(list)
        """By class: seconds from the creation to the end."""
        self.ran: list[float] = []
        """Seconds from an admission to the eviction."""
        self.evictions: Counter[str] = Counter()
        self._evicted_at: list[float] = []
        self.preemptions = Preemptions()
        self.writes: Counter[str] = Counter()
        self._since: dict[str, float] = {}

    def creates(self, name: str) -> None:
        """A Workload of that name is created now."""
        self._created[name] = monotonic()

    @property
    def creation_seconds(self) -> float:
        """From the first creation to the last: waits are counted from the creation, and depend on it."""
        return max(self._created.values()) - min(self._created.values())

    @property
    def evictions_during_creation(self) -> int:
        """Those before the last creation, as new Workloads still arrive."""
        last = max(self._created.values())
        return sum(moment <= last for moment in self._evicted_at)

    async def run(self) -> None:
        """Follow until cancelled."""
        version = (await self._client.list_all(WORKLOADS, namespace=NAMESPACE)).resource_version
        self.began.set()
        while True:
            async for event in self._client.watch(WORKLOADS, namespace=NAMESPACE, resource_version=version):
                new: Object = orjson.loads(event.raw)
                version = new["metadata"]["resourceVersion"]
                if event.type != BOOKMARK:
                    self._see(new)

    def _see(self, new: Object) -> None:
        name = new["metadata"]["name"]
        old = self._known.get(name)
        self._known[name] = new
        now = monotonic()
        if old is None:
            self.preemptions.on_created(new, now)
        found = causes.cause(old, new)
        if found is None:
            return
        self.writes[found] += 1
        if found == causes.ADMISSION:
            self._since[name] = now
            if name not in self._admitted:
                self._admitted.add(name)
                self.waits[class_of(new)].append(now - self._created[name])
        elif found == causes.EVICTION:
            self.evictions[condition(new, "Preempted").get("reason") or condition(new, "Evicted")["reason"]] += 1
            self._evicted_at.append(now)
            admitted = self._since.get(name, now)
            self.ran.append(now - admitted)
            self.preemptions.on_evicted(new, admitted=admitted, now=now)
        elif found == causes.END_BY_WORKER and is_true(new, "Finished"):
            self.finished += 1
            self.ends[class_of(new)].append(now - self._created[name])
