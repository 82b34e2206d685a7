# SPDX-License-Identifier: Apache-2.0
"""Small objects of each job kind, with two roles where the kind has several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from tests.support.crds import kinds

Template = JsonObject


def pod_template(annotations: Mapping[str, str] | None = None, **pod: Any) -> Template:
    """A pod template of one container; `annotations` say what a virtual pod does."""
    containers = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]
    metadata = {"annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": containers, **pod}}


def job_set(name: str, template: Template, **spec: Any) -> JsonObject:
    """A JobSet with a leader of one Job and workers of two Jobs with two pods each."""
    one = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}
    two = {**one, "parallelism": 2, "completions": 2}
    jobs = [
        {"name": "leader", "replicas": 1, "template": {"spec": one}},
        {"name": "workers", "replicas": 2, "template": {"spec": two}},
    ]
    return _object(kinds.JOB_SETS, name, {"replicatedJobs": jobs, **spec})


def sample(resource: Resource, name: str, template: Template, *, suspend: bool = False) -> JsonObject:
    """An object of a kind that the generic operator plays; all of its pods have the template."""
    return _object(resource, name, _SPECS[resource](template, suspend))


def _object(resource: Resource, name: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _training(roles: str, *names: str) -> Callable[[Template, bool], JsonObject]:
    def spec(template: Template, suspend: bool) -> JsonObject:
        replicas = {name: {"replicas": 1 + number, "template": template} for number, name in enumerate(names)}
        return {"runPolicy": {"suspend": suspend}, roles: replicas}

    return spec


def _ray(template: Template) -> JsonObject:
    group = {"groupName": "small", "replicas": 2, "template": template}
    return {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]}


def _train(template: Template, suspend: bool) -> JsonObject:
    """A TrainJob has no templates of its own; what its pods do is in a patch of the runtime."""
    node = {"name": "node", "template": {"spec": {"template": {"metadata": template["metadata"]}}}}
    patch = {
        "manager": "example.com/user",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}},
    }
    (container,) = template["spec"]["containers"]
    return {
        "suspend": suspend,
        "runtimeRef": {"name": "plain"},
        "trainer": {"numNodes": 2, "image": "x", "resourcesPerNode": container["resources"]},
        "runtimePatches": [patch],
    }


def _wrapper(template: Template, suspend: bool) -> JsonObject:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"}, "spec": {"template": template}}
    component = {"podSets": [{"path": "template.spec.template", "replicas": 2}], "template": job}
    return {"suspend": suspend, "components": [component]}


def _spark(template: Template, suspend: bool) -> JsonObject:
    """A SparkApplication has fields of its own for what a template has."""
    pod = {"coreRequest": "100m", "memory": "512m", "annotations": template["metadata"]["annotations"]}
    return {
        "type": "Scala",
        "mode": "cluster",
        "image": "x",
        "suspend": suspend,
        "driver": pod,
        "executor": {**pod, "instances": 2},
    }


_SPECS: Final[dict[Resource, Callable[[Template, bool], JsonObject]]] = {
    kinds.PYTORCH_JOBS: _training("pytorchReplicaSpecs", "Master", "Worker"),
    kinds.TF_JOBS: _training("tfReplicaSpecs", "Chief", "Worker"),
    kinds.XGBOOST_JOBS: _training("xgbReplicaSpecs", "Master", "Worker"),
    kinds.PADDLE_JOBS: _training("paddleReplicaSpecs", "Master", "Worker"),
    kinds.JAX_JOBS: _training("jaxReplicaSpecs", "Worker"),
    kinds.MPI_JOBS: _training("mpiReplicaSpecs", "Launcher", "Worker"),
    kinds.TRAIN_JOBS: _train,
    kinds.RAY_JOBS: lambda template, suspend: {
        "suspend": suspend,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _ray(template),
        "submitterPodTemplate": template,
    },
    kinds.RAY_CLUSTERS: lambda template, suspend: {"suspend": suspend, **_ray(template)},
    kinds.RAY_SERVICES: lambda template, suspend: {"rayClusterConfig": {"suspend": suspend, **_ray(template)}},
    kinds.APP_WRAPPERS: _wrapper,
    kinds.LEADER_WORKER_SETS: lambda template, suspend: {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 2, "workerTemplate": template},
    },
    kinds.SPARK_APPLICATIONS: _spark,
}
