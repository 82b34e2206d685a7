# SPDX-License-Identifier: Apache-2.0
"""What the demo reads from Jobs, Workloads and the journal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.cli.demo_jobs import Stage, jobs, row, workload_by_job, wrong_runs
from multikueue.devcluster.nodes.journal import STARTED, Entry

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
CREATED = "2026-01-01T00:00:00Z"


def job(*conditions: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": "demo-01", "uid": "j", "creationTimestamp": CREATED},
        "spec": {"completions": 2},
        "status": {"succeeded": 1, "conditions": [{"type": name, "status": "True"} for name in conditions]},
    }


def workload(*conditions: str, cluster: str = "") -> dict[str, Any]:
    time = "2026-01-01T00:00:04Z"
    return {
        "metadata": {"ownerReferences": [{"uid": "j"}]},
        "status": {
            "clusterName": cluster,
            "conditions": [
                {"type": name, "status": "True", "message": "m", "lastTransitionTime": time} for name in conditions
            ],
        },
    }


@pytest.mark.parametrize(
    ("given", "owned", "want"),
    [
        (job(), None, Stage.SUBMITTED),
        (job(), workload(), Stage.QUEUED),
        (job(), workload("QuotaReserved"), Stage.DISPATCHING),
        (job(), workload("QuotaReserved", "Admitted"), Stage.RUNNING),
        (job("Complete"), workload("QuotaReserved", "Admitted", "Finished"), Stage.FINISHED),
        (job("Failed"), workload("Finished"), Stage.FAILED),
    ],
)
def test_stages(given: dict[str, Any], owned: dict[str, Any] | None, want: Stage) -> None:
    assert row(given, owned, now=NOW).stage is want


def test_a_job_waited_until_it_was_admitted() -> None:
    assert row(job(), workload("Admitted"), now=NOW).queued_seconds == 4.0
    assert row(job(), workload(), now=NOW).queued_seconds == 10.0


def test_a_running_job_names_its_cluster() -> None:
    assert row(job(), workload("Admitted", cluster="worker-2"), now=NOW).cluster == "worker-2"


def test_workloads_are_found_by_their_job() -> None:
    assert list(workload_by_job([workload()])) == ["j"]


def test_jobs_go_to_both_teams_by_turns() -> None:
    submitted = jobs(20)
    assert len({(job["metadata"]["namespace"], job["metadata"]["name"]) for job in submitted}) == 20
    assert [job["metadata"]["namespace"] for job in submitted[:3]] == ["team-a", "team-b", "team-a"]


def started(number: int, *, cluster: str = "worker-1", owner: str = "Job/demo-01", namespace: str = "team-a") -> Entry:
    return Entry(
        time=CREATED,
        cluster=cluster,
        event=STARTED,
        namespace=namespace,
        pod=f"p{number}",
        uid=f"u{number}",
        node="n",
        owner=owner,
    )


@pytest.mark.parametrize(
    ("entries", "want"),
    [
        pytest.param([started(1)], [], id="one pod ran once"),
        pytest.param([started(1), started(1)], [], id="a line that was written twice is one start"),
        pytest.param([], ["Job team-a/demo-01: 0 pods ran on [], wanted 1 on one cluster"], id="nothing ran"),
        pytest.param(
            [started(1), started(2, cluster="worker-2")],
            ["Job team-a/demo-01: 2 pods ran on ['worker-1', 'worker-2'], wanted 1 on one cluster"],
            id="it ran on two clusters",
        ),
        pytest.param(
            [started(1), started(2, owner="Job/other")],
            ["Job/other in team-a ran and was never submitted"],
            id="a stranger ran",
        ),
    ],
)
def test_runs_are_counted(entries: list[Entry], want: list[str]) -> None:
    assert wrong_runs(jobs(1), entries) == want
