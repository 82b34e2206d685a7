# SPDX-License-Identifier: Apache-2.0
"""What the provisioning demo tells of each change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devcluster import manifests
from multikueue.cli.local.provisioning.story import (
    ExampleView,
    WorkerView,
    example_view,
    happened,
    happened_here,
    worker_view,
)

EXAMPLE = Path(__file__).parents[4] / "deploy" / "examples" / "provisioning" / "across-clusters"


def request(name: str = "r-1", **conditions: str) -> dict[str, Any]:
    """A request with these conditions True; `expected` is the message of Provisioned=False."""
    found = [{"type": kind, "status": "True", "message": message} for kind, message in conditions.items()]
    found = [
        {"type": "Provisioned", "status": "False", "message": each["message"]} if each["type"] == "expected" else each
        for each in found
    ]
    return {"metadata": {"name": name, "creationTimestamp": name}, "status": {"conditions": found}}


def view(worker: WorkerView, **changes: Any) -> ExampleView:
    return ExampleView(workers={"w1": worker}, **changes)


def sentences(before: ExampleView, after: ExampleView) -> list[str]:
    return list(happened(before, after))


def test_the_timeline_of_one_cluster() -> None:
    nothing = view(worker_view([], 0))
    asked = view(worker_view([request(expected="Capacity is expected at 12:05")], 0))
    assert sentences(nothing, asked) == ["w1: capacity is requested (r-1)", "w1: Capacity is expected at 12:05"]
    runs = view(worker_view([request(Provisioned="yes")], 3), cluster="w1", active=3)
    assert sentences(asked, runs) == [
        "w1: 3 new nodes are there",
        "hub: w1 has the capacity, the Job is sent there",
        "hub: 3 pods of the Job run on w1",
    ]
    assert sentences(runs, runs) == []
    revoked = view(worker_view([request(Provisioned="yes", CapacityRevoked="gone")], 0), stops=1)
    assert sentences(runs, revoked) == [
        "hub: the Job is stopped on w1 and needs capacity again",
        "w1: the capacity is revoked",
        "w1: its new nodes are removed",
    ]
    assert sentences(revoked, view(worker_view([], 0), stops=1, complete=True)) == [
        "w1: the request is deleted",
        "hub: the Job is complete",
    ]


def test_a_request_that_fails() -> None:
    assert sentences(view(worker_view([request()], 0)), view(worker_view([request(Failed="x")], 0))) == [
        "w1: the request has failed"
    ]


def test_a_workload_is_read_with_its_evictions() -> None:
    stats = {"evictions": [{"reason": "AdmissionCheck", "count": 2}]}
    workload = {"status": {"clusterName": "w1", "schedulingStats": stats}}
    job = {"status": {"active": 3, "conditions": [{"type": "Complete", "status": "True"}]}}
    found = example_view(job, workload, {})
    assert found == ExampleView(cluster="w1", active=3, complete=True, stops=2)
    assert example_view(None, None, {}) == ExampleView()
    assert example_view(None, {"spec": {"active": False}}, {}) == ExampleView(deactivated=True)


def test_the_timeline_of_one_cluster_ends_with_a_deactivation_until_a_user_activates_it() -> None:
    runs = view(worker_view([request(Provisioned="yes")], 3), active=3)
    assert list(happened_here(view(worker_view([request()], 0)), runs)) == [
        "w1: 3 new nodes are there",
        "manager: 3 pods of the Job run",
    ]
    revoked = view(worker_view([], 0), stops=1, deactivated=True)
    assert list(happened_here(runs, revoked)) == [
        "manager: the Job is stopped",
        "manager: its Workload is deactivated and is not tried again by itself",
        "w1: its new nodes are removed",
        "w1: the request is deleted",
    ]
    assert list(happened_here(revoked, view(worker_view([], 0), stops=1, complete=True))) == [
        "manager: the Job is complete"
    ]


def test_the_example_has_one_job_and_both_checks_in_its_queue() -> None:
    objects = manifests.read(EXAMPLE)
    kinds = [each["kind"] for each in objects]
    assert kinds.count("Job") == 1
    (queue,) = [each for each in objects if each["kind"] == "ClusterQueue"]
    checks = {each["name"] for each in queue["spec"]["admissionChecksStrategy"]["admissionChecks"]}
    assert checks == {each["metadata"]["name"] for each in objects if each["kind"] == "AdmissionCheck"}
