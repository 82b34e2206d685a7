# SPDX-License-Identifier: Apache-2.0
"""RemoteAssignments between managers and agents of different versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.dispatch.protocol.job_problems import MAX_MESSAGE, StartProblem
from multikueue.dispatch.protocol.wire import reported_reason, status_of, status_wire
from multikueue.dispatch.worker.assignment_state import NAME_CONFLICT, NO_CAPACITY, ReportedStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def assignment(reason: str) -> dict[str, Any]:
    status = {"epoch": 1, "phase": "Pending", "reason": reason, "message": "full"}
    return {"metadata": {"name": "a", "namespace": "mk-w"}, "spec": {"epoch": 1}, "status": status}


@pytest.mark.parametrize("written", ["NoRoom", "NoCapacity"], ids=["version 0.1", "a later version"])
def test_a_lack_of_capacity_is_understood_from_agents_of_both_versions(written: str) -> None:
    assert status_of(assignment(written)).reason == NO_CAPACITY == "NoCapacity"
    assert reported_reason(assignment(written)["status"]) == NO_CAPACITY


def test_a_lack_of_capacity_is_written_as_hubs_of_version_0_1_read_it() -> None:
    status = ReportedStatus(epoch=1, phase=AssignmentPhase.PENDING, reason=NO_CAPACITY, message="full")
    written = status_wire(status, sequence=1, boot_id="b", now=NOW)
    assert written["reason"] == "NoRoom"
    assert status_of({**assignment(""), "status": written}) == status


def test_other_reasons_are_written_as_they_are() -> None:
    status = ReportedStatus(epoch=1, phase=AssignmentPhase.REFUSED, reason=NAME_CONFLICT)
    assert status_wire(status, sequence=1, boot_id="b", now=NOW)["reason"] == NAME_CONFLICT


def reported(condition: dict[str, Any]) -> dict[str, Any]:
    """An assignment of a running job with that condition."""
    status = {"epoch": 1, "phase": "Running", "conditions": [condition]}
    return {**assignment(""), "status": status}


def not_started(**changes: Any) -> dict[str, Any]:
    """The condition of a job without a started pod."""
    time = "2026-01-01T00:00:00Z"
    entry = {"type": "PodsStarted", "status": "False", "reason": "FailedCreate", "message": "m"}
    return {**entry, "lastTransitionTime": time, **changes}


def test_why_pods_do_not_start_is_a_condition_that_former_hubs_ignore() -> None:
    problem = StartProblem("FailedCreate", "m", NOW)
    status = ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, start_problem=problem, blocked_since=NOW)
    written = status_wire(status, sequence=1, boot_id="b", now=NOW)
    assert [each["type"] for each in written["conditions"]] == ["BlockedOnPreemptionGates", "PodsStarted"]
    assert written["conditions"][1] == not_started()
    found = status_of({**assignment(""), "status": written})
    assert found == status
    assert found.start_problem is not None
    assert found.start_problem.since == NOW


def test_why_a_change_is_not_made_is_a_condition_too_and_its_texts_are_judged_in_the_same_way() -> None:
    refused = StartProblem("ForbiddenByPolicy", "m", NOW)
    status = ReportedStatus(epoch=1, phase=AssignmentPhase.RUNNING, refused_change=refused)
    written = status_wire(status, sequence=1, boot_id="b", now=NOW)
    assert written["conditions"] == [not_started(type="ChangeForwarded", reason="ForbiddenByPolicy")]
    assert status_of({**assignment(""), "status": written}) == status
    hostile = status_of(reported(not_started(type="ChangeForwarded", reason="a b", message="\x1b" * 9000)))
    assert hostile.start_problem is None
    assert hostile.refused_change is not None
    assert hostile.refused_change.reason == "ForbiddenByPolicy"
    assert len(hostile.refused_change.message) <= MAX_MESSAGE


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "yesterday", "", None, 5], ids=str)
def test_a_time_of_a_worker_that_cannot_be_read_costs_nothing_else(time: Any) -> None:
    found = status_of(reported(not_started(lastTransitionTime=time))).start_problem
    assert found == StartProblem("FailedCreate", "m")
    assert found is not None
    assert found.since is None


@pytest.mark.parametrize("changes", [{"status": "True"}, {"status": "Unknown"}, {"type": "Other"}], ids=str)
def test_only_a_condition_that_is_false_is_a_problem(changes: dict[str, str]) -> None:
    assert status_of(reported(not_started(**changes))).start_problem is None


def test_texts_of_a_worker_are_cut_and_made_printable() -> None:
    found = status_of(reported(not_started(reason="a b", message="\x1b[2J" + "x" * 30_000))).start_problem
    assert found is not None
    assert found.reason == "PodsNotStarted"
    assert found.message.startswith("\\x1b[2Jxxx")
    assert len(found.message) == MAX_MESSAGE
