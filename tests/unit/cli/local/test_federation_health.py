# SPDX-License-Identifier: Apache-2.0
"""What of a federation counts as down, from the objects of its hub."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from multikueue.cli.local.federation_health import judge
from multikueue.core.timestamps import format_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(*, status: str = "True", reason: str = "Active", message: str = "Connected") -> dict[str, Any]:
    condition = {"type": "Active", "status": status, "reason": reason, "message": message}
    return {"metadata": {"name": "w"}, "status": {"conditions": [condition]}}


def lease(age: float) -> dict[str, Any]:
    renewed = format_time(NOW - timedelta(seconds=age))
    return {
        "metadata": {"name": "agent", "namespace": "mk-w"},
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 40},
    }


def workload(*conditions: str, active: bool = True, on: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": "x"},
        "spec": {"active": active},
        "status": {"clusterName": on, "conditions": [{"type": each, "status": "True"} for each in conditions]},
    }


def test_a_worker_in_contact_is_no_problem() -> None:
    health = judge([cluster()], [lease(3)], [], [], now=NOW)
    assert health.problems == []
    assert health.workers[0].contact_age == 3


def test_an_expired_lease_is_a_problem_also_before_a_manager_has_seen_it() -> None:
    (problem,) = judge([cluster()], [lease(41)], [], [], now=NOW).problems
    assert problem == "worker w: its agent was last in contact 41 s ago, expected every 40 s"


def test_a_worker_that_is_not_active_is_a_problem_with_its_reason() -> None:
    found = cluster(status="False", reason="AgentLost", message="no heartbeat")
    assert judge([found], [lease(1)], [], [], now=NOW).problems == ["worker w: AgentLost: no heartbeat"]


def test_a_worker_without_a_condition_is_not_connected() -> None:
    (problem,) = judge([{"metadata": {"name": "w"}}], [], [], [], now=NOW).problems
    assert "the manager has not connected to it yet" in problem


def test_a_cluster_that_the_manager_reaches_by_kubeconfig_has_no_contact_of_an_agent() -> None:
    health = judge([cluster()], [], [], [], now=NOW)
    assert (health.problems, health.workers[0].contact_age) == ([], None)


@pytest.mark.parametrize("text", ["yesterday", "9999999"])
def test_a_time_that_is_none_in_a_lease_is_no_contact(text: str) -> None:
    broken = lease(0)
    broken["spec"]["renewTime"] = text
    assert len(judge([cluster()], [broken], [], [], now=NOW).problems) == 1


def test_workloads_are_counted_by_how_far_they_are() -> None:
    found = [
        workload(),
        workload("QuotaReserved"),
        workload("QuotaReserved", "Admitted", on="w"),
        workload("QuotaReserved", "Admitted", "Finished", on="w"),
        workload(active=False),
    ]
    health = judge([cluster()], [lease(0)], [], found, now=NOW)
    assert health.workloads == {
        "waiting for quota": 1,
        "waiting for admission checks": 1,
        "admitted": 1,
        "finished": 1,
        "inactive": 1,
    }
    assert health.workers[0].workloads == 1


def test_a_check_of_a_queue_whose_controller_does_not_run_is_a_problem_that_names_it_and_what_to_do() -> None:
    queue = {
        "metadata": {"name": "cq"},
        "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}},
    }
    checks = [
        {"metadata": {"name": name}, "spec": {"controllerName": "example.com/budget"}} for name in ("budget", "unused")
    ]
    health = judge([], [], [queue], [], checks=checks, now=NOW)
    assert health.problems == [
        "AdmissionCheck budget of example.com/budget: no controller has set the Active condition of the AdmissionCheck;"
        ' start or repair the controller that serves controllerName "example.com/budget"'
    ]
