# SPDX-License-Identifier: Apache-2.0
"""Which Workload a Job becomes, and which Jobs become none."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.simulation.jobs import Classes, JobIdentity, Refusal, SimulatedJobs, owners

WORKLOAD_CLASS = "kueue.x-k8s.io"
TRAINER = "trainer.kubeflow.org/v1alpha1"
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


def test_a_train_job_has_the_pods_of_the_runtime_that_is_given_with_it() -> None:
    """The last one of its name counts, as when manifests are applied in turn."""

    def runtime(kind: str, *, nodes: int, **metadata: str) -> dict[str, Any]:
        template = {"spec": {"containers": [{"name": "node"}]}}
        label = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}
        node = {"name": "node", "template": {**label, "spec": {"template": template}}}
        spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [node]}}}
        return {"apiVersion": TRAINER, "kind": kind, "metadata": {"name": "r", **metadata}, "spec": spec}

    train = queued() | {"apiVersion": TRAINER, "kind": "TrainJob", "spec": {"runtimeRef": {"name": "r"}}}
    given = [runtime("ClusterTrainingRuntime", nodes=count) for count in (1, 3)]
    given += [runtime("TrainingRuntime", nodes=5, namespace="blue"), {"kind": "broken", "metadata": "x"}]
    simulated = SimulatedJobs(classes=Classes({}), local_queues=set(), owners=set(), runtimes=given)
    assert [each["count"] for each in made(simulated.workload_of(train))["spec"]["podSets"]] == [3]
    train["spec"] = {"runtimeRef": {"kind": "TrainingRuntime", "name": "r"}}
    with pytest.raises(BadInput, match="TrainingRuntime red/r not found"):
        simulated.workload_of(train)


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
