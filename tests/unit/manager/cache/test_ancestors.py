# SPDX-License-Identifier: Apache-2.0
"""The owner in whose place a job is not queued."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.cache.ancestors import MAX_DEPTH, ancestry
from manager.cache.queue_targets import Views
from multikueue.api.resource import JOBS, PODS, STATEFUL_SETS, Resource
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import JobRegistry, known_integrations

QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
LEADER_WORKER_SETS = "leaderworkerset.x-k8s.io/leaderworkerset"
FRAMEWORKS = ("batch/job", "deployment", "statefulset", "jobset.x-k8s.io/jobset", LEADER_WORKER_SETS)
REGISTRY = JobRegistry(FRAMEWORKS, external=("Flow.v1.example.com",), known=known_integrations())
SETS = "jobset.x-k8s.io/v1alpha2 JobSet"


def obj(name: str, owner: str = "", *, labels: dict[str, str] | None = None, kind: str = SETS) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "team", "uid": name, "labels": labels or {}}
    if owner:
        version, _, kind = kind.partition(" ")
        reference = {"apiVersion": version, "kind": kind, "name": owner, "uid": owner, "controller": True}
        metadata["ownerReferences"] = [reference]
    return {"metadata": metadata, "spec": {}}


def found(job: Any, *known: Any, manage_unqueued: bool = False, kind: Resource = JOBS) -> Any:
    by_key = {Key("team", each["metadata"]["name"]): each for each in known}
    views = cast(Views, SimpleNamespace(view=lambda resource: SimpleNamespace(object=by_key.get)))
    return ancestry(job, REGISTRY, views, kind=kind, manage_unqueued=manage_unqueued)


@pytest.mark.parametrize(
    ("job", "known", "managed"),
    [
        pytest.param(obj("a"), (), False, id="a job without an owner"),
        pytest.param(obj("a", "b"), (obj("b", labels=QUEUED),), True, id="a job of a queued owner"),
        pytest.param(obj("a", "b"), (obj("b"),), False, id="a job of an owner that is not queued"),
        pytest.param(obj("a", "b"), (obj("b", "c"), obj("c", labels=QUEUED)), True, id="with the owner's owner queued"),
        pytest.param(
            obj("a", "b", kind="apps/v1 ReplicaSet"),
            (obj("b", labels=QUEUED),),
            False,
            id="of a kind that is not enabled",
        ),
        pytest.param(
            obj("a", "b", kind="example.com/v1 Flow"), (), True, id="of a kind that another controller queues"
        ),
        pytest.param(obj("a", "b"), (), True, id="of an owner that was not seen yet"),
    ],
)
def test_a_job_is_left_to_its_owner(job: Any, known: tuple[Any, ...], managed: bool) -> None:
    assert found(job, *known).is_managed is managed


def test_where_every_job_is_managed_so_is_an_owner_without_a_queue() -> None:
    assert found(obj("a", "b"), obj("b"), manage_unqueued=True).is_managed


def test_the_topmost_queued_owner_counts() -> None:
    owners = (obj("b", "c", labels=QUEUED), obj("c", labels=QUEUED))
    assert found(obj("a", "b"), *owners).key == Key("team", "c")


def test_owners_are_followed_to_a_depth_only() -> None:
    chain = [obj(f"o{number}", f"o{number + 1}") for number in range(MAX_DEPTH + 3)]
    above = found(chain[0], *chain[1:])
    assert above.too_deep
    assert not above.is_managed


def test_a_pod_is_left_to_a_queued_stateful_set_and_a_job_that_names_one_is_not() -> None:
    owner = obj("web", labels=QUEUED)
    pod = obj("web-0", "web", kind="apps/v1 StatefulSet")
    above = found(pod, owner, kind=PODS)
    assert above.is_managed
    assert above.holder is not None
    assert not found(obj("j", "web", kind="apps/v1 StatefulSet"), owner).is_managed


def test_a_pod_of_a_stateful_set_that_was_not_seen_yet_is_held() -> None:
    above = found(obj("web-0", "web", kind="apps/v1 StatefulSet"), kind=PODS)
    assert above.missing == Key("team", "web")
    assert above.holder is not None


def named_pod(owner: str = "", *, kind: str = "apps/v1 StatefulSet") -> Any:
    """A pod that names the LeaderWorkerSet llm as its pod template does."""
    pod = obj("llm-0-1", owner, labels={**QUEUED, "leaderworkerset.sigs.k8s.io/name": "llm"}, kind=kind)
    pod["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-suspending-parent": LEADER_WORKER_SETS}
    return pod


@pytest.mark.parametrize("owner", ["", "llm-0"], ids=["without an owner", "of a StatefulSet in between"])
def test_a_pod_that_names_a_queued_leader_worker_set_is_left_to_it(owner: str) -> None:
    above = found(named_pod(owner), obj("llm", labels=QUEUED), obj("llm-0"), kind=PODS)
    assert above.key == Key("team", "llm")
    assert above.holder is not None
    assert above.holder.framework == LEADER_WORKER_SETS


def test_a_pod_that_names_one_that_was_not_seen_yet_is_held_and_one_that_is_not_queued_is_no_owner() -> None:
    above = found(named_pod(), kind=PODS)
    assert above.missing == Key("team", "llm")
    assert above.holder is not None
    assert not found(named_pod(), obj("llm"), kind=PODS).is_managed


def test_a_job_that_names_a_leader_worker_set_is_queued_whatever_its_labels_say() -> None:
    owner = obj("llm", labels=QUEUED)
    assert not found(named_pod(), owner).is_managed
    assert not found(obj("j", "llm", kind="leaderworkerset.x-k8s.io/v1 LeaderWorkerSet"), owner).is_managed


def test_a_stateful_set_that_the_controller_of_a_leader_worker_set_makes_is_left_to_it() -> None:
    made = obj("llm-0", "llm", kind="leaderworkerset.x-k8s.io/v1 LeaderWorkerSet")
    above = found(made, obj("llm", labels=QUEUED), kind=STATEFUL_SETS)
    assert above.key == Key("team", "llm")


@pytest.mark.parametrize("kind", [pytest.param(PODS, id="a pod"), pytest.param(JOBS, id="a Job")])
def test_nothing_is_left_to_a_deployment(kind: Resource) -> None:
    assert not found(obj("a", "web", kind="apps/v1 Deployment"), obj("web", labels=QUEUED), kind=kind).is_managed


def test_a_job_that_names_another_job_as_its_owner_is_queued() -> None:
    job = obj("b", "a", kind="batch/v1 Job")
    assert not found(job, obj("a", labels=QUEUED)).is_managed
    assert found(job, obj("a", labels=QUEUED), kind=PODS).is_managed
