# SPDX-License-Identifier: Apache-2.0
"""The pod sets that the components of an AppWrapper list."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.framework.capabilities import SentSpec
from multikueue.jobs.framework.protocol import InjectionConflict, PodSetInfo
from tests.unit.jobs.declared.builders import SPOT, example, infos, kind_of, written


def app_wrapper(*components: Any) -> dict[str, Any]:
    job = example("appwrapper")
    if components:
        job["spec"]["components"] = list(components)
    return job


def component(*pod_sets: Any, template: Any = None) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "c"}]}}
    return {
        "podSets": list(pod_sets),
        "template": template or {"spec": {"groups": [{"template": pod}], "template": pod}},
    }


def test_pod_sets_are_counted_over_all_components() -> None:
    job = app_wrapper(
        component({"path": "template.spec.template"}, {"path": ".template.spec.groups[0].template", "replicas": 4}),
        {"template": {"kind": "Service", "spec": {"ports": []}}},
        component({"path": "template.spec.template", "replicas": "2"}),
    )
    found = kind_of(job).pod_sets(job)
    assert [(each["name"], each["count"]) for each in found] == [
        ("appwrapper-sample-0", 1),
        ("appwrapper-sample-1", 4),
        ("appwrapper-sample-2", 2),
    ]


def test_what_admission_adds_is_written_beside_the_wrapped_objects() -> None:
    job = app_wrapper()
    kind = kind_of(job)
    started = written(job, kind.start(job, infos(job, kind)))
    first, second = started["spec"]["components"]
    assert first["podSetInfos"][0]["nodeSelector"] == SPOT
    assert first["template"] == job["spec"]["components"][0]["template"]
    assert "podSetInfos" not in second


def test_a_conflict_with_a_wrapped_object_is_found() -> None:
    job = app_wrapper()
    job["spec"]["components"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "mine"}
    info = PodSetInfo(name="appwrapper-sample-0", count=3, node_selector=SPOT)
    with pytest.raises(InjectionConflict, match='nodeSelector "pool" is already "mine"'):
        kind_of(job).start(job, [info])


@pytest.mark.parametrize(
    ("components", "problem"),
    [
        pytest.param("x", "spec.components: expected a list of objects", id="no list"),
        pytest.param([{"podSets": 1}], r"spec.components\[0\].podSets: expected a list", id="pod sets are a number"),
        pytest.param([component()], "expected the pod sets of a component that has pods", id="pods without quota"),
        pytest.param([{"template": {"spec": {}}}], "expected a component with podSets, found none", id="no pods"),
        pytest.param([component({})], r"podSets\[0\].path: expected a path such as", id="no path"),
        pytest.param([component({"path": "spec.template"})], "a path that begins with template", id="another start"),
        pytest.param([component({"path": "template.spec[*].a"})], "expected a path such as", id="a wildcard"),
        pytest.param([component({"path": "template." + "a." * 200})], "expected a path such as", id="a long path"),
        pytest.param([component({"path": "template.spec.absent"})], "expected a pod template at", id="nothing there"),
        pytest.param(
            [component({"path": "template.spec.template", "replicas": -1})], "replicas: expected a whole", id="a count"
        ),
        pytest.param(
            [component(*[{"path": "template.spec.template"}] * 19)], "at most 18 pod sets", id="too many pod sets"
        ),
    ],
)
def test_components_that_are_refused(components: Any, problem: str) -> None:
    job = app_wrapper()
    job["spec"]["components"] = components
    with pytest.raises(BadInput, match=problem):
        kind_of(job).pod_sets(job)


def test_a_name_that_no_pod_set_can_have_is_refused() -> None:
    job = app_wrapper()
    job["metadata"]["name"] = "with.dots"
    with pytest.raises(BadInput, match=r'metadata\.name: expected the name of a pod set, found "with\.dots-0"'):
        kind_of(job).pod_sets(job)


def test_a_worker_gets_a_workload_with_the_fields_that_kueue_has_there() -> None:
    container = {"name": "c", "image": "example.com:5000/i:1", "env": [{"name": "A"}], "ports": [{"containerPort": 80}]}
    job = app_wrapper(component({"path": "template.spec.template"}, template=pods(container)))
    kind = kind_of(job)
    assert isinstance(kind, SentSpec)
    spec = {"queueName": "q", "podSets": list(kind.pod_sets(job))}
    sent = kind.sent_spec(spec)
    assert sent["queueName"] == "q"
    assert sent["podSets"][0]["template"]["spec"]["containers"] == [
        {
            "name": "c",
            "image": "example.com:5000/i:1",
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ]
    assert kind.matches(job, {"spec": spec})
    assert kind.matches(job, {"spec": sent})
    assert kind.differences(job, {"spec": sent}) == ()


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("i", "Always"),
        ("i:latest", "Always"),
        ("i:1", "IfNotPresent"),
        ("example.com:5000/i", "Always"),
        ("i@sha256:0a", "IfNotPresent"),
    ],
)
def test_images_that_may_change_are_pulled_always(image: str, policy: str) -> None:
    job = app_wrapper(component({"path": "template.spec.template"}, template=pods({"name": "c", "image": image})))
    kind = kind_of(job)
    assert isinstance(kind, SentSpec)
    (pod_set,) = kind.sent_spec({"podSets": list(kind.pod_sets(job))})["podSets"]
    assert pod_set["template"]["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    "change",
    [
        {"resources": {"requests": {"cpu": "2"}}},
        {"image": "other"},
    ],
)
def test_a_workload_with_other_containers_is_not_that_of_the_job(change: dict[str, Any]) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    job = app_wrapper(component({"path": "template.spec.template"}, template=pods(container)))
    kind = kind_of(job)
    other = app_wrapper(component({"path": "template.spec.template"}, template=pods(container | change)))
    workload = {"spec": {"podSets": list(kind.pod_sets(other))}}
    assert not kind.matches(job, workload)
    assert kind.differences(job, workload)


def test_a_workload_that_kueue_has_made_is_that_of_the_job() -> None:
    """So that this manager can take the place of Kueue's while AppWrappers run."""
    container = {"name": "c", "image": "i:1", "env": [{"name": "A"}], "livenessProbe": {"httpGet": {"port": 80}}}
    template = pods(container)
    template["spec"]["template"]["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5}
    job = app_wrapper(component({"path": "template.spec.template"}, template=template))
    kind = kind_of(job)
    messages = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    made = {
        "containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent", **messages}],
        "restartPolicy": "Never",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "preemptionPolicy": "PreemptLowerPriority",
    }
    pod_set = {"name": "appwrapper-sample-0", "count": 1, "template": {"spec": made}}
    assert kind.matches(job, {"spec": {"podSets": [pod_set]}})
    made["nodeSelector"] = {"a": "b"}
    assert not kind.matches(job, {"spec": {"podSets": [pod_set]}})


def test_a_workload_without_the_sidecar_of_the_job_holds_too_little() -> None:
    sidecar = {"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "4"}}}
    template = pods({"name": "c", "image": "i"})
    template["spec"]["template"]["spec"]["initContainers"] = [sidecar]
    job = app_wrapper(component({"path": "template.spec.template"}, template=template))
    kind = kind_of(job)
    (pod_set,) = kind.pod_sets(job)
    pod = pod_set["template"]["spec"]
    started_once = {key: value for key, value in sidecar.items() if key != "restartPolicy"}
    less = pod_set | {"template": {"spec": pod | {"initContainers": [started_once]}}}
    assert kind.differences(job, {"spec": {"podSets": [less]}})


def pods(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": list(containers)}}}}
