# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.defaulting import (
    JobSurroundings,
    default_cluster_queue,
    default_gated,
    default_held,
    default_job,
    default_resource_flavor,
    default_workload,
    queue_of_job,
)

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"


def _job(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j", "labels": labels or {}}, "spec": spec}


JOBS = [
    pytest.param(_job(), JobSurroundings(), None, id="a job that nobody wants managed is left alone"),
    pytest.param(
        _job({QUEUE: "q"}), JobSurroundings(), _job({QUEUE: "q"}, suspend=True), id="a job with a queue is suspended"
    ),
    pytest.param(
        _job({QUEUE: "q"}, suspend=True), JobSurroundings(), None, id="a job that is as it should be is left alone"
    ),
    pytest.param(
        _job(),
        JobSurroundings(default_queue=True),
        _job({QUEUE: "default"}, suspend=True),
        id="a job without a queue gets the default one",
    ),
    pytest.param(
        _job(),
        JobSurroundings(default_queue=True, owner_managed=True, manage_unqueued=True),
        None,
        id="what a managed owner made is left to its owner",
    ),
    pytest.param(
        _job({QUEUE: "q"}),
        JobSurroundings(default_queue=True, namespace_managed=False),
        None,
        id="a namespace that is not managed is left alone",
    ),
    pytest.param(
        _job(), JobSurroundings(manage_unqueued=True), _job(suspend=True), id="every job is managed where that is set"
    ),
    pytest.param(
        _job({QUEUE: "q"}),
        JobSurroundings(default_priority_class=True),
        _job({QUEUE: "q", PRIORITY: "default"}, suspend=True),
        id="the default priority class",
    ),
    pytest.param(
        _job({QUEUE: "q", PRIORITY: "high"}, suspend=True),
        JobSurroundings(default_priority_class=True),
        None,
        id="a priority class of its own stays",
    ),
    pytest.param(
        _job({QUEUE: "q"}),
        JobSurroundings(multikueue=True),
        _job({QUEUE: "q"}, suspend=True, managedBy="kueue.x-k8s.io/multikueue"),
        id="a job for worker clusters is managed by MultiKueue",
    ),
    pytest.param(
        _job({QUEUE: "q"}, suspend=True, managedBy="kubernetes.io/job-controller"),
        JobSurroundings(multikueue=True),
        _job({QUEUE: "q"}, suspend=True, managedBy="kueue.x-k8s.io/multikueue"),
        id="the controller's own name counts as none",
    ),
    pytest.param(
        _job({QUEUE: "q"}, suspend=True, managedBy="example.com/mine"),
        JobSurroundings(multikueue=True),
        None,
        id="somebody else's job stays theirs",
    ),
]


@pytest.mark.parametrize(("job", "surroundings", "want"), JOBS)
def test_a_job_is_created_as_kueue_wants_it(
    job: dict[str, Any], surroundings: JobSurroundings, want: dict[str, Any] | None
) -> None:
    got = default_job(job, surroundings)
    if want is None:
        assert got is job
    else:
        assert got == want


def test_the_queue_is_known_before_the_job_is_defaulted() -> None:
    assert queue_of_job(_job({QUEUE: "q"}), JobSurroundings(default_queue=True)) == "q"
    assert queue_of_job(_job(), JobSurroundings(default_queue=True)) == "default"
    assert queue_of_job(_job(), JobSurroundings()) == ""
    both = JobSurroundings(default_queue=True, namespace_queue="team")
    assert queue_of_job(_job(), both) == "team", "the label of the namespace comes before the default"
    assert queue_of_job(_job({QUEUE: "q"}), both) == "q", "and after the label of the job"
    assert queue_of_job(_job(), JobSurroundings(namespace_queue="team", namespace_managed=False)) == ""


def test_a_gate_keeps_priority_classes_from_being_defaulted() -> None:
    surroundings = JobSurroundings(default_priority_class=True)
    job = _job({QUEUE: "q"}, suspend=True)
    assert default_job(job, surroundings, gate=lambda name: name != "WorkloadPriorityClassDefaulting") is job


@pytest.mark.parametrize("default", [default_cluster_queue, default_resource_flavor])
def test_a_finalizer_keeps_what_is_in_use(default: Any) -> None:
    made = default({"metadata": {"name": "x", "finalizers": ["a"]}})
    assert made["metadata"]["finalizers"] == ["a", "kueue.x-k8s.io/resource-in-use"]
    assert default(made) is made


def test_min_count_is_dropped_where_partial_admission_is_off() -> None:
    workload = {"spec": {"queueName": "q", "podSets": [{"name": "a", "count": 3, "minCount": 1}, {"name": "b"}]}}
    assert default_workload(workload) is workload
    assert default_workload(workload, gate=lambda name: False) == {
        "spec": {"queueName": "q", "podSets": [{"name": "a", "count": 3}, {"name": "b"}]}
    }


ADMISSION_GATE = {"name": "kueue.x-k8s.io/admission"}
TOPOLOGY_GATE = {"name": "kueue.x-k8s.io/topology"}
OWN_GATE = {"name": "example.com/own"}


def _gated(pod: dict[str, Any]) -> dict[str, Any]:
    return default_gated(pod, JobSurroundings())


@pytest.mark.parametrize("default", [_gated, default_held])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [ADMISSION_GATE, TOPOLOGY_GATE], id="without gates"),
        pytest.param([OWN_GATE], [OWN_GATE, ADMISSION_GATE, TOPOLOGY_GATE], id="with one of its own"),
        pytest.param([TOPOLOGY_GATE], [TOPOLOGY_GATE, ADMISSION_GATE], id="with that of topologies"),
        pytest.param([ADMISSION_GATE], [ADMISSION_GATE, TOPOLOGY_GATE], id="with that of admission"),
    ],
)
def test_a_pod_is_created_with_both_gates(default: Any, before: list[Any], after: list[Any]) -> None:
    made = default(_job({QUEUE: "q"}, schedulingGates=before))
    assert made["spec"]["schedulingGates"] == after
    assert made["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert default(made) == made


def test_a_pod_that_has_all_is_left_alone_and_so_is_one_that_is_not_queued() -> None:
    made = _gated(_job({QUEUE: "q"}))
    assert _gated(made) is made
    plain = _job()
    assert _gated(plain) is plain
