# SPDX-License-Identifier: Apache-2.0
"""What an agent reads of an assignment, and what it knows of one that it cannot read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.declared.shipped import declared_integrations
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.pod import BARE_POD
from tests.support.assignment_specs import reservation, workload_spec
from worker_agent.local.assignment_spec import job_kind, read_assignment
from worker_agent.local.jobs import RemoteJobs

Object = dict[str, Any]
K = "kueue.x-k8s.io/"
KINDS = {
    key: cast(RemoteJobs, SimpleNamespace(integration=integration))
    for key, integration in {
        ("", "Pod"): BARE_POD,
        ("batch", "Job"): BATCH_JOB,
        ("trainer.kubeflow.org", "TrainJob"): declared_integrations()["trainer.kubeflow.org/trainjob"],
    }.items()
}


def assignment(**more: object) -> Object:
    """An assignment with a uid."""
    made = reservation("ns", workload=workload_spec("ns"), **more)
    return {**made, "metadata": {**made["metadata"], "uid": "a1"}}


def member(name: str, phase: str = "") -> Object:
    """A pod of a group of three, as the hub sends it."""
    annotations = {K + "pod-group-total-count": "3"}
    metadata = {"name": name, "namespace": "ns", "annotations": annotations, "labels": {K + "pod-group-name": "g"}}
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]
    status = {"status": {"phase": phase}} if phase else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}, **status}


def group(*members: Object) -> Object:
    """The assignment of a group."""
    metadata = {"name": "g", "namespace": "ns"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "members": list(members)}
    return assignment(job={"apiVersion": "v1", "kind": "Pod", "name": "g", "manifest": manifest})


def read(obj: Object) -> Any:
    return read_assignment(obj, kinds=KINDS, permits_fenced_work=lambda seconds: True)


def test_a_group_demands_capacity_for_the_pods_that_have_not_succeeded() -> None:
    (whole,) = read(group(*map(member, ("g-0", "g-1", "g-2")))).demands
    (rest,) = read(group(member("g-0", "Succeeded"), member("g-1", "Succeeded"), member("g-2"))).demands
    assert (whole.count, rest.count) == (3, 1)
    assert whole.requests == rest.requests == {"cpu": 2000}


@pytest.mark.parametrize(("sent", "awaited"), [({}, False), ({"awaitsStart": True}, True), ({"awaitsStart": 1}, False)])
def test_whether_the_hub_waits_for_the_start_is_read(sent: Object, awaited: bool) -> None:
    assert read(assignment(**sent)).awaits_start is awaited


def test_the_clone_of_a_group_is_for_the_pods_that_have_not_succeeded() -> None:
    def clone(*members: Object) -> list[tuple[str, int]]:
        of = group(*members)
        role = BARE_POD.pod_sets(of["spec"]["job"]["manifest"])[0]["name"]
        of["spec"]["workloadSpec"]["podSets"] = [{"name": role, "count": 3}, {"name": "other", "count": 2}]
        return [("" if each["name"] == role else "other", each["count"]) for each in read(of).clone.spec["podSets"]]

    whole = (member("g-0"), member("g-1"), member("g-2"))
    assert clone(*whole) == [("", 3), ("other", 2)]
    assert clone(member("g-0", "Succeeded"), *whole[1:]) == [("", 2), ("other", 2)]
    ended = [member(f"g-{index}", "Succeeded") for index in range(3)]
    assert clone(*ended) == [("other", 2)]


def train_job(*pod_sets: Object) -> Object:
    """The assignment of a TrainJob that leaves its pods to its runtime."""
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {"runtimeRef": {"name": "r"}},
    }
    reference = {"apiVersion": manifest["apiVersion"], "kind": "TrainJob", "name": "t", "manifest": manifest}
    return assignment(job=reference, workloadSpec={"podSets": list(pod_sets)})


def test_a_train_job_demands_what_its_workload_on_the_hub_requests() -> None:
    containers = [{"name": "node", "resources": {"requests": {"cpu": "2"}}}]
    found = read(train_job({"name": "node", "count": 3, "template": {"spec": {"containers": containers}}}))
    (demand,) = found.demands
    assert (demand.count, demand.requests) == (3, {"cpu": 2000})
    assert found.manifest["spec"] == {"runtimeRef": {"name": "r"}}, "what is created has nothing of it"


def test_a_train_job_that_an_agent_finds_after_a_restart_demands_nothing_until_the_hub_sends_it() -> None:
    assert read(train_job()).demands == ()


def test_the_kind_of_the_job_is_known_of_an_assignment_that_cannot_be_read() -> None:
    unreadable = group()
    with pytest.raises(BadInput, match="expected 1 to 256 pods, found 0"):
        read(unreadable)
    assert job_kind(unreadable, kinds=KINDS) is KINDS["", "Pod"]
    assert job_kind(assignment(intent="Provision"), kinds=KINDS) is KINDS["batch", "Job"]
    assert job_kind(assignment(job={"apiVersion": "example.com/v1", "kind": "Render"}), kinds=KINDS) is None
