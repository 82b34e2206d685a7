# SPDX-License-Identifier: Apache-2.0
"""What must not happen under load: leases that run out, clusters that count as lost."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import anyio
import orjson

from multikueue.api.resource import LEASES, MULTIKUEUE_CLUSTERS
from multikueue.core.clock import SystemClock
from multikueue.core.conditions import is_true_in
from multikueue.core.timestamps import parse_time
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient

_PAUSE_SECONDS = 1.0


class Health:
    """Leases and MultiKueueClusters of a hub, read once a second."""

    def __init__(self, hub: KubeClient) -> None:
        self._hub = hub
        self._clock = SystemClock()
        self._holders: dict[str, str] = {}
        self._expired: set[str] = set()
        self._lost: set[str] = set()
        self.leases_lost = 0
        """Times that a lease ran out, or got another holder."""
        self.clusters_lost = 0
        """Times that a cluster was no longer Active."""
        self.longest_renewal = 0.0
        """The greatest age of a renewal, as a part of the duration of its lease."""
        self.reads_refused = 0
        """Times that the hub did not answer, or refused."""

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                await self.read()
            except KubeError:
                self.reads_refused += 1
            await anyio.sleep(_PAUSE_SECONDS)

    async def read(self) -> None:
        """Read once."""
        leases = await self._hub.list_all(LEASES)
        clusters = await self._hub.list_all(MULTIKUEUE_CLUSTERS)
        now = self._clock.now()
        for raw in leases.items:
            self._see_lease(orjson.loads(raw), now)
        lost = set()
        for raw in clusters.items:
            found = orjson.loads(raw)
            if not is_true_in(found.get("status") or {}, "Active"):
                lost.add(found["metadata"]["name"])
        self.clusters_lost += len(lost - self._lost)
        self._lost = lost

    def _see_lease(self, lease: dict[str, Any], now: datetime) -> None:
        spec, name = lease.get("spec") or {}, f"{lease['metadata']['namespace']}/{lease['metadata']['name']}"
        holder, renewed, seconds = (spec.get(each) for each in ("holderIdentity", "renewTime", "leaseDurationSeconds"))
        if not (holder and renewed and seconds):
            return
        age = (now - parse_time(renewed)).total_seconds() / seconds
        self.longest_renewal = max(self.longest_renewal, age)
        expired = age > 1
        self.leases_lost += self._holders.get(name, holder) != holder or (expired and name not in self._expired)
        self._holders[name] = holder
        (self._expired.add if expired else self._expired.discard)(name)
