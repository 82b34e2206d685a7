# SPDX-License-Identifier: Apache-2.0
"""How fast the reports of workers change the hub, whoever runs their agents.

An agent may write its report as often as it likes. Each accepted one may reconcile every waiting workload and write the
quota of queues: a report is accepted at once after a second without one, else one per second, always the last. What it
says of one workload is a write of the Workload and an event: a worker may change one condition five times at once, then
once a minute. That the pods have started is written once no problem was reported for ten seconds: a restarted agent
needs that time to look again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan

INTERVAL_SECONDS: Final = 1.0
CHANGES_AT_ONCE: Final = 5
SECONDS_PER_CHANGE: Final = 60.0
UNCONTRADICTED_SECONDS: Final = 10.0


class ReportIntake:
    """The reports of all clusters; `now` is of a monotonic clock."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[float, JsonObject]] = {}

    def offer(self, cluster: str, status: JsonObject, *, now: float) -> float | None:
        """Accept the report, or return the seconds after which to offer it again."""
        known = self._taken.get(cluster)
        if known is not None:
            at, current = known
            if status == current:
                return None
            # A missing report is no load: a mailbox was removed.
            if status and now - at < INTERVAL_SECONDS:
                return INTERVAL_SECONDS - (now - at)
        self._taken[cluster] = (now, status)
        return None

    def latest(self, cluster: str) -> JsonObject:
        """The last accepted report; empty while there is none."""
        known = self._taken.get(cluster)
        return {} if known is None else known[1]

    def forget(self, cluster: str) -> None:
        """The cluster is gone."""
        self._taken.pop(cluster, None)


@dataclass(slots=True)
class ChangeBudget:
    """What is left of it; `at` is of a monotonic clock."""

    at: float
    left: float = CHANGES_AT_ONCE

    def wait(self, now: float) -> float:
        """The seconds until the next change may be written; not above zero if it may be now."""
        self.left = min(CHANGES_AT_ONCE, self.left + (now - self.at) / SECONDS_PER_CHANGE)
        self.at = now
        return (1.0 - self.left) * SECONDS_PER_CHANGE

    def spend(self) -> None:
        """One change is written."""
        self.left -= 1.0


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
