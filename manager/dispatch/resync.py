# SPDX-License-Identifier: Apache-2.0
"""Finding out that an agent and this manager do not see the same mailbox.

Owns the comparison of each ClusterReport's digests with the cache, and the request in the report's spec that has the
agent read its mailbox anew and say again what differs. Watches do the work; nothing is sent while both sides agree.
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
from multikueue.federation.digests import Comparison
from multikueue.kube.controller import Controller
from multikueue.kube.errors import NotFound
from multikueue.kube.informer import Change

_log = logging.getLogger(__name__)


class Resync:
    """Compares when a report comes. `digests` are those of a mailbox namespace as the cache has it."""

    def __init__(self, context: ManagerContext, *, digests: Callable[[str], Sequence[str]]) -> None:
        self._context = context
        self._digests = digests
        self._comparisons: dict[str, Comparison] = {}
        self._controller = Controller[Key](
            "multikueue_resync", self._compare, clock=context.clock, metrics=context.metrics.controllers
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
        said: Sequence[str] = (report.get("status") or {}).get("digests") or ()
        if not said:
            return  # of an agent that tells none yet
        comparison = self._comparisons.setdefault(key.namespace, Comparison())
        buckets = comparison.disputed(self._digests(key.namespace), said, self._context.clock.now())
        if not buckets:
            return
        _log.warning("%s: the agent sees other assignments in buckets %s; it is asked to look again", key, buckets)
        resync: JsonObject = {"request": uuid.uuid4().hex, "buckets": list(buckets)}
        try:
            await self._context.client.patch(
                CLUSTER_REPORTS, key.name, {"spec": {"resync": resync}}, namespace=key.namespace
            )
        except NotFound:
            return  # the cluster was removed
