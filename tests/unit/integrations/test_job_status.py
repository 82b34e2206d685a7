# SPDX-License-Identifier: Apache-2.0
"""What is mirrored into a Job, within what Kubernetes 1.36 accepts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.integrations import job_status
from multikueue.integrations.batch_job import BATCH_JOB
from multikueue.integrations.merge_patch import merge_patch
from multikueue.integrations.protocol import Mirror

T1, T2 = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
COMPLETE = [{"type": "Complete", "status": "True"}]
SUSPENDED = [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]
RUNNING = {"active": 2, "ready": 1, "startTime": T1}


def local(status: Any = None, *, suspended: bool = False) -> dict[str, Any]:
    return {"spec": {"suspend": suspended}, "status": status or {}}


def patched(found: Mirror) -> Any:
    assert found.write is not None
    assert found.write.subresource == "status"
    return found.write.body["status"]


@pytest.mark.parametrize(
    ("of", "remote", "want"),
    [
        pytest.param(local(), RUNNING, RUNNING, id="J3 a running status is shown whole"),
        pytest.param(
            local(RUNNING), {"active": 1, "startTime": T1}, {"active": 1, "ready": None}, id="what went is taken away"
        ),
        pytest.param(
            local(suspended=True),
            {"succeeded": 2, "startTime": T1, "conditions": COMPLETE},
            {"succeeded": 2, "startTime": T1, "conditions": COMPLETE},
            id="an end is shown also in a suspended job",
        ),
        pytest.param(
            local(RUNNING, suspended=True),
            {"active": 0, "ready": 0, "conditions": SUSPENDED},
            {"active": 0, "ready": 0, "startTime": None, "conditions": SUSPENDED},
            id="both are suspended",
        ),
        pytest.param(
            local({"succeeded": 2, "completedIndexes": "0,1", "failed": 1}),
            {"succeeded": 0, "active": 3},
            {"active": 3},
            id="counters never go down",
        ),
        pytest.param(
            local({"startTime": T1}), {"startTime": T2, "active": 1}, {"active": 1}, id="startTime stays once set"
        ),
        pytest.param(
            local(RUNNING),
            {"active": 0, "ready": 0, "conditions": SUSPENDED},
            {"active": 0, "ready": 0, "conditions": SUSPENDED},
            id="also when the remote was stopped before the local job",
        ),
        pytest.param(
            local({"startTime": T1}, suspended=True),
            {"startTime": T2, "conditions": COMPLETE},
            {"startTime": T2, "conditions": COMPLETE},
            id="but not in a suspended job",
        ),
    ],
)
def test_the_status_is_mirrored(of: Any, remote: Any, want: Any) -> None:
    found = job_status.mirror(of, remote)
    assert patched(found) == want
    assert not found.deferred


@pytest.mark.parametrize(
    ("of", "remote"),
    [
        pytest.param(local(RUNNING), RUNNING, id="the same"),
        pytest.param(local({"conditions": COMPLETE}), RUNNING, id="a job that has ended is left alone"),
    ],
)
def test_nothing_is_written(of: Any, remote: Any) -> None:
    assert job_status.mirror(of, remote) == Mirror()


def test_a_running_status_waits_until_the_local_job_is_started() -> None:
    found = job_status.mirror(local(suspended=True), RUNNING)
    assert (found.write, found.deferred, found.retry_after) == (None, True, 2.0)


def test_a_job_that_had_run_before_is_marked_so_that_its_template_can_be_changed() -> None:
    found = job_status.mirror(local({"startTime": T1}, suspended=True), RUNNING)
    assert found.deferred
    (condition,) = patched(found)["conditions"]
    assert (condition["type"], condition["reason"]) == ("Suspended", "MultiKueueAdapter")
    again = local({"startTime": T1, "conditions": [condition]}, suspended=True)
    assert job_status.mirror(again, RUNNING).write is None


class TestStopped:
    NOW = datetime(2026, 1, 2, tzinfo=UTC)

    def test_a_running_status_is_declared_stopped(self) -> None:
        write = BATCH_JOB.stopped_status(local(RUNNING), now=self.NOW)
        assert write is not None
        assert write.body["status"] == {"active": 0, "ready": 0, "terminating": 0}
        declared = local(RUNNING | write.body["status"])
        assert BATCH_JOB.stopped_status(declared, now=self.NOW) is None

    def test_in_a_suspended_job_it_is_marked_and_startable(self) -> None:
        write = BATCH_JOB.stopped_status(local(RUNNING, suspended=True), now=self.NOW)
        assert write is not None
        assert write.body["status"]["startTime"] is None
        assert write.body["status"]["conditions"][0]["lastTransitionTime"] == T2

    @pytest.mark.parametrize("status", [{}, {"conditions": COMPLETE, "active": 1}], ids=["never ran", "ended"])
    def test_there_is_nothing_to_declare(self, status: Any) -> None:
        assert BATCH_JOB.stopped_status(local(status), now=self.NOW) is None


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ({}, {}, {}),
        ({"a": 1}, {}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}),
        ({"a": {"b": 1}}, {"a": 3, "d": 4}, {"a": 3, "d": 4}),
    ],
)
def test_merge_patches(old: Any, new: Any, want: Any) -> None:
    assert merge_patch(old, new) == want
