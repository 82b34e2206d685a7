# SPDX-License-Identifier: Apache-2.0
"""Maintains the taints of nodes according to their conditions and `spec.unschedulable`.

Admission taints each new node as not ready, so that without this controller no pod would be scheduled. Expired leases
and eviction from lost nodes are not implemented: virtual nodes do not get lost.
"""

from __future__ import annotations

from typing import Final

from devcluster.controllers import pod_facts
from devcluster.controllers.caches import BACKOFF, ControllerCaches
from multikueue.api.objects import JsonObject
from multikueue.api.resource import NODES
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_MANAGED: Final = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)


def taints_of(node: JsonObject) -> list[JsonObject]:
    """The taints that the node should have: taints of others, plus those for its state."""
    spec = node.get("spec") or {}
    present: list[JsonObject] = spec.get("taints") or []
    ready = (pod_facts.condition(node, "Ready") or {"status": "False"})["status"]
    wanted = []
    if ready != "True":
        wanted.append(NOT_READY if ready == "False" else UNREACHABLE)
    if spec.get("unschedulable"):
        wanted.append(UNSCHEDULABLE)
    kept = [
        taint
        for taint in present
        if taint["key"] not in _MANAGED or taint["effect"] != "NoSchedule" or taint["key"] in wanted
    ]
    known = {taint["key"] for taint in kept if taint["effect"] == "NoSchedule"}
    return kept + [{"key": key, "effect": "NoSchedule"} for key in wanted if key not in known]


class NodeTaints:
    """The node taint controller of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._nodes = caches.nodes
        self._controller: Controller[Key] = Controller(
            "node-taints", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.nodes.add_handler(lambda change: self._controller.enqueue(change.key))

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Update the taints of one node."""
        node = self._nodes.store.object(key)
        if node is None:
            return None
        wanted = taints_of(node)
        if wanted != ((node.get("spec") or {}).get("taints") or []):
            version = node["metadata"]["resourceVersion"]
            body = {"spec": {"taints": wanted or None}}
            try:
                await self._client.patch(NODES, key.name, body, resource_version=version)
            except NotFound:
                return None
        return None
