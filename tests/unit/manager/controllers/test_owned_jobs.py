# SPDX-License-Identifier: Apache-2.0
"""Jobs in the name of a queued owner together request no more than the quota of that owner."""

from __future__ import annotations

from typing import Any

import pytest

from manager.controllers.owned_jobs import excess
from multikueue.jobs.kinds.batch_job import BATCH_JOB

JsonObject = dict[str, Any]


def template(cpu: str, **more: str) -> JsonObject:
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, **more}}}]}}


def job(name: str, cpu: str = "1", *, age: int = 0, parallelism: int = 1, **more: Any) -> JsonObject:
    """The smaller `age`, the older it is."""
    metadata = {"name": name, "namespace": "team", "creationTimestamp": f"2026-01-01T00:00:{age:02}Z"}
    spec = {"parallelism": parallelism, "completions": parallelism, "template": template(cpu), "suspend": False}
    return {"metadata": metadata | more.pop("metadata", {}), "spec": spec | more.pop("spec", {}), **more}


def workload(cpu: str, *, count: int = 1, usage: dict[str, str] | None = None) -> JsonObject:
    pod_set = {"name": "main", "count": count, "template": template(cpu)}
    assignment = {"name": "main", "count": count, "resourceUsage": usage or {}}
    return {"spec": {"podSets": [pod_set]}, "status": {"admission": {"podSetAssignments": [assignment]}}}


def beyond(one: JsonObject, *others: JsonObject, held: list[JsonObject]) -> str:
    return excess(one, (one, *others), held, integration=BATCH_JOB)


COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize(
    ("one", "others", "held", "found"),
    [
        pytest.param(job("a"), (), [workload("1")], "", id="one within the quota"),
        pytest.param(job("a", "2"), (), [workload("1")], "cpu 2 instead of 1", id="one beyond it"),
        pytest.param(job("a", parallelism=3), (), [workload("1", count=3)], "", id="all pods of a pod set"),
        pytest.param(job("a", parallelism=4), (), [workload("1", count=3)], "cpu 4 instead of 3", id="more pods"),
        pytest.param(job("b", age=1), (job("a"),), [workload("1", count=2)], "", id="two that share it"),
        pytest.param(job("b", age=1), (job("a"),), [workload("1")], "cpu 2 instead of 1", id="the younger of two"),
        pytest.param(job("a"), (job("b", age=1),), [workload("1")], "", id="the older of two"),
        pytest.param(job("b"), (job("a"),), [workload("1")], "cpu 2 instead of 1", id="by name at one time"),
        pytest.param(
            job("b", age=1), (job("a", spec={"suspend": True}),), [workload("1")], "", id="beside one that is suspended"
        ),
        pytest.param(job("b", age=1), (job("a", status=COMPLETE),), [workload("1")], "", id="after one that ended"),
        pytest.param(
            job("b", age=1),
            (job("a", metadata={"deletionTimestamp": "2026-01-01T00:01:00Z"}),),
            [workload("1")],
            "",
            id="in the place of one that is being deleted",
        ),
        pytest.param(job("a", "2"), (), [workload("1"), workload("1")], "", id="with several Workloads of the owner"),
        pytest.param(job("a", "2"), (), [workload("1", usage={"cpu": "2"})], "", id="with what was counted, if more"),
        pytest.param(
            job("a"), (), [workload("1", usage={"example.com/credits": "5"})], "", id="with resources that are mapped"
        ),
        pytest.param(
            job("a", spec={"template": template("1", **{"example.com/gpu": "1"})}),
            (),
            [workload("1")],
            "example.com/gpu 1 instead of 0",
            id="a resource that the owner does not request",
        ),
    ],
)
def test_what_a_job_requests_beyond_its_owner(
    one: JsonObject, others: tuple[JsonObject, ...], held: list[JsonObject], found: str
) -> None:
    assert beyond(one, *others, held=held) == found


def test_a_job_that_cannot_be_understood_is_beyond_and_affects_itself_only() -> None:
    odd = job("odd", metadata={"annotations": {"kueue.x-k8s.io/job-min-parallelism": "²"}})
    assert "job-min-parallelism" in beyond(odd, held=[workload("9")])
    assert beyond(job("b", age=1), odd, held=[workload("1")]) == ""
