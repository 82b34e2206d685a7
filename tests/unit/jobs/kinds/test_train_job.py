# SPDX-License-Identifier: Apache-2.0
"""The pods of a TrainJob, and the runtime patch that admission writes."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.jobs.framework.capabilities import RecordedPods, RuntimeReference
from multikueue.jobs.framework.protocol import InjectionConflict, Reclaimable
from multikueue.jobs.kinds.train_job import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, TrainJobIntegration
from multikueue.jobs.kinds.training_runtime import PATCH_MANAGER
from tests.unit.jobs.declared.builders import (
    IDENTITY,
    SPOT,
    TOLERATION,
    example,
    infos,
    kind_of,
    workload,
    written,
)


def patch(manager: str, pod: Any, name: str = "node") -> dict[str, Any]:
    job = {"name": name, "template": {"spec": {"template": pod}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def train_job(*patches: Any, **trainer: Any) -> dict[str, Any]:
    job = example("trainjob")
    job["spec"]["trainer"] |= trainer
    if patches:
        job["spec"]["runtimePatches"] = list(patches)
    return job


OWN = {"key": "own", "operator": "Exists"}
LAUNCHED: dict[str, Any] = {
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch-distributed"},
    "spec": {
        "mlPolicy": {"numNodes": 3},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "launcher",
                        "template": {
                            "spec": {"template": {"spec": {"containers": [{"name": "l", "image": "launch"}]}}}
                        },
                    },
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "template": {
                                    "spec": {"containers": [{"name": "node", "image": "n"}], "tolerations": [OWN]}
                                }
                            },
                        },
                    },
                ]
            }
        },
    },
}


def runtime_kind() -> TrainJobIntegration:
    kind = kind_of(example("trainjob"))
    assert isinstance(kind, TrainJobIntegration)
    return kind


def test_the_pod_has_what_the_trainer_and_the_patches_of_the_nodes_say() -> None:
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"zone": "z"}, "tolerations": [TOLERATION]}}
    other = patch("sdk", {"spec": {"nodeSelector": {"not": "here"}}}, name="model-initializer")
    job = train_job(patch("user", own), other)
    (pod_set,) = kind_of(job).pod_sets(job)
    pod = pod_set["template"]
    assert pod["metadata"]["labels"] == {"a": "b"}
    assert pod["spec"]["nodeSelector"] == {"zone": "z"}
    assert pod["spec"]["tolerations"] == [TOLERATION]
    assert pod["spec"]["containers"][0]["image"] == "registry.example/train:1"


def test_admission_adds_one_patch_and_stopping_removes_it() -> None:
    job = train_job(patch("user", {"spec": {"nodeSelector": {"zone": "z"}, "tolerations": [TOLERATION]}}))
    kind = kind_of(job)
    started = written(job, kind.start(job, infos(job, kind)))
    users, ours = started["spec"]["runtimePatches"]
    assert users == job["spec"]["runtimePatches"][0]
    assert ours["manager"] == PATCH_MANAGER
    # The toleration that the user has is not added twice.
    pod = {"metadata": {"labels": {"kueue.x-k8s.io/podset": "node"}}, "spec": {"nodeSelector": SPOT}}
    assert ours == patch(PATCH_MANAGER, pod)
    stopped = written(started, kind.stop(started, workload(job, kind)["spec"]["podSets"]))
    assert stopped == job


def test_a_remote_job_has_no_patch_of_an_admission_on_the_hub() -> None:
    job = train_job()
    kind = kind_of(job)
    started = written(job, kind.start(job, infos(job, kind)))
    remote = kind.remote_manifest(started, (), identity=IDENTITY)
    (ours,) = remote["spec"]["runtimePatches"]
    label = {"kueue.x-k8s.io/multikueue-worker-workload-pod": "true"}
    assert ours == patch(PATCH_MANAGER, {"metadata": {"labels": label}})


def test_a_selector_of_the_user_is_not_overwritten() -> None:
    job = train_job(patch("user", {"spec": {"nodeSelector": {"pool": "mine"}}}))
    with pytest.raises(InjectionConflict, match='nodeSelector "pool" is already "mine"'):
        kind_of(job).start(job, infos(job, kind_of(job)))


@pytest.mark.parametrize("changes", [{"numNodes": None}, {"resourcesPerNode": None}])
def test_a_job_that_leaves_its_nodes_to_a_runtime_needs_it(changes: Any) -> None:
    job = train_job(**changes)
    with pytest.raises(BadInput, match=r"spec.runtimeRef: ClusterTrainingRuntime torch-distributed not found"):
        kind_of(job).pod_sets(job)


def test_the_webhook_takes_a_job_before_its_runtime() -> None:
    job = train_job(numNodes=None)
    assert kind_of(job).job_refusals(job) == ()


def test_the_webhook_refuses_what_no_runtime_makes_valid() -> None:
    job = train_job(numNodes="x")
    (refusal,) = kind_of(job).job_refusals(job)
    assert refusal == 'spec.trainer.numNodes: expected a whole number from 0 to 2147483647, found "x"'


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        (None, "None"),
        ({"kind": "Other", "name": "r"}, "Other"),
        ({"apiGroup": "other", "name": "r"}, "other"),
        ({"name": 1}, "1"),
    ],
)
def test_only_runtimes_describe_pods(reference: Any, found: str) -> None:
    job = train_job(numNodes=None)
    job["spec"]["runtimeRef"] = reference
    assert runtime_kind().runtime_of(job) is None
    expected = f"spec.runtimeRef: expected a TrainingRuntime or a ClusterTrainingRuntime, found .*{found}"
    with pytest.raises(BadInput, match=expected):
        runtime_kind().pod_sets(job)


def test_a_training_runtime_is_one_of_the_jobs_namespace() -> None:
    job = train_job()
    assert runtime_kind().runtime_of(job) == RuntimeReference(CLUSTER_TRAINING_RUNTIMES, Key("", "torch-distributed"))
    job["spec"]["runtimeRef"] = {"kind": "TrainingRuntime", "name": "own"}
    assert runtime_kind().runtime_of(job) == RuntimeReference(TRAINING_RUNTIMES, Key("team-a", "own"))


def described(job: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The job with a runtime of a launcher that is no node, and nodes with a toleration of their own."""
    return runtime_kind().with_runtime(job, LAUNCHED | changes)


def test_each_replicated_job_is_a_pod_set() -> None:
    job = described(train_job(numNodes=None))
    launcher, node = runtime_kind().pod_sets(job)
    assert [(each["name"], each["count"]) for each in (launcher, node)] == [("launcher", 1), ("node", 3)]
    assert launcher["template"]["spec"]["containers"][0]["image"] == "launch"
    assert runtime_kind().job_refusals(job) == ()


def test_admission_patches_each_pod_set_and_keeps_the_tolerations_of_the_runtime() -> None:
    kind, job = runtime_kind(), described(train_job(numNodes=None))
    started = written(job, kind.start(job, infos(job, kind)))
    (ours,) = started["spec"]["runtimePatches"]
    launcher, node = ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert launcher["template"]["spec"]["template"]["spec"]["tolerations"] == [TOLERATION]
    # The list of a patch replaces that of the runtime.
    assert node["template"]["spec"]["template"]["spec"]["tolerations"] == [OWN, TOLERATION]
    assert kind.matches(started, workload(job, kind), infos(job, kind))
    assert written(started, kind.stop(started, workload(job, kind)["spec"]["podSets"])) == job


def test_what_kueue_has_started_matches_though_its_patch_has_the_flavors_tolerations_alone() -> None:
    kind, job = runtime_kind(), described(train_job())
    started = written(job, kind.start(job, infos(job, kind)))
    for entry in started["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
        entry["template"]["spec"]["template"]["spec"]["tolerations"] = [TOLERATION]
    assert kind.matches(started, workload(job, kind), infos(job, kind))


def test_a_runtime_that_changes_or_breaks_while_a_job_runs_does_not_stop_it() -> None:
    kind, job = runtime_kind(), train_job(numNodes=None)
    made = workload(described(job), kind)
    for runtime in (
        LAUNCHED | {"spec": {"mlPolicy": {"numNodes": 9}, **LAUNCHED["spec"]}},
        LAUNCHED | {"spec": {}},
        None,
    ):
        changed = kind.with_runtime(job, runtime, recorded=RecordedPods(made["spec"]["podSets"], "v"))
        assert kind.matches(changed, made)


def test_recorded_pods_have_what_the_job_says_of_them() -> None:
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"zone": "z"}, "tolerations": [TOLERATION]}}
    kind, job = runtime_kind(), train_job(patch("user", own), numNodes=2)
    made = workload(described(job), kind)
    recorded = kind.with_runtime(job, None, recorded=RecordedPods(made["spec"]["podSets"], "v"))
    assert kind.matches(recorded, made)
    started = written(recorded, kind.start(recorded, infos(recorded, kind)))
    assert kind.matches(started, made, infos(recorded, kind))


def test_a_remote_job_has_what_its_user_wrote_and_no_field_of_ours() -> None:
    kind, job = runtime_kind(), train_job(numNodes=None)
    pod_sets = workload(described(job), kind)["spec"]["podSets"]
    remote = kind.remote_manifest(kind.with_pod_sets(job, pod_sets), (), identity=IDENTITY)
    assert remote.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert remote["spec"]["trainer"] == job["spec"]["trainer"]
    queued = kind.queued_manifest(remote, pod_sets)
    assert (queued.keys(), queued["spec"]["suspend"]) == (remote.keys(), True)
    assert kind.local_manifest(queued)["spec"]["trainer"] == job["spec"]["trainer"]


def test_pods_are_ready_and_reclaimed_by_replicated_job() -> None:
    kind, job = runtime_kind(), described(train_job(numNodes=None))
    job["status"] = {"jobsStatus": [{"name": "launcher", "ready": 0, "succeeded": 1}, {"name": "node", "ready": 1}]}
    assert kind.pods_ready(job)
    assert kind.reclaimable(job) == (Reclaimable(name="launcher", count=1),)
    job["status"]["jobsStatus"][1] = {"name": "node", "ready": 0, "succeeded": 0}
    assert not kind.pods_ready(job)


def test_without_pod_sets_that_are_known_it_has_none() -> None:
    """An agent that has restarted knows what it runs, and not of which pods it is."""
    assert runtime_kind().pod_sets(runtime_kind().with_pod_sets(train_job(numNodes=None), ())) == ()


@pytest.mark.parametrize("patches", ["x", [1]])
def test_patches_of_another_shape_are_refused(patches: Any) -> None:
    job = train_job()
    job["spec"]["runtimePatches"] = patches
    with pytest.raises(BadInput, match=r"spec.runtimePatches: expected a list of objects"):
        kind_of(job).pod_sets(job)
