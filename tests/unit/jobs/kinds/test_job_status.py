# SPDX-License-Identifier: Apache-2.0
"""What is mirrored into a Job, within what Kubernetes 1.36 accepts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.jobs.framework.protocol import StatusSync
from multikueue.jobs.kinds import job_status
from multikueue.jobs.kinds.batch_job import BATCH_JOB

T1, T2 = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
COMPLETE = [{"type": "Complete", "status": "True"}]
SUSPENDED = [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]
RUNNING = {"active": 2, "ready": 1, "startTime": T1}


def local(status: Any = None, *, suspended: bool = False) -> dict[str, Any]:
    return {"spec": {"suspend": suspended}, "status": status or {}}


def patched(found: StatusSync) -> Any:
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
def test_the_status_is_synced(of: Any, remote: Any, want: Any) -> None:
    found = job_status.synced(of, remote)
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
    assert job_status.synced(of, remote) == StatusSync()


def test_a_running_status_waits_until_the_local_job_is_started() -> None:
    found = job_status.synced(local(suspended=True), RUNNING)
    assert (found.write, found.deferred, found.retry_after) == (None, True, 2.0)


def test_a_job_that_had_run_before_is_marked_so_that_its_template_can_be_changed() -> None:
    found = job_status.synced(local({"startTime": T1}, suspended=True), RUNNING)
    assert found.deferred
    (condition,) = patched(found)["conditions"]
    assert (condition["type"], condition["reason"]) == ("Suspended", "MultiKueueAdapter")
    again = local({"startTime": T1, "conditions": [condition]}, suspended=True)
    assert job_status.synced(again, RUNNING).write is None


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


JOB_SUSPENDED = {
    "type": "Suspended",
    "status": "True",
    "reason": "JobSuspended",
    "message": "Job suspended",
    "lastProbeTime": T1,
    "lastTransitionTime": T1,
}
JOB_RESUMED = {
    "type": "Suspended",
    "status": "False",
    "reason": "JobResumed",
    "message": "Job resumed",
    "lastProbeTime": T2,
    "lastTransitionTime": T2,
}


class TestSuspended:
    """`kubectl get jobs` shows Suspended by this condition alone, and nobody else writes it for a managed Job."""

    NOW = datetime(2026, 1, 1, tzinfo=UTC)

    @staticmethod
    def managed(status: Any = None, *, suspended: bool = True, by: str = "kueue.x-k8s.io/multikueue") -> dict[str, Any]:
        job = local(status, suspended=suspended)
        job["spec"]["managedBy"] = by
        return job

    def test_a_job_that_waits_is_shown_so_as_the_job_controller_would(self) -> None:
        write = BATCH_JOB.suspended_status(self.managed(), now=self.NOW)
        assert write is not None
        assert (write.subresource, write.body) == ("status", {"status": {"conditions": [JOB_SUSPENDED]}})
        assert BATCH_JOB.suspended_status(self.managed({"conditions": [JOB_SUSPENDED]}), now=self.NOW) is None

    def test_one_that_was_resumed_before_is_shown_so_again(self) -> None:
        other = {"type": "FailureTarget", "status": "False"}
        write = BATCH_JOB.suspended_status(self.managed({"conditions": [other, JOB_RESUMED]}), now=self.NOW)
        assert write is not None
        assert write.body["status"]["conditions"] == [JOB_SUSPENDED, other]

    @pytest.mark.parametrize(
        "job",
        [
            pytest.param(managed({}, suspended=False), id="it is not suspended"),
            pytest.param(managed({"active": 1}), id="its pods run yet"),
            pytest.param(managed({"terminating": 1}), id="its pods are ending"),
            pytest.param(managed({"conditions": COMPLETE}), id="it has ended"),
            pytest.param(managed({}, by=""), id="the built-in controller writes it"),
        ],
    )
    def test_nothing_is_written_where(self, job: Any) -> None:
        assert BATCH_JOB.suspended_status(job, now=self.NOW) is None

    @pytest.mark.parametrize(
        ("of", "remote", "want"),
        [
            pytest.param(
                local({"conditions": [JOB_SUSPENDED]}),
                {"active": 1, "startTime": T2},
                [JOB_RESUMED],
                id="it runs on a worker, whose copy was never suspended",
            ),
            pytest.param(
                local({"conditions": [JOB_SUSPENDED]}),
                {"succeeded": 1, "startTime": T2, "conditions": COMPLETE},
                [JOB_RESUMED, *COMPLETE],
                id="it has ended on a worker",
            ),
            pytest.param(
                local({"conditions": [JOB_RESUMED]}),
                {"active": 1, "startTime": T2, "conditions": SUSPENDED},
                SUSPENDED,
                id="the worker suspended it",
            ),
        ],
    )
    def test_the_sync_shows_when_it_runs(self, of: Any, remote: Any, want: Any) -> None:
        assert patched(job_status.synced(of, remote))["conditions"] == want

    @pytest.mark.parametrize(
        ("of", "remote"),
        [
            pytest.param(local({"conditions": [JOB_SUSPENDED]}), {}, id="the copy has not started"),
            pytest.param(local({"conditions": [JOB_SUSPENDED]}, suspended=True), {}, id="it is suspended here"),
            pytest.param(
                local({"conditions": [JOB_SUSPENDED]}, suspended=True),
                {"conditions": [JOB_RESUMED]},
                id="it is suspended here, and the worker has not heard",
            ),
            pytest.param(
                local({"active": 1, "startTime": T2, "conditions": [JOB_RESUMED]}),
                {"active": 1, "startTime": T2},
                id="it runs, and that was said",
            ),
        ],
    )
    def test_the_sync_leaves_what_was_reported(self, of: Any, remote: Any) -> None:
        assert job_status.synced(of, remote).write is None
