# SPDX-License-Identifier: Apache-2.0
"""Jobs of every kind in `mkctl simulate`: what becomes a Workload, and what is left out and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from multikueue.api.configuration_rules import FRAMEWORKS
from multikueue.cli.main import build
from tests.unit.jobs.declared.builders import IN_PYTHON, PAGES_OF_KINDS, blocks

Object = dict[str, Any]
NOW = ("--now", "2026-01-01T09:00:00Z")
QUEUE = "kueue.x-k8s.io/queue-name"


def queues(namespace: str = "team-a", queue: str = "user-queue") -> list[Object]:
    api = "kueue.x-k8s.io/v1beta2"
    amounts = [{"name": "cpu", "nominalQuota": "100"}, {"name": "memory", "nominalQuota": "100Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": amounts}]}
    local = {"name": queue, "namespace": namespace}
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {"apiVersion": api, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": "cq"}},
    ]


def configuration(*frameworks: str, **settings: Any) -> Object:
    api = "config.kueue.x-k8s.io/v1beta2"
    return {
        "apiVersion": api,
        "kind": "Configuration",
        "integrations": {"frameworks": list(frameworks), **settings.pop("integrations", {})},
        **settings,
    }


def example(page: str) -> Object:
    (text,) = blocks(page)
    job: Object = yaml.safe_load(text)
    return job


def pod(name: str, *, group: str = "", total: int = 2, cpu: str = "1", queue: str = "user-queue") -> Object:
    labels = {QUEUE: queue} | ({"kueue.x-k8s.io/pod-group-name": group} if group else {})
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(total)} if group else {}
    metadata = {"name": name, "namespace": "team-a", "labels": labels, "annotations": annotations}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def run(command: str, tmp_path: Path, *objects: Object, more: tuple[str, ...] = (), code: int = 0) -> Result:
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    arguments = [command, *more, "-f", str(file), *NOW, "-o", "json"]
    result = CliRunner().invoke(build(arguments), arguments)
    assert result.exit_code == code, result.output
    return result


def simulate(tmp_path: Path, *objects: Object, more: tuple[str, ...] = (), code: int = 0) -> Object:
    document: Object = orjson.loads(run("simulate", tmp_path, *objects, more=more, code=code).stdout)
    return document


def reserved(document: Object) -> list[tuple[str, int]]:
    """The pod sets that got quota, with their pods."""
    return [
        (each["name"], each["count"])
        for cycle in document["cycles"]
        for decision in cycle["decisions"]
        if decision["outcome"] == "Reserved"
        for each in decision["podSets"]
    ]


def left_out(document: Object) -> list[tuple[str, str]]:
    return [(each["kind"], each["reason"]) for each in document["leftOut"]]


@pytest.mark.parametrize("page", PAGES_OF_KINDS)
def test_the_example_of_a_kind_gets_quota_for_the_pod_sets_that_a_hub_makes(page: str, tmp_path: Path) -> None:
    from tests.unit.jobs.declared.builders import kind_of

    job = example(page)
    document = simulate(tmp_path, *queues(), job)
    assert reserved(document) == [(each["name"], each["count"]) for each in kind_of(job).pod_sets(job)]
    assert document["leftOut"] == document["refused"] == []


def test_a_kind_whose_pods_are_queued_is_left_out(tmp_path: Path) -> None:
    document = simulate(tmp_path, *queues(), example("leaderworkerset"))
    assert reserved(document) == []
    assert left_out(document) == [("LeaderWorkerSet", "its pods are queued instead of it")]


def test_no_shipped_kind_is_without_a_page() -> None:
    written = {"job", *IN_PYTHON}
    assert len(PAGES_OF_KINDS) == len({each.rpartition("/")[2] for each in FRAMEWORKS} - written)


def test_a_pod_gets_quota_when_it_names_a_queue(tmp_path: Path) -> None:
    plain = pod("plain")
    del plain["metadata"]["labels"]
    document = simulate(tmp_path, *queues(), pod("one"), plain)
    assert reserved(document) == [("main", 1)]
    assert left_out(document) == [("Pod", "not queued, so no Workload is created for it")]


def test_the_pods_of_a_group_share_one_workload_with_a_pod_set_for_each_role(tmp_path: Path) -> None:
    members = [pod("a", group="g", total=3), pod("b", group="g", total=3), pod("c", group="g", total=3, cpu="2")]
    document = simulate(tmp_path, *queues(), *members)
    assert [cycle["decisions"][0]["workload"] for cycle in document["cycles"] if cycle["decisions"]] == ["team-a/g"]
    assert sorted(count for _, count in reserved(document)) == [1, 2]


def test_a_group_without_all_of_its_pods_waits_for_them(tmp_path: Path) -> None:
    document = simulate(tmp_path, *queues(), pod("a", group="g", total=3), pod("b", group="g", total=3))
    (waiting,) = document["notQueued"]
    assert (waiting["workload"], waiting["message"]) == ("team-a/g", "2 of 3 pods of the group exist")


def test_pods_of_a_group_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    document = simulate(tmp_path, *queues(), pod("a", group="g", total=2), pod("b", group="g", total=3), code=1)
    (refused,) = document["refused"]
    assert refused["object"].endswith("Pod team-a/a")
    assert "expected one number on all pods of the group, found 2, 3" in refused["reasons"][0]


def test_a_kind_of_ones_own_is_declared_among_the_manifests(tmp_path: Path) -> None:
    _, declaration, job, *_ = map(yaml.safe_load, blocks("your-own-kind"))
    document = simulate(tmp_path, *queues("film"), declaration, job)
    assert reserved(document) == [("sky", 4), ("people", 6), ("join", 1)]


def test_a_kind_of_ones_own_is_declared_in_the_configuration(tmp_path: Path) -> None:
    *_, job, settings, _ = map(yaml.safe_load, blocks("your-own-kind"))
    document = simulate(tmp_path, *queues("film"), settings, job)
    assert [name for name, _ in reserved(document)] == ["sky", "people"]


def test_a_declaration_with_a_mistake_is_named_with_its_place(tmp_path: Path) -> None:
    _, declaration, *_ = map(yaml.safe_load, blocks("your-own-kind"))
    declaration["spec"]["podSets"][0]["template"] = "$.each.*"
    result = run("simulate", tmp_path, *queues(), declaration, code=2)
    assert "m.yaml:" in result.stderr
    assert "spec.podSets[0].template: " in result.stderr


def test_a_declaration_of_a_kind_that_another_framework_has_is_refused(tmp_path: Path) -> None:
    _, declaration, *_ = map(yaml.safe_load, blocks("your-own-kind"))
    declaration["spec"]["resource"] = {"group": "batch", "versions": ["v1"], "kind": "Job", "plural": "jobs"}
    result = run("simulate", tmp_path, declaration, code=2)
    assert "Job of batch is a job of batch/job already" in result.stderr


@pytest.mark.parametrize(
    ("settings", "page", "reason"),
    [
        pytest.param(
            configuration("batch/job"),
            "jobset",
            "its framework jobset.x-k8s.io/jobset is not in integrations.frameworks of the Configuration",
            id="a framework that is not enabled",
        ),
        pytest.param(
            configuration("sparkoperator.k8s.io/sparkapplication"),
            "sparkapplication",
            "its framework sparkoperator.k8s.io/sparkapplication needs the feature gate SparkApplicationIntegration,"
            " which is off",
            id="a feature gate that is off",
        ),
        pytest.param(
            configuration(
                "jobset.x-k8s.io/jobset",
                managedJobsNamespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "team-b"}},
            ),
            "jobset",
            "jobs of its namespace are not managed (managedJobsNamespaceSelector)",
            id="a namespace that is not managed",
        ),
    ],
)
def test_what_a_hub_with_the_configuration_does_not_queue_is_left_out(
    settings: Object, page: str, reason: str, tmp_path: Path
) -> None:
    document = simulate(tmp_path, *queues(), settings, example(page))
    assert left_out(document) == [(example(page)["kind"], reason)]


def test_a_kind_that_another_controller_queues_is_left_out(tmp_path: Path) -> None:
    settings = configuration("batch/job", integrations={"externalFrameworks": ["Training.v1.example.com"]})
    job = {
        "apiVersion": "example.com/v1",
        "kind": "Training",
        "metadata": {"name": "t", "namespace": "team-a", "labels": {QUEUE: "user-queue"}},
    }
    document = simulate(tmp_path, *queues(), settings, job)
    assert left_out(document) == [("Training", "another controller queues this kind (externalFrameworks)")]


def test_the_child_of_a_queued_job_has_no_workload_of_its_own(tmp_path: Path) -> None:
    parent, owner = example("jobset"), {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    spec = parent["spec"]["replicatedJobs"][0]["template"]["spec"]
    child = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "jobset-sample-leader-0",
            "namespace": "team-a",
            "labels": {QUEUE: "user-queue"},
            "ownerReferences": [{**owner, "name": "jobset-sample", "controller": True}],
        },
        "spec": spec,
    }
    document = simulate(tmp_path, *queues(), parent, child)
    assert [name for name, _ in reserved(document)] == ["leader", "workers"]
    assert left_out(document) == [("Job", "its owner is queued, whose Workload has its pods")]


def test_a_job_that_the_webhook_refuses_is_refused_with_its_field(tmp_path: Path) -> None:
    job = example("rayjob")
    job["spec"]["shutdownAfterJobFinishes"] = False
    document = simulate(tmp_path, *queues(), job, code=1)
    (refused,) = document["refused"]
    assert refused["object"].endswith("RayJob team-a/rayjob-sample")
    assert any(reason.startswith("$.spec.shutdownAfterJobFinishes") for reason in refused["reasons"])


def test_a_job_of_another_version_than_its_integration_reads_is_refused(tmp_path: Path) -> None:
    document = simulate(tmp_path, *queues(), example("rayjob") | {"apiVersion": "ray.io/v1alpha1"}, code=1)
    (refused,) = document["refused"]
    assert refused["reasons"] == ['apiVersion: unsupported RayJob version "ray.io/v1alpha1"; use ray.io/v1']


def test_a_job_without_a_queue_gets_that_of_its_namespace(tmp_path: Path) -> None:
    job = example("pytorchjob")
    del job["metadata"]["labels"]
    labels = {"kueue.x-k8s.io/default-queue": "user-queue"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": labels}}
    assert reserved(simulate(tmp_path, *queues(), namespace, job))
    unlabelled = namespace | {"metadata": {"name": "team-a"}}
    assert left_out(simulate(tmp_path, *queues(), unlabelled, job)) == [
        ("PyTorchJob", "not queued, so no Workload is created for it")
    ]


def test_a_comparison_has_the_same_jobs_of_every_kind(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    smaller = queues()
    smaller[1]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "1"
    other.write_text(yaml.safe_dump_all([*smaller, example("rayjob")]))
    changes = simulate(tmp_path, *queues(), example("jobset"), more=("--diff", str(other)))["diff"]["changes"]
    assert [(each["workload"].partition("-sample")[0], each["after"]) for each in changes] == [
        ("team-a/jobset-jobset", "Pending")
    ]


@pytest.mark.parametrize(
    "target", ["rayjob/team-a/rayjob-sample", "RayJobs/team-a/rayjob-sample", "rayjob.ray.io/team-a/rayjob-sample"]
)
def test_a_job_of_any_kind_is_explained_by_its_name(target: str, tmp_path: Path) -> None:
    found: Object = orjson.loads(run("explain", tmp_path, *queues(), example("rayjob"), more=(target,)).stdout)
    assert found["workload"].startswith("team-a/rayjob-rayjob-sample-")
    assert [each["name"] for each in found["podSets"]] == ["head", "small", "submitter"]


def test_a_pod_is_explained_with_its_group(tmp_path: Path) -> None:
    members = [pod("a", group="g", total=3), pod("b", group="g", total=3)]
    found: Object = orjson.loads(run("explain", tmp_path, *queues(), *members, more=("pod/team-a/b",)).stdout)
    assert (found["workload"], found["message"]) == ("team-a/g", "2 of 3 pods of the group exist")


def test_a_job_that_the_manifests_do_not_queue_is_refused_with_those_they_do(tmp_path: Path) -> None:
    result = run("explain", tmp_path, *queues(), example("rayjob"), more=("jobset/team-a/x",), code=2)
    assert "they have rayjob/team-a/rayjob-sample" in result.stderr
