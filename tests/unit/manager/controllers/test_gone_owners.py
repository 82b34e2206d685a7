# SPDX-License-Identifier: Apache-2.0
"""A Workload that is deleted, and whose job is not in the cache: the server is asked before the job counts as gone."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiohttp import web

from manager.cache.views import View
from manager.controllers.workloads import WorkloadReconciler
from manager.metrics import ManagerMetrics
from manager.workload.status import Status
from multikueue.api.configuration import Configuration
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import Resource
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.runtime.quarantine import Quarantine
from tests.support.stub_api import json_answer, status_answer, stub_api
from tests.unit.manager.builders import admitted, wire

pytestmark = pytest.mark.anyio

CLOCK: Final = SystemClock()
OWNER: Final = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "job-uid", "controller": True}
JOB: Final = {"metadata": {"name": "nightly", "namespace": "team", "uid": "job-uid", "resourceVersion": "7"}}
DELETED: Final[JsonObject] = wire(
    admitted(),
    ownerReferences=[OWNER],
    deletionTimestamp="2026-01-01T12:00:00Z",
    finalizers=["kueue.x-k8s.io/resource-in-use"],
)
LISTED: Final = "GET /apis/batch/v1/namespaces/team/jobs?limit=500&fieldSelector=metadata.name%3Dnightly"


def listed(*jobs: JsonObject) -> web.Response:
    return json_answer({"metadata": {"resourceVersion": "9"}, "items": jobs})


async def written(answer: web.Response) -> tuple[list[Status], list[str]]:
    """The statuses that a reconcile of `DELETED` writes if a list of its job has this answer, and the requests."""
    views: dict[Resource, View] = {}
    statuses: list[Status] = []
    engine: Any = SimpleNamespace(
        bypassed=lambda key: None, claims_problem=lambda key: "", claims_beyond=lambda key: ""
    )
    pending_writes: Any = SimpleNamespace()

    async def server(request: web.Request) -> web.StreamResponse:
        return answer

    async def write(key: Key, change: Any, **_: object) -> JsonObject:
        statuses.append(change(Status.of(DELETED)))
        return DELETED

    async with stub_api(server) as api, api.client() as client:
        context: Any = SimpleNamespace(
            client=client,
            clock=CLOCK,
            random=Random(1),
            configuration=Configuration(),
            metrics=ManagerMetrics(),
            recorder=SimpleNamespace(event=lambda *_: None),
            caches=SimpleNamespace(
                view=lambda resource: views.setdefault(resource, View(resource, clock=CLOCK)),
                quarantine=Quarantine(clock=CLOCK),
            ),
            statuses=SimpleNamespace(
                current=lambda key: DELETED, write=write, may_run_elsewhere=lambda workload: False
            ),
        )
        reconciler = WorkloadReconciler(
            context,
            registry=JobRegistry.configured(context.configuration),
            pods_ready=None,
            engine=lambda: engine,
            pending_writes=pending_writes,
        )
        await reconciler.reconcile(Key("team", "w"))
        return statuses, api.seen


async def test_it_is_not_finished_while_the_cache_of_jobs_lags_behind() -> None:
    """Its quota would be released, and the next Workload of the job sent elsewhere, while the job still runs."""
    statuses, requests = await written(listed(JOB))
    assert requests == [LISTED]
    assert not any(status.is_true(WorkloadCondition.FINISHED) for status in statuses)


async def test_it_is_finished_if_the_server_has_no_such_job_or_another_one() -> None:
    another = {"metadata": {**JOB["metadata"], "uid": "another"}}
    for answer in (listed(), listed(another), status_answer(404, "NotFound")):
        statuses, _ = await written(answer)
        assert [status.is_true(WorkloadCondition.FINISHED) for status in statuses] == [True]
