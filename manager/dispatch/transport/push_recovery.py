# SPDX-License-Identifier: Apache-2.0
"""Remote jobs of a lost management cluster on clusters that the manager connects to itself (ADR 0010).

Passes a request to a hosted agent and its answer back: `mkctl cluster recover` creates a ClusterReport with the name of
the cluster in the manager's namespace, since a hosted mailbox has none, writes its request into the spec as for any
agent, and deletes the object when it is done. Without such an object nothing is requested of a cluster, nor stored.
"""

from __future__ import annotations

from typing import Final

from manager.context import ManagerContext
from manager.dispatch.transport.push_transport import PushTransport
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_REPORTS
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import PatchKind
from multikueue.kube.runtime.controller import Controller, Result

_LOOK_SECONDS: Final = 0.5


class PushRecovery:
    """The reconciler of ClusterReports with requests to hosted agents."""

    def __init__(self, context: ManagerContext, transport: PushTransport) -> None:
        self._context = context
        self._transport = transport
        self._reports = context.caches.view(CLUSTER_REPORTS)
        self._controller = Controller[Key](
            "push_recovery",
            self._reconcile,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=CLUSTER_REPORTS,
        )

    async def run(self) -> None:
        """Pass requests and answers on until cancelled."""
        self._context.caches.subscribe(CLUSTER_REPORTS, self._on_report)
        await self._controller.run()

    def _on_report(self, change: Change) -> None:
        if change.key.namespace == self._context.namespace:
            self._controller.enqueue(change.key)

    async def _reconcile(self, key: Key) -> Result | None:
        if not self._transport.serves(key.name):
            return None
        mailbox = self._transport.mailbox(key.name)
        report = self._reports.object(key)
        request: JsonObject | None = None if report is None else (report.get("spec") or {}).get("recovery")
        mailbox.request_recovery(request)
        if report is None or request is None:
            return None
        answer: JsonObject = (mailbox.report.get("status") or {}).get("orphans") or {}
        if answer.get("request") != request["request"]:
            return Result(after=_LOOK_SECONDS)  # it reads the request with its next report
        if (report.get("status") or {}).get("orphans") != answer:
            try:
                self._reports.on_write(
                    await self._context.client.patch(
                        CLUSTER_REPORTS,
                        key.name,
                        # Replaced as a whole: the last page has no `next`.
                        [{"op": "add", "path": "/status", "value": {"orphans": answer}}],
                        namespace=key.namespace,
                        kind=PatchKind.JSON,
                        subresource="status",
                    )
                )
            except NotFound:
                return None  # the request was deleted
        return None
