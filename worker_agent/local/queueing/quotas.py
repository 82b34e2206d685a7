# SPDX-License-Identifier: Apache-2.0
"""The quota of the worker's ClusterQueues in a ClusterReport.

It has two forms: for dispatch, free quota by flavor of as many queues as the report can hold, which is always reported;
for quota automation, the nominal quota of all queues, or why it is unknown, if the hub requests it. The hub evaluates
the latter in `multikueue.dispatch.protocol.quota_automation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from multikueue.api.clusterreport import MAX_QUEUES
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.core.clock import Clock
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.quota_automation import nominal_quotas
from multikueue.kube.cache.store import Row
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.local.queueing.cluster_queues import ClusterQueues
from worker_agent.local.queueing.queues import Queues

_MAX_PROBLEM: Final = 1024


class Quotas:
    """The quota of the ClusterQueues of this cluster."""

    def __init__(
        self,
        client: KubeClient,
        queues: Queues,
        *,
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
        quarantine: Quarantine | None = None,
    ) -> None:
        """`changed` is called when the report changed."""
        self._queues = queues
        self._changed = changed
        self._nominal_requested = False
        self._followed = ClusterQueues(
            client, queues, clock=clock, random=random, changed=changed, quarantine=quarantine
        )

    def request_nominal(self, requested: bool) -> None:
        """Set whether the hub requests all nominal quotas; called after each report."""
        if requested is not self._nominal_requested:
            self._nominal_requested = requested
            self._changed()

    def why_inactive(self, cluster_queue: str) -> str:
        """Why the ClusterQueue is not active; empty if it is, or if that is unknown."""
        return self._followed.why_inactive(cluster_queue)

    async def run(self) -> None:
        """Follow the ClusterQueues until cancelled."""
        await self._followed.run()

    def report(self) -> JsonObject:
        """The quota in a ClusterReport; nothing while the queues are being read."""
        return self._followed.report() | self._nominal()

    def _nominal(self) -> JsonObject:
        if not self._nominal_requested:
            return {}
        if self._followed.problem:
            return {"quotas": {"problem": self._followed.problem}}
        rows = self._followed.rows()
        if rows is None:
            return {}
        behind = self._queues.by_cluster_queue()
        if sum(map(len, behind.values())) > MAX_QUEUES:
            return {"quotas": {"problem": f"there are more than {MAX_QUEUES} LocalQueues"}}
        try:
            queues = [_queue_wire(row, behind[row.key.name]) for row in rows if row.key.name in behind]
        except BadInput as error:
            return {"quotas": {"problem": f"a quota cannot be read: {error}"[:_MAX_PROBLEM]}}
        return {"quotas": {"clusterQueues": queues}}


def _queue_wire(row: Row, local_queues: Iterable[Key]) -> JsonObject:
    """One ClusterQueue in the report. Raises `BadInput` for an amount that is no quantity."""
    active, groups = _admission(row)
    nominal = nominal_quotas(groups)
    return {
        "name": row.key.name,
        "active": active,
        "localQueues": [{"namespace": key.namespace, "name": key.name} for key in local_queues],
        "resources": [{"name": name, "nominal": str(nominal[name])} for name in sorted(nominal)],
    }


def _admission(row: Row) -> tuple[bool, list[JsonObject]]:
    """Whether the queue is active, and its resource groups."""
    queue = row.object()
    active = is_true_in(queue.get("status"), ACTIVE_CONDITION)
    return active, (queue.get("spec") or {}).get("resourceGroups") or []
