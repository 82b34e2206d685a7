# SPDX-License-Identifier: Apache-2.0
"""How fast reports of workers about their pods become writes of the hub."""

from __future__ import annotations

from manager.dispatch.reported.change_budget import CHANGES_AT_ONCE
from manager.dispatch.reported.start_reports import UNCONTRADICTED_SECONDS, StartReports
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan, Rule, StartUpdate

KEY = Key("ns", "wl")
STARTED = StartUpdate()


def planned(update: StartUpdate | None, after: float | None = None) -> DispatchPlan:
    """A plan with that change."""
    return DispatchPlan(rule=Rule.GRANTED, pods_started=update, requeue_after=after)


def failing(text: str = "x") -> StartUpdate:
    """A change to a problem."""
    return StartUpdate("FailedCreate", text)


def test_the_first_problem_is_written_at_once() -> None:
    plan = planned(failing())
    assert StartReports().admit(KEY, plan, now=0.0) is plan


def test_that_the_pods_started_is_written_once_it_was_not_contradicted() -> None:
    reports = StartReports()
    held = reports.admit(KEY, planned(STARTED), now=0.0)
    assert held.pods_started is None
    assert held.requeue_after == UNCONTRADICTED_SECONDS
    assert reports.admit(KEY, planned(STARTED), now=UNCONTRADICTED_SECONDS).pods_started == STARTED


def test_a_contradiction_begins_the_wait_anew() -> None:
    reports = StartReports()
    reports.admit(KEY, planned(STARTED), now=0.0)
    reports.admit(KEY, planned(None), now=5.0)
    assert reports.admit(KEY, planned(STARTED), now=10.0).pods_started is None


def test_a_worker_that_changes_its_report_each_second_causes_a_write_a_minute() -> None:
    reports = StartReports()
    writes = sum(
        reports.admit(KEY, planned(failing(str(second))), now=float(second)).pods_started is not None
        for second in range(3600)
    )
    assert writes == CHANGES_AT_ONCE + 59


def test_a_worker_that_withdraws_its_report_each_second_causes_no_write() -> None:
    reports = StartReports()
    shown: StartUpdate | None = None
    writes = 0
    for second in range(3600):
        wanted = failing() if second % 2 == 0 else STARTED
        change = None if wanted == shown or (shown is None and wanted == STARTED) else wanted
        if reports.admit(KEY, planned(change), now=float(second)).pods_started is not None:
            shown = wanted
            writes += 1
    assert writes == 1


def test_an_earlier_requeue_stays() -> None:
    reports = StartReports()
    assert reports.admit(KEY, planned(STARTED, after=2.0), now=0.0).requeue_after == 2.0


def test_each_workload_has_its_own_budget_and_loses_it_when_it_is_gone() -> None:
    reports = StartReports()
    for number in range(CHANGES_AT_ONCE):
        assert reports.admit(KEY, planned(failing(str(number))), now=0.0).pods_started is not None
    assert reports.admit(KEY, planned(failing("one more")), now=0.0).pods_started is None
    assert reports.admit(Key("ns", "other"), planned(failing()), now=0.0).pods_started is not None
    reports.forget(KEY)
    assert reports.admit(KEY, planned(failing()), now=0.0).pods_started is not None
