# SPDX-License-Identifier: Apache-2.0
"""Ends pods that were deleted before a node had them: no kubelet will.

Owns their status only. Who holds such a pod by a finalizer, as a Job does that waits for a failure, lets it go then.
Leaves out what else collects pods on a real cluster: those of nodes that are gone, and the oldest of very many.
"""

from __future__ import annotations

from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.devcluster.controllers import pod_facts
from multikueue.devcluster.controllers.caches import BACKOFF, Caches
from multikueue.kube.client import KubeClient, PatchKind
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import Conflict, NotFound
from multikueue.kube.informer import Change
from multikueue.kube.workqueue import WorkQueue


def abandoned(pod: JsonObject) -> bool:
    """Whether the pod goes, and nobody is to say that it has ended."""
    return pod_facts.terminating(pod) and not pod["spec"].get("nodeName")


class UnboundPods:
    """Marks abandoned pods as failed."""

    def __init__(self, client: KubeClient, caches: Caches, *, clock: Clock) -> None:
        self._client = client
        self._pods = caches.pods.store
        self._controller: Controller[Key] = Controller(
            "unbound-pods", self.reconcile, queue=WorkQueue(clock=clock, backoff=BACKOFF), clock=clock
        )
        caches.pods.add_handler(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result | None:
        """End one pod."""
        pod = self._pods.object(key)
        if pod is None or not abandoned(pod):
            return None
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": "Failed"}}
        try:
            await self._client.patch(
                PODS, key.name, body, namespace=key.namespace, kind=PatchKind.STRATEGIC, subresource="status"
            )
        except (NotFound, Conflict):
            return None  # gone, or another pod of that name
        return None

    def _changed(self, change: Change) -> None:
        if change.new is not None and change.new.deleting:
            self._controller.enqueue(change.key)
