# SPDX-License-Identifier: Apache-2.0
"""How much of the manager's time and writes one cluster can cause by its reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from manager.dispatch.capacity_cache import CapacityCache
from manager.dispatch.reported.report_intake import INTERVAL_SECONDS, ReportIntake
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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
