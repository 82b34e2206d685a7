# SPDX-License-Identifier: Apache-2.0
"""What a CronJob needs next; scenarios with events are compared with a real cluster in tests/component/controllers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from devcluster.controllers import cron_sync
from devcluster.controllers.cron_sync import CronPlan, RemovedJobs

NOW = datetime(2026, 11, 22, 11, 0, 30, tzinfo=UTC)
MINUTE = 29_922_420
"""11:00 in minutes since the epoch."""


def cron(*, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    base = {"schedule": "0 * * * *", "concurrencyPolicy": "Allow", "jobTemplate": {"spec": {"template": {}}}}
    created = "2026-11-22T10:30:00Z"
    metadata = {"name": "c", "namespace": "n", "uid": "cron-uid", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {**base, **spec}, "status": status or {}}


def job(name: str, *, end: str = "", started: str | None = "2026-11-22T10:00:00Z") -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": end, "status": "True"}]} if end else {}
    if started is not None:
        status["startTime"] = started
    if end == "Complete":
        status["completionTime"] = "2026-11-22T10:05:00Z"
    return {
        "metadata": {"name": name, "uid": f"{name}-uid", "namespace": "n", "resourceVersion": "1"},
        "status": status,
    }


def plan(value: dict[str, Any], *jobs: dict[str, Any], now: datetime = NOW) -> CronPlan:
    return cron_sync.plan(value, jobs, removed=RemovedJobs(), now=now)


def reasons(found: CronPlan) -> list[str]:
    return [event.reason for event in found.events]


def test_a_job_is_started_for_the_time_that_is_due_and_named_by_it() -> None:
    found = plan(cron())
    assert found.start is not None
    assert found.start.body["metadata"]["name"] == f"c-{MINUTE}"
    assert found.after == pytest.approx(3600 - 30 + 0.1)


def test_the_start_is_entered_into_the_status_once() -> None:
    value = cron()
    start = plan(value).start
    assert start is not None
    cron_sync.activate(value["status"], job(f"c-{MINUTE}"), start.scheduled)
    assert value["status"]["lastScheduleTime"] == "2026-11-22T11:00:00Z"
    assert plan(value, job(f"c-{MINUTE}")).start is None


def test_before_it_is_time_nothing_is_started() -> None:
    found = plan(cron(), now=datetime(2026, 11, 22, 10, 59, 59, tzinfo=UTC))
    assert found.start is None
    assert found.after == pytest.approx(1.1)


def test_a_suspended_cron_job_starts_nothing_and_asks_for_no_other_look() -> None:
    found = plan(cron(suspend=True))
    assert (found.start, found.after, found.events) == (None, None, [])


def test_a_deleted_cron_job_starts_nothing() -> None:
    value = cron()
    value["metadata"]["deletionTimestamp"] = "2026-11-22T11:00:10Z"
    assert plan(value).start is None


@pytest.mark.parametrize(("deadline", "starts"), [(31, True), (30, False), (2**63 - 1, True)])
def test_a_start_is_missed_once_its_deadline_is_over(deadline: int, starts: bool) -> None:
    found = plan(cron(startingDeadlineSeconds=deadline, schedule="* * * * *"), now=NOW.replace(second=30))
    assert (found.start is not None) is starts


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedule": "whim"}, "UnparseableSchedule"),
        ({"schedule": "0 0 31 2 *"}, "InvalidSchedule"),
        ({"timeZone": "Nowhere"}, "UnknownTimeZone"),
    ],
)
def test_an_invalid_schedule_gets_an_event_and_no_requeue(spec: dict[str, Any], reason: str) -> None:
    found = plan(cron(**spec))
    assert (reasons(found), found.start, found.after) == ([reason], None, None)


def test_a_job_missing_in_the_status_gets_an_event() -> None:
    assert "UnexpectedJob" in reasons(plan(cron(), job("stray")))


def test_the_oldest_ended_jobs_beyond_the_limits_are_outdated() -> None:
    value = cron(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    jobs = [
        job("new", end="Complete", started="2026-11-22T09:00:00Z"),
        job("old", end="Complete", started="2026-11-22T08:00:00Z"),
        job("bad", end="Failed", started=None),
        job("runs"),
    ]
    assert [one["metadata"]["name"] for one in cron_sync.outdated(value, jobs)] == ["old", "bad"]


def test_without_limits_no_job_is_outdated() -> None:
    assert cron_sync.outdated(cron(), [job("old", end="Complete")]) == []
