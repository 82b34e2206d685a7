# SPDX-License-Identifier: Apache-2.0
"""Dispatch in the write that makes a workload ready for it.

Owns the case that most workloads are: the reservation is about to be written, nothing stands in any mailbox, and it is
known at once who is nominated or granted. Then that goes out in the same apply, and no second one follows. Promises to
decide by the same plan as a later look would, and to leave everything that is not as simple to that look.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from manager import workload_changes
from manager.context import ManagerContext
from manager.dispatch.carriers import Carrier
from manager.dispatch.execution import Executor
from manager.dispatch.gather import Gathered, Gatherer
from manager.dispatch.status_change import PlanChange
from manager.reconcilers.job_decision import START_MESSAGE
from manager.workload_status import Status
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import PodsReadyReason, WorkloadCondition
from multikueue.core.keys import Key
from multikueue.federation.actions import Plan, Rule
from multikueue.federation.plan import plan

_MERGED: Final = frozenset({Rule.NOMINATE, Rule.GRANT_AT_ONCE})
_NOT_NOW: Final = (WorkloadCondition.FINISHED, WorkloadCondition.EVICTED, WorkloadCondition.DEACTIVATION_TARGET)

Decided = Callable[[Key, Gathered, Plan], None]


class Merging:
    """A `manager.workload_status.Completion`."""

    def __init__(self, context: ManagerContext, *, gatherer: Gatherer, carrier: Carrier, decided: Decided) -> None:
        """`decided` hears of every decision that is about to be written, and may hear of it again."""
        self._context = context
        self._gatherer = gatherer
        self._carrier = carrier
        self._decided = decided
        self._executor = Executor(context, carrier)
        self._open: dict[Key, tuple[Plan, Gathered]] = {}

    def complete(self, workload: JsonObject, status: Status) -> Status:
        """`status` with what dispatch decides on it."""
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        self._open.pop(key, None)
        if not status.is_true(WorkloadCondition.QUOTA_RESERVED) or status.cluster_name or status.nominated:
            return status
        if any(map(status.is_true, _NOT_NOW)) or self._carrier.observations(key):
            return status
        now = self._context.clock.now()
        about_to_be = {**workload, "status": {**(workload.get("status") or {}), **status.wire()}}
        gathered = self._gatherer.gather(key, about_to_be, {}, now=now, status=status)
        if gathered is None or gathered.facts.workload is None or gathered.facts.workload.check is None:
            return status
        decision = plan(gathered.facts, now)
        if decision.rule not in _MERGED or not decision.writes_status or decision.round is not None:
            return status
        self._decided(key, gathered, decision)
        self._open[key] = (decision, gathered)
        check = gathered.facts.workload.check.name
        return self._waits_for_pods(PlanChange(decision, check=check, planned_for=status, now=now)(status), now)

    def _waits_for_pods(self, status: Status, now: datetime) -> Status:
        """What the job reconciler would write next, when it finds the job admitted."""
        tracked = self._context.configuration.wait_for_pods_ready is not None
        admitted = status.is_true(WorkloadCondition.ADMITTED)
        if not tracked or not admitted or status.condition(WorkloadCondition.PODS_READY) is not None:
            return status
        return workload_changes.pods_ready(
            status, ready=False, reason=PodsReadyReason.WAIT_FOR_START, message=START_MESSAGE, now=now
        )

    def completed(self, workload: JsonObject, before: Status, after: Status) -> None:
        """It was written: told and counted now; the assignment follows with the look that the write leads to."""
        key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
        found = self._open.pop(key, None)
        if found is not None and after.cluster_name and found[0].rule is Rule.GRANT_AT_ONCE:
            self._executor.report_grant(*found)
