# SPDX-License-Identifier: Apache-2.0
"""How fast the reports of workers about pods that do not start change the hub.

They are within the budget of each workload. That the pods have started is written once no problem was reported for ten
seconds: a restarted agent needs that time to look again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from manager.dispatch.reported.change_budget import ChangeBudget
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan

UNCONTRADICTED_SECONDS: Final = 10.0


@dataclass(slots=True)
class _StartBudget(ChangeBudget):
    started_since: float | None = None


class StartReports:
    """The budgets of all workloads; times are of a monotonic clock."""

    def __init__(self) -> None:
        self._budgets: dict[Key, _StartBudget] = {}

    def admit(self, key: Key, plan: DispatchPlan, *, now: float) -> DispatchPlan:
        """The plan, without its change of PodsStarted if that has to wait; it is planned again then."""
        budget = self._budgets.get(key)
        if plan.pods_started is None:
            if budget is not None:
                budget.started_since = None
            return plan
        if budget is None:
            budget = self._budgets[key] = _StartBudget(at=now)
        wait = budget.wait(now)
        if plan.pods_started.reason:
            budget.started_since = None
        else:
            if budget.started_since is None:
                budget.started_since = now
            wait = max(wait, budget.started_since + UNCONTRADICTED_SECONDS - now)
        if wait > 0:
            soonest = wait if plan.requeue_after is None else min(wait, plan.requeue_after)
            return replace(plan, pods_started=None, requeue_after=soonest)
        budget.spend()
        budget.started_since = None
        return plan

    def forget(self, key: Key) -> None:
        """The workload is gone."""
        self._budgets.pop(key, None)
