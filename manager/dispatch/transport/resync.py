# SPDX-License-Identifier: Apache-2.0
"""Detects that an agent and this manager see different assignments in a mailbox, and requests a resync.

Compares each ClusterReport's digests with the cache; the request in the report's spec makes the agent list its mailbox
again and resend what differs. Nothing is sent while both sides agree.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence

from manager.context import ManagerContext
from multikueue.api.constants import MAILBOX_OBJECT_NAME
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_REPORTS
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.digests import Comparison
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import NotFound
from multikueue.kube.runtime.controller import Controller

_log = logging.getLogger(__name__)


class Resync:
    """Compares with each report. `digests` are those of a mailbox namespace in the cache."""

    def __init__(self, context: ManagerContext, *, digests: Callable[[str], Sequence[str]]) -> None:
        self._context = context
        self._digests = digests
        self._comparisons: dict[str, Comparison] = {}
        self._controller = Controller[Key](
            "multikueue_resync",
            self._compare,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=CLUSTER_REPORTS,
        )

    async def run(self) -> None:
        """Compare until cancelled."""
        self._context.caches.subscribe(CLUSTER_REPORTS, self._on_report)
        await self._controller.run()

    def _on_report(self, change: Change) -> None:
        if change.key.name == MAILBOX_OBJECT_NAME:
            self._controller.enqueue(change.key)

    async def _compare(self, key: Key) -> None:
        report = self._context.caches.view(CLUSTER_REPORTS).object(key)
        if report is None:
            self._comparisons.pop(key.namespace, None)
            return
        reported: Sequence[str] = (report.get("status") or {}).get("digests") or ()
        if not reported:
            return  # an agent of an older version
        comparison = self._comparisons.setdefault(key.namespace, Comparison())
        buckets = comparison.disputed(self._digests(key.namespace), reported, self._context.clock.now())
        if not buckets:
            return
        _log.warning("agent has other assignments, requesting resync report=%s buckets=%s", key, buckets)
        resync: JsonObject = {"request": uuid.uuid4().hex, "buckets": list(buckets)}
        try:
            await self._context.client.patch(
                CLUSTER_REPORTS, key.name, {"spec": {"resync": resync}}, namespace=key.namespace
            )
        except NotFound:
            return  # the cluster was removed
