# SPDX-License-Identifier: Apache-2.0
"""Places for Workloads that hold quota already, or their eviction after a node has failed.

A write that fails is not repeated: the Workload is fed to the engine again as it is, and decided again.
"""

from __future__ import annotations

import logging
from datetime import datetime
from functools import partial

from manager.context import ManagerContext
from manager.scheduler import admission_writes
from manager.scheduler.engine_feed import EngineFeed
from manager.scheduler.write_queue import WriteQueue
from manager.workload.status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadEvent
from multikueue.core.keys import Key
from multikueue.engine.decisions import TopologyDecision
from multikueue.kube.errors import ApiError, Unreachable
from multikueue.kube.runtime.events import Reference

_log = logging.getLogger(__name__)


class TopologyWriter:
    """Puts these writes among those of the scheduler."""

    def __init__(self, context: ManagerContext, queue: WriteQueue, feed: EngineFeed) -> None:
        self._context = context
        self._queue = queue
        self._feed = feed

    def assign(self, now: datetime) -> None:
        """Decide about those that are due, and write it; nothing while the engine has to be rebuilt."""
        if self._feed.broken:
            return
        try:
            decisions = self._feed.engine.assign_topologies(now)
        except Exception as error:
            self._feed.fail(error)
            return
        for decision in decisions:
            self._queue.put(decision.workload, partial(self._write, decision, now), slot="topology", replace=True)

    async def _write(self, decision: TopologyDecision, now: datetime) -> None:
        key, statuses = decision.workload, self._context.statuses
        if decision.problem and not decision.evict:
            self._report(decision)
            return
        applied = False

        def note(workload: JsonObject, before: Status, after: Status) -> None:
            nonlocal applied
            applied = True

        try:
            written = await statuses.write(
                key,
                lambda status: admission_writes.assign_topologies(status, decision, now=now),
                uid=decision.uid,
                written=note,
            )
        except (ApiError, Unreachable) as error:
            _log.warning("topology of workload not written workload=%s error=%s", key, error)
            self._decide_again(key)
            return
        if written is not None and not applied:
            self._decide_again(key)  # it has changed since, and the engine holds places that it was not given

    def _decide_again(self, key: Key) -> None:
        self._feed.engine.topologies_failed(key)
        self._feed.refresh(key)

    def _report(self, decision: TopologyDecision) -> None:
        """Say why it has no places yet."""
        workload = self._context.statuses.current(decision.workload)
        if workload is None or workload["metadata"].get("uid") != decision.uid:
            return
        if admission_writes.needs_places(Status.of(workload), decision):
            text = decision.problem
            self._context.recorder.event(Reference.of(workload), "Warning", WorkloadEvent.SECOND_PASS_FAILED, text)
