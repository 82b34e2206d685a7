# SPDX-License-Identifier: Apache-2.0
"""Marks pods that were deleted before they were bound as Failed, since no kubelet does.

The pod garbage collector of a real cluster also collects pods of deleted nodes and surplus terminated pods; this one
does not.
"""

from __future__ import annotations

from devcluster.controllers import pod_facts
from devcluster.controllers.caches import BACKOFF, ControllerCaches
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind
from multikueue.kube.runtime.controller import Controller, Result
from multikueue.kube.runtime.workqueue import WorkQueue


def is_unscheduled_terminating(pod: JsonObject) -> bool:
    """Whether the pod is terminating and not bound to a node."""
    return pod_facts.terminating(pod) and not pod["spec"].get("nodeName")


class UnboundPods:
    """The pod garbage collector of one cluster."""

    def __init__(self, client: KubeClient, caches: ControllerCaches, *, clock: Clock) -> None:
        self._client = client
        self._pods = caches.pods.store
        self._controller: Controller[Key] = Controller(
            "unbound-pods", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.pods.add_handler(self._changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """Mark one pod as Failed."""
        pod = self._pods.object(key)
        if pod is None or not is_unscheduled_terminating(pod):
            return None
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": "Failed"}}
        try:
            await self._client.patch(
                PODS, key.name, body, namespace=key.namespace, kind=PatchKind.STRATEGIC, subresource="status"
            )
        except (NotFound, Conflict):
            return None  # deleted, or replaced by another pod of that name
        return None

    def _changed(self, change: Change) -> None:
        if change.new is not None and change.new.deleting:
            self._controller.enqueue(change.key)
