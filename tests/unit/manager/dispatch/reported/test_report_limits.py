# SPDX-License-Identifier: Apache-2.0
"""How much of the manager's time and writes one cluster can cause by its reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from manager.dispatch.capacity_cache import CapacityCache
from manager.dispatch.reported.report_limits import (
    CHANGES_AT_ONCE,
    INTERVAL_SECONDS,
    UNCONTRADICTED_SECONDS,
    ReportIntake,
    StartReports,
)
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.hub.actions import DispatchPlan, Rule, StartUpdate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("ns", "wl")
STARTED = StartUpdate()


def test_a_cluster_that_reports_a_hundred_times_a_second_is_taken_up_once_a_second_and_last_with_its_last() -> None:
    clock, intake = ManualClock(), ReportIntake()
    taken: list[Any] = []
    for tick in range(1000):
        if intake.offer("w1", {"sequence": tick}, now=clock.monotonic()) is None:
            taken.append(intake.latest("w1"))
        clock.advance(0.01)
    assert 10 <= len(taken) <= 11
    left = intake.offer("w1", {"sequence": 999}, now=clock.monotonic())
    assert left is not None
    clock.advance(left)
    assert intake.offer("w1", {"sequence": 999}, now=clock.monotonic()) is None
    assert intake.latest("w1") == {"sequence": 999}


def test_the_first_report_and_one_after_a_quiet_second_are_taken_up_at_once() -> None:
    intake = ReportIntake()
    assert intake.offer("w1", {"sequence": 1}, now=0.0) is None
    assert intake.offer("w2", {"sequence": 1}, now=0.1) is None, "each cluster has a pace of its own"
    assert intake.offer("w1", {"sequence": 2}, now=INTERVAL_SECONDS) is None
    assert intake.latest("w1") == {"sequence": 2}


def test_the_same_report_is_no_news_and_its_end_is_taken_up_at_once() -> None:
    intake = ReportIntake()
    intake.offer("w1", {"sequence": 1}, now=0.0)
    assert intake.offer("w1", {"sequence": 1}, now=0.1) is None
    assert intake.offer("w1", {}, now=0.2) is None
    assert intake.latest("w1") == {}
    intake.forget("w1")
    assert intake.offer("w1", {"sequence": 1}, now=0.3) is None


def report(**free: str) -> dict[str, Any]:
    """A report of ClusterQueues with so much free, each behind the LocalQueue of its name."""
    return {
        "groups": [],
        "engine": "kueue",
        "localQueues": [{"namespace": "ns", "name": name, "clusterQueue": name} for name in free],
        "clusterQueues": [
            {"name": name, "flavors": [{"name": "f", "resources": [{"name": "cpu", "free": amount}]}]}
            for name, amount in free.items()
        ],
    }


def test_free_quota_of_a_queue_is_offered_to_those_that_wait_in_it_however_many_wait_in_others() -> None:
    woken: list[Key] = []
    capacities = CapacityCache(wake=woken.append, now=lambda: NOW)
    for number in range(100):
        capacities.queue(Key("ns", f"other-{number}"), priority=9, since=NOW, queue=Key("ns", "busy"))
    capacities.queue(Key("ns", "mine"), priority=0, since=NOW, queue=Key("ns", "idle"))
    capacities.take_report("w1", report(busy="0", idle="0"), version="1", now=NOW)
    woken.clear()
    capacities.take_report("w1", report(busy="0", idle="4"), version="2", now=NOW)
    assert Key("ns", "mine") in woken
    assert len(woken) < 30, "of the others only the first are reconciled"
    woken.clear()
    capacities.take_report("w1", report(busy="0", idle="4"), version="3", now=NOW)
    assert woken == [], "nothing has changed"


def test_quota_that_a_workload_leaves_is_offered_to_the_next_in_its_queue() -> None:
    woken: list[Key] = []
    capacities = CapacityCache(wake=woken.append, now=lambda: NOW)
    queue = Key("ns", "idle")
    capacities.settle(Key("ns", "running"), ("w1",), (), queue=queue)
    for number in range(100):
        capacities.queue(Key("ns", f"other-{number}"), priority=9, since=NOW, queue=Key("ns", "busy"))
    capacities.queue(Key("ns", "mine"), priority=0, since=NOW, queue=queue)
    capacities.settle(Key("ns", "running"), (), ())
    assert Key("ns", "mine") in woken


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
