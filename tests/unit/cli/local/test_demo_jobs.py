# SPDX-License-Identifier: Apache-2.0
"""What the demo reads from Jobs, Workloads and the journal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from devcluster.kubelet.journal import STARTED, JournalEntry
from multikueue.cli.local.demo_jobs import Stage, jobs, row, workload_by_job, wrong_runs
from multikueue.cli.local.demo_kinds import FRAMEWORKS, KINDS, pods_by_owner
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import JobRegistry, known_integrations

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


def started(
    number: int, *, cluster: str = "worker-1", owner: str = "Job/demo-01", namespace: str = "team-a"
) -> JournalEntry:
    return JournalEntry(
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
        pytest.param([], ["Job team-a/demo-01: 0 pods ran on [], expected 1 on one cluster"], id="nothing ran"),
        pytest.param(
            [started(1), started(2, cluster="worker-2")],
            ["Job team-a/demo-01: 2 pods ran on ['worker-1', 'worker-2'], expected 1 on one cluster"],
            id="it ran on two clusters",
        ),
        pytest.param(
            [started(1), started(2, owner="Job/other")],
            ["Job/other in team-a ran but was never submitted"],
            id="a stranger ran",
        ),
    ],
)
def test_runs_are_counted(entries: list[JournalEntry], want: list[str]) -> None:
    assert wrong_runs(jobs(1), entries) == want


def integration_of(job: dict[str, Any]) -> JobIntegration:
    found = JobRegistry(FRAMEWORKS, known=known_integrations()).for_kind(job["apiVersion"], job["kind"])
    assert found is not None
    return found


MIXED = jobs(12, mixed=True)[::2]


def named(job: dict[str, Any]) -> str:
    group = job["metadata"]["labels"].get("kueue.x-k8s.io/pod-group-name")
    return "pod group" if group else str(job["kind"])


def test_a_mixed_demo_has_every_kind_for_both_teams() -> None:
    submitted = jobs(24, mixed=True)
    for team in ("team-a", "team-b"):
        kinds = {named(each) for each in submitted if each["metadata"]["namespace"] == team}
        assert kinds == {"Job", "JobSet", "PyTorchJob", "RayJob", "Pod", "pod group"}
    assert {each["kind"] for each in jobs(20)} == {"Job"}


@pytest.mark.parametrize(("count", "members"), [(12, 2), (11, 1)], ids=["both pods", "one is left"])
def test_the_pods_of_a_group_are_of_one_team_and_their_number_is_known(count: int, members: int) -> None:
    found = [each["metadata"] for each in jobs(count, mixed=True) if named(each) == "pod group"]
    assert [each["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for each in found] == [str(members)] * members
    assert len({(each["namespace"], each["labels"]["kueue.x-k8s.io/pod-group-name"]) for each in found}) == 1


@pytest.mark.parametrize("submitted", MIXED, ids=named)
def test_a_job_of_a_kind_makes_the_pods_for_which_it_gets_quota(submitted: dict[str, Any]) -> None:
    pod_sets = integration_of(submitted).pod_sets(submitted)
    assert sum(pods_by_owner(submitted).values()) == sum(each["count"] for each in pod_sets)


@pytest.mark.parametrize("submitted", MIXED, ids=named)
def test_a_pod_that_ran_twice_or_elsewhere_is_named_for_every_kind(submitted: dict[str, Any]) -> None:
    owners = [owner for owner, count in pods_by_owner(submitted).items() for _ in range(count)]
    is_pod = submitted["kind"] == "Pod"
    once = [
        replace(started(number, owner=owner), **({"owner": "", "pod": submitted["metadata"]["name"]} if is_pod else {}))
        for number, owner in enumerate(owners)
    ]
    assert wrong_runs([submitted], once) == []
    (problem,) = wrong_runs([submitted], [*once, started(99, owner=owners[0])])
    assert problem.startswith(f"{submitted['kind']} team-a/{submitted['metadata']['name']}: ")
    assert wrong_runs([submitted], [*once, started(99, cluster="worker-2", owner=owners[0])])
    assert wrong_runs([submitted], once[1:])


def test_a_kind_of_the_demo_is_known_by_its_framework() -> None:
    known = known_integrations()
    assert {known[framework].resource for framework in KINDS.values()} == set(KINDS)


def test_a_finished_job_of_another_kind_shows_all_of_its_pods() -> None:
    (submitted,) = (each for each in MIXED if each["kind"] == "RayJob")
    stored = {**submitted, "metadata": submitted["metadata"] | {"uid": "j", "creationTimestamp": CREATED}}
    ended = stored | {"status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}}
    kind = integration_of(submitted)
    shown = [row(each, workload("Admitted"), now=NOW, integration=kind) for each in (stored, ended)]
    assert [(each.stage, each.succeeded, each.completions) for each in shown] == [
        (Stage.RUNNING, 0, 3),
        (Stage.FINISHED, 3, 3),
    ]
