# SPDX-License-Identifier: Apache-2.0
"""Which running pods the quota of their owner covers."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.cache.queue_targets import Views
from manager.owners.pod_review import PodReview
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import JobRegistry, known_integrations

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FRAMEWORKS = ("batch/job", "pod", "deployment", "jobset.x-k8s.io/jobset")
REGISTRY = JobRegistry(FRAMEWORKS, external=("Flow.v1.example.com",), known=known_integrations())
JOB = "batch/v1 Job"
SETS = "jobset.x-k8s.io/v1alpha2 JobSet"
QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
Object = dict[str, Any]


def controlled_by(owner: str, kind: str) -> list[Object]:
    version, _, kind = kind.partition(" ")
    return [{"apiVersion": version, "kind": kind, "name": owner, "uid": owner, "controller": True}] if owner else []


def pod(name: str, owner: str = "job", *, kind: str = JOB, cpu: str = "1", age: int = 0, **more: Any) -> Object:
    """The smaller `age`, the older it is."""
    metadata = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": f"2026-01-01T00:00:{age:02}Z"}
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": {**metadata, "ownerReferences": controlled_by(owner, kind), **more.pop("metadata", {})},
        "spec": {"containers": containers, **more.pop("spec", {})},
        "status": {"phase": "Running"},
        **more,
    }


def job(name: str, owner: str = "", *, labels: dict[str, str] | None = None) -> Object:
    references = controlled_by(owner, SETS)
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": labels or {}, "ownerReferences": references}
    return {"metadata": metadata, "spec": {}}


def workload(cpu: str, *, admitted: bool = True, cluster: str = "") -> Object:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    conditions = [{"type": "Admitted", "status": "True"}] if admitted else []
    return {"spec": {"podSets": [pod_set]}, "status": {"conditions": conditions, "clusterName": cluster}}


def found(*pods: Object, jobs: tuple[Object, ...] = (), held: Object | None = None) -> dict[str, str]:
    by_key = {Key("team", each["metadata"]["name"]): each for each in jobs}
    views = cast(Views, SimpleNamespace(view=lambda resource: SimpleNamespace(object=by_key.get)))
    workloads = [] if held is None else [held]
    review = PodReview(REGISTRY, views, lambda resource, key: workloads, manage_unqueued=False)
    for each in pods:
        review.add(each)
    return {each.key.name: each.why for each in review.uncovered(now=NOW)}


QUEUED_JOB = (job("job", labels=QUEUED),)


def test_pods_that_fit_into_the_workload_of_their_owner_are_covered() -> None:
    assert found(pod("a"), pod("b"), jobs=QUEUED_JOB, held=workload("2")) == {}


def test_the_youngest_beyond_it_are_not() -> None:
    pods = (pod("old"), pod("large", cpu="5", age=1), pod("new", age=2), pod("newest", age=3))
    assert found(*pods, jobs=QUEUED_JOB, held=workload("2")) == {
        "large": "Job job, its owner, has less quota than its pods request: cpu 6 instead of 2",
        "newest": "Job job, its owner, has less quota than its pods request: cpu 3 instead of 2",
    }


def test_pods_below_several_jobs_share_the_quota_of_the_topmost_owner() -> None:
    jobs = (job("top", labels=QUEUED), job("left", "top"), job("right", "top"))
    pods = (pod("a", "left"), pod("b", "right", age=1), pod("c", "top", kind=SETS, age=2))
    answer = "JobSet top, its owner, has less quota than its pods request: cpu 3 instead of 2"
    assert found(*pods, jobs=jobs, held=workload("2")) == {"c": answer}


@pytest.mark.parametrize(
    ("held", "why"),
    [
        pytest.param(None, "Job job, its owner, is not admitted", id="without a Workload"),
        pytest.param(workload("9", admitted=False), "Job job, its owner, is not admitted", id="that waits"),
        pytest.param(
            workload("9", cluster="west"), "Job job, its owner, runs on a worker cluster", id="that runs elsewhere"
        ),
    ],
)
def test_pods_of_an_owner_are_not_covered(held: Object | None, why: str) -> None:
    assert found(pod("a"), jobs=QUEUED_JOB, held=held) == {"a": why}


def test_pods_of_an_owner_that_does_not_exist_or_was_made_again_are_not_covered() -> None:
    why = 'the owner "ghost" above it does not exist'
    assert found(pod("a", "ghost")) == {"a": why}
    again = job("ghost", labels=QUEUED)
    again["metadata"]["uid"] = "other"
    assert found(pod("a", "ghost"), jobs=(again,), held=workload("9")) == {"a": why}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(pod("a", ""), id="without an owner"),
        pytest.param(pod("a", "web", kind="apps/v1 ReplicaSet"), id="of a kind that is not enabled"),
        pytest.param(pod("a", "web", kind="apps/v1 Deployment"), id="of a kind whose pods are queued"),
        pytest.param(pod("a", "flow", kind="example.com/v1 Flow"), id="of a kind that another controller queues"),
        pytest.param(pod("a", "driver", kind="v1 Pod"), id="of a pod"),
        pytest.param(pod("a", metadata={"labels": {"kueue.x-k8s.io/managed": "true"}}), id="that is managed"),
        pytest.param(pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), id="that is being deleted"),
        pytest.param(pod("a", status={"phase": "Succeeded"}), id="that has ended"),
        pytest.param(pod("a", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}), id="that is gated"),
    ],
)
def test_other_pods_are_not_judged(one: Object) -> None:
    assert found(one, jobs=QUEUED_JOB) == {}


def test_pods_of_a_job_that_is_not_queued_are_not_judged() -> None:
    assert found(pod("a"), jobs=(job("job"),)) == {}


def test_a_pod_whose_requests_cannot_be_read_is_reported_and_affects_itself_only() -> None:
    assert list(found(pod("odd", cpu="much"), pod("b"), jobs=QUEUED_JOB, held=workload("1"))) == ["odd"]


def test_the_name_of_an_owner_is_escaped_and_cut() -> None:
    (why,) = found(pod("a", "\x1b[2J" + "x" * 5000)).values()
    assert "\x1b" not in why
    assert len(why) < 500
