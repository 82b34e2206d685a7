# SPDX-License-Identifier: Apache-2.0
"""Push and pull as one carrier, so that a MultiKueueConfig may mix them.

Owns which way a cluster is reached: the way it has now for what is new, both ways for what is to go, because a cluster
may have changed its transport while work was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from manager.dispatch.carriers import Carrier
from manager.dispatch.push_carrier import PushCarrier
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent
from multikueue.core.keys import Key
from multikueue.federation.facts import Observation


class MixedCarrier:
    """A `Carrier` over both."""

    def __init__(self, pull: Carrier, push: PushCarrier) -> None:
        self._pull = pull
        self._push = push

    def observations(self, workload: Key) -> Mapping[str, Observation]:
        """Of each cluster what stands on its present way, or else on the other one."""
        return {**self._pull.observations(workload), **self._push.observations(workload)}

    def workloads(self, cluster: str | None = None) -> Iterable[Key]:
        """On either way."""
        return {*self._pull.workloads(cluster), *self._push.workloads(cluster)}

    async def assign(self, cluster: str, workload: Key, body: JsonObject) -> None:
        """By the cluster's present way."""
        await self._way(cluster).assign(cluster, workload, body)

    async def set_intent(self, cluster: str, workload: Key, intent: Intent) -> None:
        """By the cluster's present way."""
        await self._way(cluster).set_intent(cluster, workload, intent)

    async def remove(self, cluster: str, workload: Key) -> None:
        """By both ways."""
        await self._push.remove(cluster, workload)
        await self._pull.remove(cluster, workload)

    def _way(self, cluster: str) -> Carrier:
        return self._push if self._push.serves(cluster) else self._pull
