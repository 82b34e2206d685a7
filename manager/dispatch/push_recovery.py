# SPDX-License-Identifier: Apache-2.0
"""Copies of a lost management cluster on the clusters that the manager reaches itself (ADR 0010).

Owns the way of a question to a hosted agent and of its answer back: `mkctl cluster recover` makes a ClusterReport with
the name of the cluster beside the manager's own objects, since a hosted mailbox is no namespace, asks in its spec as it
asks any agent, and deletes it when it is done. Promises that nothing is asked of a cluster, nor kept about it, without
such an object.
"""

from __future__ import annotations

from typing import Final

from manager.context import ManagerContext
from manager.dispatch.push_carrier import PushCarrier
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_REPORTS
from multikueue.core.keys import Key
from multikueue.kube.client import PatchKind
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import NotFound
from multikueue.kube.informer import Change

_LOOK_SECONDS: Final = 0.5


class PushRecovery:
    """The reconciler of ClusterReports that ask a hosted agent."""

    def __init__(self, context: ManagerContext, carrier: PushCarrier) -> None:
        self._context = context
        self._carrier = carrier
        self._reports = context.caches.view(CLUSTER_REPORTS)
        self._controller = Controller[Key](
            "push_recovery", self._reconcile, clock=context.clock, metrics=context.metrics.controllers
        )

    async def run(self) -> None:
        """Pass questions and answers on until cancelled."""
        self._context.caches.subscribe(CLUSTER_REPORTS, self._on_report)
        await self._controller.run()

    def _on_report(self, change: Change) -> None:
        if change.key.namespace == self._context.namespace:
            self._controller.enqueue(change.key)

    async def _reconcile(self, key: Key) -> Result | None:
        if not self._carrier.serves(key.name):
            return None
        mailbox = self._carrier.mailbox(key.name)
        report = self._reports.object(key)
        request: JsonObject | None = None if report is None else (report.get("spec") or {}).get("recovery")
        mailbox.ask_back(request)
        if report is None or request is None:
            return None
        answer: JsonObject = (mailbox.report.get("status") or {}).get("orphans") or {}
        if answer.get("request") != request["request"]:
            return Result(after=_LOOK_SECONDS)  # it reads the question with its next report
        if (report.get("status") or {}).get("orphans") != answer:
            try:
                self._reports.observe(
                    await self._context.client.patch(
                        CLUSTER_REPORTS,
                        key.name,
                        # Replaced whole: the last page has no `next`.
                        [{"op": "add", "path": "/status", "value": {"orphans": answer}}],
                        namespace=key.namespace,
                        kind=PatchKind.JSON,
                        subresource="status",
                    )
                )
            except NotFound:
                return None  # who asked is gone
        return None
