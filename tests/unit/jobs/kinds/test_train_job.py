# SPDX-License-Identifier: Apache-2.0
"""The pods of a TrainJob, and the runtime patch that admission writes."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.framework.protocol import InjectionConflict
from multikueue.jobs.kinds.train_job import PATCH_MANAGER
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


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"numNodes": None}, "spec.trainer.numNodes: expected a number", id="nodes of the runtime"),
        pytest.param({"resourcesPerNode": None}, "spec.trainer.resourcesPerNode: expected requests", id="its requests"),
        pytest.param({"numNodes": "x"}, r"\$.spec.trainer.numNodes: expected a whole number", id="no number"),
    ],
)
def test_what_only_the_runtime_says_is_refused(changes: Any, problem: str) -> None:
    job = train_job(**changes)
    with pytest.raises(BadInput, match=problem):
        kind_of(job).pod_sets(job)


@pytest.mark.parametrize("patches", ["x", [1]])
def test_patches_of_another_shape_are_refused(patches: Any) -> None:
    job = train_job()
    job["spec"]["runtimePatches"] = patches
    with pytest.raises(BadInput, match=r"spec.runtimePatches: expected a list of objects"):
        kind_of(job).pod_sets(job)


def test_an_initializer_is_refused() -> None:
    job = train_job()
    job["spec"]["initializer"] = {"model": {}}
    (refusal,) = kind_of(job).job_refusals(job)
    assert refusal.startswith("$.spec.initializer: only the runtime describes the pods")
