# SPDX-License-Identifier: Apache-2.0
"""Which Workloads of an owner cover its jobs, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from manager.owners.owner_quota import coverage

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


def workload(*conditions: str, at: Any = "2026-01-01T12:00:00Z") -> dict[str, Any]:
    found = [{"type": name, "status": "True", "lastTransitionTime": at} for name in conditions]
    return {"status": {"conditions": found}}


def on_a_worker() -> dict[str, Any]:
    found = workload("Admitted")
    found["status"]["clusterName"] = "west"
    return found


@pytest.mark.parametrize(
    ("one", "lack", "ends"),
    [
        pytest.param(workload(), "is not admitted", None, id="one that waits"),
        pytest.param(workload("QuotaReserved"), "is not admitted", None, id="one with quota only"),
        pytest.param(workload("Admitted"), "", None, id="one that is admitted"),
        pytest.param(workload("Admitted", "Finished"), "", 30.0, id="one that has just finished"),
        pytest.param(
            workload("Admitted", "Finished", at="2026-01-01T11:59:30Z"), "has finished", None, id="a minute later"
        ),
        pytest.param(
            workload("Admitted", "Finished", at="2099-01-01T00:00:00Z"), "has finished", None, id="in the future"
        ),
        pytest.param(workload("Admitted", "Finished", at="soon"), "has finished", None, id="at an unreadable time"),
        pytest.param(workload("Admitted", "Finished", at=None), "has finished", None, id="without a time"),
        pytest.param(on_a_worker(), "runs on a worker cluster", None, id="one that runs elsewhere"),
    ],
)
def test_a_workload_covers_jobs_for_a_minute_after_it_has_finished(
    one: dict[str, Any], lack: str, ends: float | None
) -> None:
    found = coverage([one], now=NOW)
    assert found.workloads == (() if lack else (one,))
    assert found.ends == ends
    if lack:
        assert found.lack == lack


def test_the_first_end_counts_where_several_have_finished() -> None:
    ended = [workload("Admitted", "Finished", at=f"2026-01-01T12:00:{second}Z") for second in ("00", "10")]
    assert coverage([workload("Admitted"), *ended], now=NOW).ends == 30.0
