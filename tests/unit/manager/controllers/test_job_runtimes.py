# SPDX-License-Identifier: Apache-2.0
"""A Workload keeps its pod sets when its runtime changes, as long as a seal proves what they were made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.context import ManagerContext
from manager.controllers.job_runtimes import JobRuntimes
from multikueue.api.constants import RUNTIME_ANNOTATION
from multikueue.core.keys import Key
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.train_job import TrainJobIntegration
from tests.unit.jobs.declared.builders import example, kind_of

Object = dict[str, Any]


def runtime(*, nodes: int, generation: int = 1) -> Object:
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "runtime"}]}}},
        },
    }
    return {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed", "uid": "r", "generation": generation},
        "spec": {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def train_job(uid: str = "j") -> Object:
    job = example("trainjob")
    del job["spec"]["trainer"]["numNodes"]
    job["metadata"]["uid"] = uid
    return job


class Hub:
    """A runtime in the cache of a manager, and the Workloads made by it."""

    def __init__(self) -> None:
        self.stored: Object | None = runtime(nodes=2)
        kind = kind_of(example("trainjob"))
        assert isinstance(kind, TrainJobIntegration)
        self.kind = kind
        context = SimpleNamespace(caches=SimpleNamespace(view=self._view), seals=SimpleNamespace(key=b"key"))
        self.runtimes = JobRuntimes(cast(ManagerContext, context), kind)

    def _view(self, resource: object) -> Any:
        assert resource == self.kind.runtimes[0]
        return SimpleNamespace(object=lambda key: self.stored if key == Key("", "torch-distributed") else None)

    def workload(self, job: Object) -> Object:
        """As it is made when the job is queued."""
        described = self.runtimes.described(job, ())
        pod_sets = self.kind.pod_sets(described)
        marks = self.runtimes.marks(described, list(pod_sets))
        return {"metadata": {"name": "w", "annotations": marks}, "spec": {"podSets": list(pod_sets)}}

    def nodes(self, job: Object, *workloads: Object) -> int:
        (pod_set,) = self.kind.pod_sets(self.runtimes.described(job, workloads))
        return int(pod_set["count"])


@pytest.mark.parametrize("later", [runtime(nodes=9, generation=2), None])
def test_a_workload_keeps_its_pods_when_the_runtime_changes_or_goes(later: Object | None) -> None:
    hub, job = Hub(), train_job()
    made = hub.workload(job)
    hub.stored = later
    assert hub.nodes(job, made) == 2


def test_pods_that_are_kept_are_sealed_as_they_were() -> None:
    hub, job = Hub(), train_job()
    made = hub.workload(job)
    hub.stored = runtime(nodes=9, generation=2)
    described = hub.runtimes.described(job, [made])
    assert hub.runtimes.marks(described, made["spec"]["podSets"]) == made["metadata"]["annotations"]


def test_a_job_started_by_admission_keeps_them_too() -> None:
    hub, job = Hub(), train_job()
    made = hub.workload(job)
    hub.stored = runtime(nodes=9, generation=2)
    job["spec"]["runtimePatches"] = [{"manager": "kueue.x-k8s.io/manager"}]
    assert hub.nodes(job, made) == 2


def smaller(workload: Object, _: Object) -> None:
    workload["spec"]["podSets"][0]["count"] = 1


def unsealed(workload: Object, _: Object) -> None:
    workload["metadata"]["annotations"] = {}


def forged(workload: Object, _: Object) -> None:
    workload["metadata"]["annotations"][RUNTIME_ANNOTATION] = "r/1 " + 64 * "0"


def deleted(workload: Object, _: Object) -> None:
    workload["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def of_another_job(_: Object, job: Object) -> None:
    job["metadata"]["uid"] = "other"


def patched_since(_: Object, job: Object) -> None:
    job["spec"]["runtimePatches"] = [{"manager": "user"}]


def trainer_changed_since(_: Object, job: Object) -> None:
    job["spec"]["trainer"]["image"] = "other"


@pytest.mark.parametrize(
    "change", [smaller, unsealed, forged, deleted, of_another_job, patched_since, trainer_changed_since]
)
def test_what_no_seal_proves_is_as_the_runtime_says_now(change: Any) -> None:
    hub, job = Hub(), train_job()
    made = hub.workload(job)
    hub.stored = runtime(nodes=9, generation=2)
    change(made, job)
    assert hub.nodes(job, made) == 9


@pytest.mark.parametrize("patches", ["x", [1]])
def test_patches_of_another_shape_are_reported_where_the_pods_are_counted(patches: Any) -> None:
    hub, job = Hub(), train_job()
    made = hub.workload(job)
    job["spec"]["runtimePatches"] = patches
    assert hub.runtimes.described(job, [made]).keys() > job.keys()


def test_other_kinds_have_no_runtimes() -> None:
    context = SimpleNamespace(caches=None, seals=SimpleNamespace(key=b"key"))
    runtimes = JobRuntimes(cast(ManagerContext, context), BATCH_JOB)
    assert runtimes.described({"kind": "Job"}, ()) == {"kind": "Job"}
    assert runtimes.marks({"kind": "Job"}, []) == {}
