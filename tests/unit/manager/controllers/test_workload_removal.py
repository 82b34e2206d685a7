# SPDX-License-Identifier: Apache-2.0
"""When the Workload of a job that is not in the cache is removed: only if it is certain that the job is gone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from aiohttp import web

from manager.context import ManagerContext
from manager.controllers.workload_removal import remove_orphan
from multikueue.api.constants import RESOURCE_IN_USE_FINALIZER
from multikueue.api.resource import JOBS, PODS, Resource
from multikueue.kube.errors import ApiError, NotFound
from tests.support.stub_api import json_answer, status_answer, stub_api

PIPELINES: Final = Resource("ci.example.com", "v1", "Pipeline", "pipelines")
OWNER: Final = {"apiVersion": "ci.example.com/v1", "kind": "Pipeline", "name": "nightly", "uid": "u"}
WORKLOAD: Final[dict[str, Any]] = {
    "metadata": {"name": "w", "namespace": "team", "uid": "w-u", "resourceVersion": "1", "ownerReferences": [OWNER]}
}


async def writes(
    answer: Callable[[], web.Response],
    *,
    removed: bool = False,
    resource: Resource = PIPELINES,
    workload: dict[str, Any] = WORKLOAD,
) -> list[str]:
    """What is written if the server answers so to a GET of the job; `removed` is what the caches know of the kind."""

    async def server(request: web.Request) -> web.StreamResponse:
        return answer() if request.method == "GET" else json_answer(workload)

    async with stub_api(server) as api, api.client() as client:
        written = SimpleNamespace(on_write=lambda raw: None)
        caches = SimpleNamespace(is_removed=lambda _: removed, view=lambda _: written)
        context = cast(ManagerContext, SimpleNamespace(client=client, caches=caches))
        await remove_orphan(context, workload, resource)
        return [seen for seen in api.seen if not seen.startswith("GET")]


def named() -> web.Response:
    details = {"name": "nightly", "group": "ci.example.com", "kind": "pipelines"}
    return json_answer({"kind": "Status", "code": 404, "reason": "NotFound", "details": details}, 404)


def not_served() -> web.Response:
    return web.Response(text="404 page not found\n", status=404)


async def test_it_is_removed_if_the_server_has_no_such_job_or_one_of_that_name() -> None:
    gone = ["DELETE /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w"]
    assert await writes(named) == gone
    assert await writes(lambda: json_answer({"metadata": {"uid": "another"}})) == gone
    assert await writes(lambda: json_answer({"metadata": {"uid": "u"}})) == []


async def test_its_finalizer_is_removed_only_if_the_job_is_gone_whatever_the_cache_has() -> None:
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w"
    held: dict[str, Any] = {"metadata": {**WORKLOAD["metadata"], "finalizers": [RESOURCE_IN_USE_FINALIZER]}}
    deleted: dict[str, Any] = {"metadata": {**held["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}}
    for workload in (held, deleted):
        assert await writes(lambda: json_answer({"metadata": {"uid": "u"}}), workload=workload) == []
    assert await writes(named, workload=held) == [f"PATCH {path}", f"DELETE {path}"]
    assert await writes(named, workload=deleted) == [f"PATCH {path}"]
    assert await writes(not_served, workload=deleted) == [f"PATCH {path}"], "its kind may be gone with the job"
    with pytest.raises(NotFound):
        await writes(not_served, workload=held)


async def test_it_is_removed_if_the_job_went_with_its_kind() -> None:
    assert await writes(not_served, removed=True) != []
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "u"}
    of_job = {"metadata": WORKLOAD["metadata"] | {"ownerReferences": [owner]}}
    assert await writes(not_served, resource=JOBS, workload=of_job) != []


async def test_that_of_a_job_of_another_kind_is_left_with_its_finalizer() -> None:
    held = {"metadata": {**WORKLOAD["metadata"], "finalizers": [RESOURCE_IN_USE_FINALIZER]}}
    assert await writes(named, resource=PODS, workload=held) == []


async def test_it_is_removed_with_a_job_that_it_names_by_an_earlier_version_of_its_api() -> None:
    owner = OWNER | {"apiVersion": "ci.example.com/v1alpha1"}
    former = {"metadata": {**WORKLOAD["metadata"], "ownerReferences": [owner]}}
    assert await writes(named, workload=former) != []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(not_served, NotFound, id="the kind is not served"),
        pytest.param(lambda: web.Response(text="<html>", status=404), NotFound, id="a proxy answers"),
        pytest.param(lambda: status_answer(404, "NotFound"), NotFound, id="the 404 names nothing"),
        pytest.param(lambda: status_answer(429, "", Retry_After="60"), ApiError, id="the server is overloaded"),
        pytest.param(lambda: status_answer(500, "", Retry_After="60"), ApiError, id="the server fails"),
    ],
)
async def test_it_is_kept_and_tried_again_if_that_is_not_certain(
    answer: Callable[[], web.Response], error: type[ApiError]
) -> None:
    with pytest.raises(error):
        await writes(answer)


def of_pods(*others: dict[str, Any]) -> dict[str, Any]:
    """A Workload of a group of two pods, with other owners."""
    pods = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"} for name in ("a", "b")]
    metadata = {**WORKLOAD["metadata"], "finalizers": [RESOURCE_IN_USE_FINALIZER], "ownerReferences": [*pods, *others]}
    return {"metadata": metadata}


async def test_that_of_a_group_of_one_pod_is_kept_while_the_pod_exists() -> None:
    """The group has another name than the pod, and no object has that name."""
    one = of_pods()
    del one["metadata"]["ownerReferences"][1:]
    assert await writes(lambda: json_answer({"metadata": {"uid": "uid-a"}}), resource=PODS, workload=one) == []


async def test_that_of_a_group_is_removed_if_none_of_its_pods_exists() -> None:
    """Pods of the same names may have been created, and would run by a Workload without finalizer: seed 581."""
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w"
    answers = [json_answer({"metadata": {"uid": "another"}}) for _ in range(2)]
    assert await writes(answers.pop, resource=PODS, workload=of_pods()) == [f"PATCH {path}", f"DELETE {path}"]
    answers = [json_answer({"metadata": {"uid": uid}}) for uid in ("uid-b", "another")]
    assert await writes(answers.pop, resource=PODS, workload=of_pods()) == [], "the cache lags behind"
    assert answers == [], "both were asked for"


async def test_that_of_a_group_with_another_owner_is_left_to_the_garbage_collector() -> None:
    other = {"apiVersion": "ci.example.com/v1", "kind": "Pipeline", "name": "nightly", "uid": "u"}
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w"
    replaced = [json_answer({"metadata": {"uid": "another"}}) for _ in range(2)]
    assert await writes(replaced.pop, resource=PODS, workload=of_pods(other)) == [f"PATCH {path}"]
