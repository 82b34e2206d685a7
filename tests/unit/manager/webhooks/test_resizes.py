# SPDX-License-Identifier: Apache-2.0
"""Which resizes of pods are reviewed, and which are refused."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from devcluster.apiserver.cel.compile import Expression
from manager.cache.caches import Caches
from manager.cache.indexes import OWNER_INDEX, owner_term
from manager.cache.views import View
from manager.webhooks.configurations import WebhookClientConfig, resize_hook
from manager.webhooks.resizes import ResizeLimits
from multikueue.api.resource import JOBS, WORKLOADS, Resource
from multikueue.core.clock import ManualClock
from multikueue.jobs.framework.registry import JobRegistry

REGISTRY = JobRegistry(("batch/job", "pod"), external=("Flow.v1.flows.example.com",))
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "big", "uid": "big", "controller": True}


def pod(cpu: str, *, owner: dict[str, Any] | None = None, labels: dict[str, str] | None = None) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": "p", "namespace": "team", "ownerReferences": [owner] if owner else [], "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [container]}}


class Stored:
    """A Job of the queue `q`, and a Workload of it with these pod sets."""

    def __init__(self, *pod_sets: dict[str, Any], queue: str = "q") -> None:
        self.views: dict[Resource, View] = {}
        metadata = {"name": "big", "namespace": "team", "uid": "big", "resourceVersion": "1"}
        job = {"metadata": {**metadata, "labels": {"kueue.x-k8s.io/queue-name": queue}}, "spec": {}}
        self.view(JOBS).on_write(orjson.dumps(job))
        self.workloads = [{"metadata": metadata, "spec": {"podSets": list(pod_sets)}, "status": {}}]

    def view(self, resource: Resource) -> Any:
        if resource == WORKLOADS:
            return self
        return self.views.setdefault(resource, View(resource, clock=ManualClock()))

    def objects(self, index: str, term: str) -> list[dict[str, Any]]:
        of_job = owner_term(api_version="batch/v1", kind="Job", namespace="team", name="big")
        return self.workloads if (index, term) == (OWNER_INDEX, of_job) else []


def pod_set(cpu: str, name: str = "main") -> dict[str, Any]:
    return {"name": name, "count": 1, "template": {"spec": pod(cpu)["spec"]}}


def refusal(stored: Stored, new: dict[str, Any], old: dict[str, Any]) -> str:
    limits = ResizeLimits(REGISTRY, cast(Caches, stored), manage_unqueued=False)
    return limits.refusal(new, old, namespace="team")


@pytest.mark.parametrize(
    ("stored", "cpu", "before", "refused"),
    [
        pytest.param(Stored(pod_set("2")), "3", "2", True, id="beyond its pod set"),
        pytest.param(Stored(pod_set("2")), "2", "1", False, id="back to its pod set"),
        pytest.param(Stored(pod_set("2")), "1", "2", False, id="smaller"),
        pytest.param(Stored(pod_set("2")), "4", "4", False, id="not changed, although it is too large already"),
        pytest.param(Stored(pod_set("1"), pod_set("4", "b")), "2", "1", True, id="one of several pod sets"),
        pytest.param(Stored(), "2", "1", True, id="of a Workload without pod sets"),
        pytest.param(Stored(pod_set("1"), queue=""), "2", "1", False, id="of a Job that is not queued"),
    ],
)
def test_a_pod_of_a_job_grows_to_what_quota_is_held_for(stored: Stored, cpu: str, before: str, refused: bool) -> None:
    found = refusal(stored, pod(cpu, owner=JOB), pod(before, owner=JOB))
    assert bool(found) is refused
    if refused:
        assert f'cpu {cpu} instead of {before}: the pod uses the quota of Job "big"' in found


@pytest.mark.parametrize(
    ("owner", "labels", "refused"),
    [
        pytest.param({**JOB, "name": "gone", "uid": "x"}, None, True, id="of a Job that was not seen yet"),
        pytest.param({**JOB, "uid": "other"}, None, True, id="of an older Job of that name"),
        pytest.param({**JOB, "apiVersion": "flows.example.com/v1", "kind": "Flow"}, None, True, id="of another engine"),
        pytest.param({**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}, None, False, id="of another kind"),
        pytest.param(None, {"kueue.x-k8s.io/managed": "true"}, True, id="queued itself"),
        pytest.param({**JOB, "apiVersion": "v9"}, {"kueue.x-k8s.io/managed": "true"}, True, id="queued, of no kind"),
        pytest.param(None, None, False, id="of its own"),
    ],
)
def test_without_a_workload_to_compare_with_it_only_shrinks(owner: Any, labels: Any, refused: bool) -> None:
    stored = Stored()
    new, old = pod("2", owner=owner, labels=labels), pod("1", owner=owner, labels=labels)
    assert bool(refusal(stored, new, old)) is refused
    assert refusal(stored, old, new) == ""


def test_labels_and_owners_of_the_new_object_do_not_count() -> None:
    assert refusal(Stored(pod_set("1")), pod("2"), pod("1", owner=JOB)) != ""


@pytest.mark.parametrize(
    ("metadata", "asked"),
    [
        pytest.param({}, False, id="a pod of nobody"),
        pytest.param({"ownerReferences": [JOB]}, True, id="of a kind that is queued"),
        pytest.param({"ownerReferences": [{**JOB, "controller": False}]}, False, id="that the Job does not control"),
        pytest.param({"ownerReferences": [{**JOB, "kind": "Flow"}]}, True, id="of a kind that another engine queues"),
        pytest.param({"ownerReferences": [{**JOB, "kind": "ReplicaSet"}]}, False, id="of a kind that is not queued"),
        pytest.param({"labels": {"kueue.x-k8s.io/managed": "true"}}, True, id="queued itself"),
        pytest.param({"labels": {"a": "b"}}, False, id="with other labels"),
    ],
)
def test_the_webhook_is_asked_about_a_pod(metadata: dict[str, Any], asked: bool) -> None:
    hook = resize_hook(REGISTRY, external=["Flow"])
    entry = hook.manifest(WebhookClientConfig(ca_bundle="", url="https://hub"), excluded=("kube-system",))
    assert entry["rules"][0]["resources"] == ["pods/resize"]
    variables = {"object": {"metadata": metadata}}
    (condition,) = entry["matchConditions"]
    assert Expression(condition["expression"], variables=frozenset(variables)).evaluate(variables) is asked
