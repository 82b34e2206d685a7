# SPDX-License-Identifier: Apache-2.0
"""Dispatch in the write that makes a workload ready for it.

In the most frequent case the reservation is about to be written, no mailbox has an assignment, and the nominated or
granted clusters are known at once: they are written in the same apply. The plan is the one that a later reconcile would
make; every other case is left to that reconcile.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from manager.context import ManagerContext
from manager.controllers.job_progress import START_MESSAGE
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered, Gatherer
from manager.dispatch.transport.mailbox_transport import Transport
from manager.dispatch.workload_status import PlanChange
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import PodsReadyReason, WorkloadCondition
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan, Rule
from multikueue.dispatch.hub.plan import plan
from multikueue.jobs.framework.slices import replaces

_MERGED: Final = frozenset({Rule.NOMINATE, Rule.GRANT_AT_ONCE})
_NOT_NOW: Final = (WorkloadCondition.FINISHED, WorkloadCondition.EVICTED, WorkloadCondition.DEACTIVATION_TARGET)

Decided = Callable[[Key, Gathered, DispatchPlan], None]


class DispatchOnReserve:
    """An `AdmissionHook` without `may_run_elsewhere`."""

    def __init__(self, context: ManagerContext, *, gatherer: Gatherer, transport: Transport, decided: Decided) -> None:
        """`decided` is called with every decision that is about to be written, and again after a conflict."""
        self._context = context
        self._gatherer = gatherer
        self._transport = transport
        self._decided = decided
        self._executor = Executor(context, transport)
        self._open: dict[Key, tuple[DispatchPlan, Gathered]] = {}

    def complete(self, workload: JsonObject, status: Status) -> Status:
        """`status` with the dispatch that follows from it."""
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        self._open.pop(key, None)
        if not status.is_true(WorkloadCondition.QUOTA_RESERVED) or status.cluster_name or status.nominated:
            return status
        if any(map(status.is_true, _NOT_NOW)) or self._transport.observations(key):
            return status
        if replaces(workload):
            return status  # its job may run already, by the slice that it replaces
        now = self._context.clock.now()
        about_to_be = {**workload, "status": {**(workload.get("status") or {}), **status.wire()}}
        gathered = self._gatherer.gather(key, about_to_be, {}, now=now, status=status)
        if gathered is None or gathered.facts.workload is None or gathered.facts.workload.check is None:
            return status
        replica = gathered.facts.workload.replica
        if replica is not None and (replica.leader is None or not replica.leader.cluster_name):
            # One replica at a time chooses, among those whose reservation is written.
            return status
        decision = plan(gathered.facts, now)
        if decision.rule not in _MERGED or not decision.writes_status or decision.round is not None:
            return status
        self._decided(key, gathered, decision)
        self._open[key] = (decision, gathered)
        check = gathered.facts.workload.check.name
        return self._waits_for_pods(PlanChange(decision, check=check, planned_for=status, now=now)(status), now)

    def _waits_for_pods(self, status: Status, now: datetime) -> Status:
        """Add what the job reconciler would write next for an admitted job."""
        tracked = self._context.configuration.wait_for_pods_ready is not None
        admitted = status.is_true(WorkloadCondition.ADMITTED)
        if not tracked or not admitted or status.condition(WorkloadCondition.PODS_READY) is not None:
            return status
        return changes.pods_ready(
            status, ready=False, reason=PodsReadyReason.WAIT_FOR_START, message=START_MESSAGE, now=now
        )

    def is_writing(self, key: Key) -> bool:
        """Whether a decision about this Workload is being written, which its status does not show yet."""
        return key in self._open

    def ended(self, key: Key, workload: JsonObject | None) -> bool:
        """Record the grant that was written; the reconcile of this write sends the assignment.

        Returns whether a decision was given up: None instead of the Workload is a write that failed, or may have.
        """
        found = self._open.pop(key, None)
        if found is not None and workload is not None and found[0].rule is Rule.GRANT_AT_ONCE:
            self._executor.report_grant(*found)
        return found is not None and workload is None
