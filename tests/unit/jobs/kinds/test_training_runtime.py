# SPDX-License-Identifier: Apache-2.0
"""The pods of TrainJobs by their runtimes; counts and changes are those of Kueue 0.17.0 with the same objects."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.kinds.training_runtime import (
    ReplicatedPods,
    changed_pods,
    described_pods,
    pods_without_runtime,
    recorded_pods,
)

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
Counts = dict[str, int]


def container(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": f"runtime-{name}", "resources": {"requests": {"cpu": "1"}}, **fields}


def replicated(name: str, step: str, *containers: str, **fields: Any) -> dict[str, Any]:
    """A replicated job of these containers; `replicas` and the fields of its Job are as given."""
    replicas = {"replicas": fields.pop("replicas")} if "replicas" in fields else {}
    template = {"spec": {"containers": [container(each) for each in containers or ("node",)]}}
    metadata = {"metadata": {"labels": {STEP: step}}} if step else {}
    return {"name": name, **replicas, "template": {**metadata, "spec": {**fields, "template": template}}}


def runtime(*jobs: dict[str, Any], nodes: Any = None, **policy: Any) -> dict[str, Any]:
    ml = {} if nodes is None else {"numNodes": nodes}
    return {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": {"mlPolicy": {**ml, **policy}, "template": {"spec": {"replicatedJobs": list(jobs)}}},
    }


LAUNCHED = {"mpi": {"runLauncherAsNode": True}}
NODE = replicated("node", "trainer")


def train_job(**spec: Any) -> dict[str, Any]:
    return {"spec": {"runtimeRef": {"name": "r"}, **spec}}


def made(described: Any, *patches: dict[str, Any], **spec: Any) -> tuple[ReplicatedPods, ...]:
    return changed_pods(train_job(**spec), described_pods(described), patches)


def counts(pods: tuple[ReplicatedPods, ...]) -> Counts:
    return {each.name: each.replicas * each.parallelism for each in pods}


@pytest.mark.parametrize(
    ("described", "nodes", "expected"),
    [
        pytest.param(runtime(NODE, nodes=3), None, {"node": 3}, id="of the policy"),
        pytest.param(runtime(NODE, nodes=3), 4, {"node": 4}, id="of the job"),
        pytest.param(runtime(NODE, nodes=3), 0, {"node": 0}, id="none"),
        pytest.param(
            runtime(replicated("node", "trainer", parallelism=5)), None, {"node": 5}, id="of the replicated job"
        ),
        pytest.param(runtime(NODE), None, {"node": 1}, id="one by default"),
        pytest.param(
            runtime(replicated("a", "", replicas=3, parallelism=2), replicated("node", "trainer", replicas=3), nodes=2),
            None,
            {"a": 6, "node": 2},
            id="replicas, of which nodes have one",
        ),
        pytest.param(
            runtime(replicated("a", "", parallelism=5, completions=3), NODE),
            2,
            {"a": 5, "node": 2},
            id="not completions",
        ),
        pytest.param(
            runtime(replicated("x", "trainer"), replicated("y", "trainer"), nodes=2),
            4,
            {"x": 4, "y": 2},
            id="the first",
        ),
        pytest.param(runtime(replicated("work", "trainer"), nodes=2), 4, {"work": 4}, id="of another name"),
        pytest.param(
            runtime(replicated("launcher", "trainer"), replicated("node", ""), nodes=1, **LAUNCHED),
            4,
            {"launcher": 1, "node": 3},
            id="the launcher is a node",
        ),
        pytest.param(
            runtime(replicated("launcher", "trainer"), replicated("node", ""), nodes=1, **LAUNCHED),
            1,
            {"launcher": 1, "node": 1},
            id="a node beside the launcher at least",
        ),
        pytest.param(
            runtime(replicated("launcher", ""), replicated("node", "", parallelism=6), nodes=4, **LAUNCHED),
            None,
            {"launcher": 1, "node": 6},
            id="as the runtime has them",
        ),
        pytest.param(
            runtime(replicated("launcher", ""), replicated("node", "trainer"), nodes=4, **LAUNCHED),
            None,
            {"launcher": 1, "node": 4},
            id="nodes that are the trainer",
        ),
    ],
)
def test_how_many_pods_there_are(described: Any, nodes: Any, expected: Counts) -> None:
    trainer = {} if nodes is None else {"trainer": {"numNodes": nodes}}
    assert counts(made(described, **trainer)) == expected


def test_the_trainer_changes_the_container_of_the_nodes_and_no_other() -> None:
    trainer = {
        "image": "own",
        "command": ["c"],
        "args": ["a"],
        "env": [{"name": "A", "value": "own"}],
        "resourcesPerNode": {"requests": {"memory": "1Gi"}},
    }
    (pods,) = made(runtime(replicated("node", "trainer", "node", "sidecar")), trainer=trainer)
    node, sidecar = pods.template["spec"]["containers"]
    resources = {"requests": {"memory": "1Gi"}}
    assert {key: node[key] for key in ("image", "command", "args", "env")} == {
        key: trainer[key] for key in ("image", "command", "args", "env")
    }
    assert node["resources"] == resources
    assert sidecar == container("sidecar")


def test_nodes_beside_a_launcher_have_the_requests_of_the_trainer_and_their_own_image() -> None:
    described = runtime(replicated("launcher", "trainer"), replicated("node", ""), nodes=1, **LAUNCHED)
    trainer = {"image": "own", "resourcesPerNode": {"limits": {"gpu": "1"}}}
    launcher, node = (each.template["spec"]["containers"][0] for each in made(described, trainer=trainer))
    assert (launcher["image"], launcher["resources"]) == ("own", {"limits": {"gpu": "1"}})
    assert (node["image"], node["resources"]) == ("runtime-node", {"limits": {"gpu": "1"}})


def test_an_initializer_gets_its_source_and_its_secret() -> None:
    described = runtime(
        replicated("dataset-initializer", "dataset-initializer", "dataset-initializer"),
        replicated("m", "model-initializer", "model-initializer"),
        NODE,
    )
    given = {
        "dataset": {"storageUri": "hf://d", "env": [{"name": "A", "value": "a"}], "secretRef": {"name": "s"}},
        "model": {"storageUri": "hf://m"},
    }
    dataset, model, node = (each.template["spec"]["containers"][0] for each in made(described, initializer=given))
    assert dataset["env"] == [{"name": "STORAGE_URI", "value": "hf://d"}, {"name": "A", "value": "a"}]
    assert dataset["envFrom"] == [{"secretRef": {"name": "s"}}]
    assert model["env"] == [{"name": "STORAGE_URI", "value": "hf://m"}]
    assert node == container("node")


def test_a_patch_of_a_replicated_job_that_the_runtime_does_not_have_changes_nothing() -> None:
    entry = {"name": "other", "template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}}
    patch = {"manager": "m", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [entry]}}}}
    assert made(runtime(NODE), patch) == made(runtime(NODE))


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        pytest.param(
            {"kind": "TrainingRuntime", "metadata": {"name": "r"}},
            r"TrainingRuntime r: spec.template.spec.replicatedJobs: expected 1 to \d+ replicated jobs, found None",
            id="empty",
        ),
        pytest.param(runtime(*([NODE] * 100)), "expected 1 to", id="too many"),
        pytest.param(runtime("x"), r"replicatedJobs\[0\]: expected an object", id="no object"),  # type: ignore[arg-type]
        pytest.param(
            runtime({"name": "node"}), r"replicatedJobs\[0\].template.spec.template: expected", id="no template"
        ),
        pytest.param(runtime(NODE, nodes="many"), "spec.mlPolicy.numNodes: expected a whole number", id="no number"),
        pytest.param(runtime({**NODE, "replicas": -1}), "replicas: expected a whole number", id="negative"),
        pytest.param(runtime({**NODE, "name": "A/b"}), "expected the name of a pod set", id="no name"),
    ],
)
def test_a_runtime_that_cannot_be_read_is_refused(described: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        described_pods(described)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"trainer": []}, "spec.trainer: expected an object"),
        ({"trainer": {"numNodes": "x"}}, "spec.trainer.numNodes: expected a whole number"),
        ({"trainer": {"env": "x"}}, "spec.trainer.env: expected a list of objects"),
        ({"trainer": {"env": [1]}}, "spec.trainer.env: expected a list of objects"),
        ({"trainer": {"resourcesPerNode": "x"}}, "resourcesPerNode: expected an object"),
        ({"trainer": {"image": 1}}, "image: expected a text"),
    ],
)
def test_a_job_that_cannot_be_read_is_refused(spec: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        made(runtime(NODE), **spec)


def test_an_initializer_of_another_shape_is_refused() -> None:
    described = runtime(replicated("d", "dataset-initializer", "dataset-initializer"))
    with pytest.raises(BadInput, match=r"spec.initializer.dataset: expected an object"):
        made(described, initializer={"dataset": "x"})


@pytest.mark.parametrize(
    ("spec", "known"),
    [
        ({"trainer": {"numNodes": 2, "resourcesPerNode": {}}}, True),
        ({"trainer": {"numNodes": 2}}, False),
        ({"trainer": {"resourcesPerNode": {}}}, False),
        ({"trainer": {"numNodes": 2, "resourcesPerNode": {}}, "initializer": {"model": {}}}, False),
        ({}, False),
    ],
)
def test_without_its_runtime_a_job_has_to_say_all_of_its_nodes(spec: Any, known: bool) -> None:
    pods = pods_without_runtime(train_job(**spec))
    assert counts(changed_pods(train_job(**spec), pods, ())) == ({"node": 2} if known else {})


def pod_set(name: str, count: int) -> dict[str, Any]:
    return {"name": name, "count": count, "template": {"spec": {"containers": [{"name": "node", "image": "admitted"}]}}}


def test_replicas_are_known_again_from_the_runtime() -> None:
    described = described_pods(runtime(replicated("a", "", replicas=3), NODE))
    pods = recorded_pods([pod_set("a", 6), pod_set("node", 2), pod_set("gone", 5)], described)
    assert [(each.replicas, each.parallelism) for each in pods] == [(3, 2), (1, 2), (1, 5)]
    (other,) = recorded_pods([pod_set("a", 5)], described)
    assert (other.replicas, other.parallelism) == (1, 5), "the runtime has another number by now"


def test_of_the_pod_sets_of_a_workload_a_job_changes_nothing() -> None:
    (pods,) = changed_pods(train_job(trainer={"numNodes": 9, "image": "own"}), recorded_pods([pod_set("node", 2)]), ())
    assert (counts((pods,)), pods.template) == ({"node": 2}, pod_set("node", 2)["template"])
