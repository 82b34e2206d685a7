# SPDX-License-Identifier: Apache-2.0
"""What KubeRay adds to the pods of its kinds."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from tests.unit.jobs.declared.builders import example, infos, kind_of, workload, written


def ray_job(**spec: Any) -> dict[str, Any]:
    job = example("rayjob")
    cluster = spec.pop("cluster", {})
    job["spec"] |= spec
    job["spec"]["rayClusterSpec"] |= cluster
    return job


def containers(job: dict[str, Any], pod_set: str) -> list[str]:
    found = {each["name"]: each["template"]["spec"] for each in kind_of(job).pod_sets(job)}
    return [each["name"] for each in found[pod_set]["containers"]]


def names(job: dict[str, Any]) -> list[str]:
    return [each["name"] for each in kind_of(job).pod_sets(job)]


def test_the_default_submitter_has_the_image_of_the_head_and_the_requests_of_kuberay() -> None:
    job = ray_job()
    submitter = kind_of(job).pod_sets(job)[-1]["template"]["spec"]["containers"][0]
    assert submitter["image"] == "registry.example/ray:2"
    assert submitter["resources"]["requests"] == {"cpu": "500m", "memory": "200Mi"}


def test_a_submitter_with_a_template_keeps_it() -> None:
    template = {"spec": {"containers": [{"name": "own"}]}}
    job = ray_job(submitterPodTemplate=template)
    kind = kind_of(job)
    assert containers(job, "submitter") == ["own"]
    started = written(job, kind.start(job, infos(job, kind)))
    stopped = written(started, kind.stop(started, workload(job, kind)["spec"]["podSets"]))
    assert stopped["spec"]["submitterPodTemplate"] == template


@pytest.mark.parametrize("mode", ["HTTPMode", "InteractiveMode", "SidecarMode"])
def test_other_modes_have_no_submitter_pod(mode: str) -> None:
    assert names(ray_job(submissionMode=mode)) == ["head", "small"]


def test_the_head_has_the_container_of_a_sidecar_submitter() -> None:
    assert containers(ray_job(submissionMode="SidecarMode"), "head") == ["ray-head", "ray-job-submitter"]


@pytest.mark.parametrize("page", ["rayjob", "raycluster", "rayservice"])
def test_the_head_of_an_autoscaled_cluster_has_the_container_of_the_autoscaler(page: str) -> None:
    job = example(page)
    cluster = job["spec"].get("rayClusterSpec") or job["spec"].get("rayClusterConfig") or job["spec"]
    cluster["enableInTreeAutoscaling"] = True
    kind = kind_of(job)
    assert containers(job, "head") == ["ray-head", "autoscaler"]
    (refusal,) = kind.job_refusals(job)
    fixed = {"rayjob": "the quota of a RayJob is fixed", "rayservice": "the quota of a RayService is fixed"}
    assert fixed.get(page, 'needs the annotation kueue.x-k8s.io/elastic-job: "true"') in refusal
    # Only quota has it: KubeRay adds it to the pod.
    remote = written(job, kind.start(job, infos(job, kind)))
    assert "autoscaler" not in str(remote["spec"])


def test_an_elastic_cluster_may_be_autoscaled_unless_it_is_sent_to_a_worker() -> None:
    job = example("raycluster")
    job["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    job["spec"]["enableInTreeAutoscaling"] = True
    kind = kind_of(job)
    assert kind.job_refusals(job) == ()
    job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    (refusal,) = kind.job_refusals(job)
    assert refusal.endswith("is not supported for a RayCluster that is sent to a worker cluster")


def test_the_autoscaler_has_the_resources_that_the_cluster_names() -> None:
    options = {"resources": {"requests": {"cpu": "2"}}}
    job = ray_job(cluster={"enableInTreeAutoscaling": True, "autoscalerOptions": options})
    head = kind_of(job).pod_sets(job)[0]["template"]["spec"]["containers"]
    assert head[1]["resources"] == {"requests": {"cpu": "2"}}


def test_a_worker_group_cannot_have_the_name_of_the_head() -> None:
    job = ray_job()
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"] = "head"
    with pytest.raises(BadInput, match='two pod sets have the name "head"'):
        kind_of(job).pod_sets(job)


def test_more_than_18_pod_sets_are_refused() -> None:
    job = ray_job()
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    groups = [group | {"groupName": f"g{index}"} for index in range(18)]
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"] = groups
    with pytest.raises(BadInput, match="at most 18 pod sets"):
        kind_of(job).pod_sets(job)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({"clusterSelector": {"a": "b"}}, "$.spec.clusterSelector", id="a cluster of others"),
        pytest.param({"shutdownAfterJobFinishes": False}, "$.spec.shutdownAfterJobFinishes", id="a cluster that stays"),
    ],
)
def test_a_ray_job_that_would_use_more_than_its_quota_is_refused(spec: Any, path: str) -> None:
    job = ray_job(**spec)
    (refusal,) = kind_of(job).job_refusals(job)
    assert refusal.startswith(f"{path}: ")
