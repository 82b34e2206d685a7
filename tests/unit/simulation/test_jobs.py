# SPDX-License-Identifier: Apache-2.0
"""Which Workload a Job becomes, and which Jobs become none."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.simulation.jobs import Classes, JobIdentity, Refusal, SimulatedJobs, owners

WORKLOAD_CLASS = "kueue.x-k8s.io"
POD_CLASS = "scheduling.k8s.io"


def job(*, labels: dict[str, str] | None = None, uid: str = "", status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "red", "uid": uid, "labels": labels or {}},
        "spec": {"template": {"spec": {"containers": []}}},
        "status": status or {},
    }


def queued(**labels: str) -> dict[str, Any]:
    return job(labels={"kueue.x-k8s.io/queue-name": "jobs"} | labels)


def jobs(
    *,
    classes: dict[tuple[str, str], dict[str, Any]] | None = None,
    local_queues: set[Key] | None = None,
    owned: set[JobIdentity] | None = None,
) -> SimulatedJobs:
    return SimulatedJobs(classes=Classes(classes or {}), local_queues=local_queues or set(), owners=owned or set())


def made(found: object) -> dict[str, Any]:
    assert isinstance(found, dict)
    return found


def test_a_job_without_a_queue_goes_to_the_one_named_default() -> None:
    workload = made(jobs(local_queues={Key("red", "default")}).workload_of(job()))
    assert workload["spec"]["queueName"] == "default"


def test_the_default_queue_of_another_namespace_is_not_its_own() -> None:
    assert jobs(local_queues={Key("blue", "default")}).workload_of(job()) is None


@pytest.mark.parametrize(
    "identity",
    [pytest.param({"name": "train"}, id="by name"), pytest.param({"uid": "u-1"}, id="by uid")],
)
def test_a_job_whose_workload_is_there_makes_no_second_one(identity: dict[str, str]) -> None:
    workload = {"metadata": {"namespace": "red", "ownerReferences": [{"kind": "Job", **identity}]}}
    owned = job(labels={"kueue.x-k8s.io/queue-name": "jobs"}, uid=identity.get("uid", ""))
    assert jobs(owned=owners([workload])).workload_of(owned) is None


def test_a_job_of_a_prebuilt_workload_makes_none() -> None:
    assert jobs().workload_of(queued(**{"kueue.x-k8s.io/prebuilt-workload-name": "mine"})) is None


def test_a_job_that_has_ended_makes_none() -> None:
    done = job(
        labels={"kueue.x-k8s.io/queue-name": "jobs"}, status={"conditions": [{"type": "Complete", "status": "True"}]}
    )
    assert jobs().workload_of(done) is None


@pytest.mark.parametrize(
    ("classes", "label", "want"),
    [
        pytest.param({}, "", 0, id="no class is zero"),
        pytest.param({(WORKLOAD_CLASS, "urgent"): {"value": 9}}, "urgent", 9, id="the class that is named"),
        pytest.param({(WORKLOAD_CLASS, "default"): {"value": 3}}, "", 3, id="the class named default"),
        pytest.param({(POD_CLASS, "any"): {"value": 4, "globalDefault": True}}, "", 4, id="the global default of pods"),
    ],
)
def test_priority_comes_from(classes: dict[tuple[str, str], dict[str, Any]], label: str, want: int) -> None:
    labels = {"kueue.x-k8s.io/priority-class": label} if label else {}
    assert made(jobs(classes=classes).workload_of(queued(**labels)))["spec"]["priority"] == want


def test_a_missing_class_is_rejected_with_the_managers_message() -> None:
    found = jobs().workload_of(queued(**{"kueue.x-k8s.io/priority-class": "gone"}))
    assert isinstance(found, Refusal)
    assert (found.workload.namespace, found.reason) == ("red", "Misconfigured")
    assert found.message.startswith("WorkloadPriorityClass gone doesn't exist")


def test_a_job_of_an_older_version_is_refused() -> None:
    with pytest.raises(BadInput, match="use batch/v1"):
        jobs().workload_of(queued() | {"apiVersion": "batch/v1beta1"})
