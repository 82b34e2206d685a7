# SPDX-License-Identifier: Apache-2.0
"""How fast the reports of workers about changes that they refuse change the hub: within the budget of each workload."""

from __future__ import annotations

from dataclasses import replace

from manager.dispatch.reported.change_budget import ChangeBudget
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan


class RefusedChanges:
    """The budgets of all workloads; times are of a monotonic clock."""

    def __init__(self) -> None:
        self._budgets: dict[Key, ChangeBudget] = {}

    def admit(self, key: Key, plan: DispatchPlan, *, now: float) -> DispatchPlan:
        """The plan, without its change of ChangeForwarded if that has to wait; it is planned again then."""
        if plan.change_forwarded is None:
            return plan
        budget = self._budgets.setdefault(key, ChangeBudget(at=now))
        wait = budget.wait(now)
        if wait > 0:
            soonest = wait if plan.requeue_after is None else min(wait, plan.requeue_after)
            return replace(plan, change_forwarded=None, requeue_after=soonest)
        budget.spend()
        return plan

    def forget(self, key: Key) -> None:
        """The workload is gone."""
        self._budgets.pop(key, None)
