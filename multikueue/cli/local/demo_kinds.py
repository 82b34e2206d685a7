# SPDX-License-Identifier: Apache-2.0
"""The jobs of other kinds in `mkctl demo --kinds`, and which pods each of them makes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devcluster.operators.definitions import JOB_SETS, PYTORCH_JOBS, RAY_JOBS
from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.api.resource import JOBS, PODS, Resource

Template = Callable[[str], JsonObject]
"""A pod template of one container with a requested CPU, whose pods run for so long."""
KINDS: Final[Mapping[Resource, str]] = {
    JOB_SETS: "jobset.x-k8s.io/jobset",
    PYTORCH_JOBS: "kubeflow.org/pytorchjob",
    RAY_JOBS: "ray.io/rayjob",
}
"""The frameworks of the kinds in the demo that have definitions and controllers of their own."""
FRAMEWORKS: Final = (constants.BATCH_JOB_FRAMEWORK, *KINDS.values(), constants.POD_FRAMEWORK)


@dataclass(frozen=True, slots=True)
class MixedKind:
    """A kind in the mix; the pods of `grouped` are one group of two."""

    resource: Resource
    grouped: bool = False


MIX: Final[Sequence[MixedKind]] = (
    MixedKind(JOBS),
    MixedKind(JOB_SETS),
    MixedKind(PYTORCH_JOBS),
    MixedKind(RAY_JOBS),
    MixedKind(PODS),
    MixedKind(PODS, grouped=True),
)
"""Of each two jobs, one for each team; the pods of a group are of one team, and of the other one in the next round."""


def spec_of(resource: Resource, template: Template) -> JsonObject:
    """The spec of a small job of a kind; its leading pods run longer than the others start."""
    return _SPECS[resource](template)


def pods_by_owner(job: JsonObject) -> dict[str, int]:
    """How many pods are started of each owner, as `Kind/name`, when the job runs once."""
    kind, name, spec = job["kind"], job["metadata"]["name"], job["spec"]
    if kind == PODS.kind:
        return {f"{kind}/{name}": 1}
    if kind == JOB_SETS.kind:
        return {
            f"{JOBS.kind}/{name}-{each['name']}-{index}": each["template"]["spec"]["completions"]
            for each in spec["replicatedJobs"]
            for index in range(each["replicas"])
        }
    if kind == PYTORCH_JOBS.kind:
        return {f"{kind}/{name}": sum(each["replicas"] for each in spec["pytorchReplicaSpecs"].values())}
    if kind == RAY_JOBS.kind:
        workers = sum(each["replicas"] for each in spec["rayClusterSpec"]["workerGroupSpecs"])
        return {f"{kind}/{name}": workers + 2}  # the head and the submitter
    return {f"{kind}/{name}": spec["completions"]}


def _pod(template: Template) -> JsonObject:
    spec: JsonObject = template("1200ms")["spec"]
    return spec


def _job_set(template: Template) -> JsonObject:
    def group(name: str, replicas: int, run_for: str) -> JsonObject:
        spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template(run_for)}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    return {"replicatedJobs": [group("driver", 1, "1200ms"), group("workers", 2, "800ms")]}


def _pytorch(template: Template) -> JsonObject:
    def role(replicas: int, run_for: str) -> JsonObject:
        return {"replicas": replicas, "restartPolicy": "Never", "template": template(run_for)}

    return {"pytorchReplicaSpecs": {"Master": role(1, "2500ms"), "Worker": role(1, "800ms")}}


def _ray(template: Template) -> JsonObject:
    group = {"groupName": "small", "replicas": 1, "rayStartParams": {}, "template": template("forever")}
    return {
        "entrypoint": "python main.py",
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": template("2500ms"),
        "rayClusterSpec": {
            "rayVersion": "2.46.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template("forever")},
            "workerGroupSpecs": [group],
        },
    }


_SPECS: Final[Mapping[Resource, Callable[[Template], JsonObject]]] = {
    JOB_SETS: _job_set,
    PYTORCH_JOBS: _pytorch,
    RAY_JOBS: _ray,
    PODS: _pod,
}
