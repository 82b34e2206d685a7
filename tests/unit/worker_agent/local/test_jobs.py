# SPDX-License-Identifier: Apache-2.0
"""Remote jobs that no watch shows; against an API server whose answers the test decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from multikueue.api.constants import ORIGIN_LABEL, PREBUILT_WORKLOAD_ANNOTATION, WORKLOAD_NAME_ANNOTATION
from multikueue.core.clock import ManualClock
from multikueue.kube.errors import KubeError
from tests.support.remote_jobs import ASSIGNMENT, KEY, OVERDUE, job, remote_jobs
from tests.support.stub_api import json_answer, listing, status_answer, stub_api
from worker_agent.local.jobs import RemoteJobKey, RemoteJobs

pytestmark = pytest.mark.anyio


class Cluster:
    """A worker that takes one job, and may lose it without an event."""

    def __init__(self) -> None:
        self.lost = False
        self.away = False
        self.clock = ManualClock()
        self.changed: list[str] = []
        self.gone: list[RemoteJobKey] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if self.away:
            return status_answer(403, "Forbidden")
        if request.method == "GET" and request.path.endswith("/jobs"):
            return listing(version="1000")
        if request.method == "POST":
            return json_answer(job("7"), 201)
        return status_answer(404, "NotFound") if self.lost else json_answer(job("8"))

    @asynccontextmanager
    async def created(self) -> AsyncIterator[RemoteJobs]:
        """The jobs, of which one was just created, and is in no list."""
        async with stub_api(self) as api, api.client() as client:
            made = remote_jobs(client, self.clock, changed=self.changed.append, gone=self.gone.append)
            await made.informer.relist()
            await made.create(job("7"))
            assert made.get(KEY)
            yield made


_Ask = Callable[[RemoteJobs], Awaitable[object]]


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda jobs: jobs.suspend(KEY, "u"), id="suspended"),
        pytest.param(lambda jobs: jobs.change(KEY, "u", {"spec": {"parallelism": 2}}), id="changed"),
        pytest.param(lambda jobs: jobs.delete(KEY, "u", ended=False), id="deleted"),
        pytest.param(lambda jobs: jobs.adopt(KEY, "u", job("9")), id="adopted"),
    ],
)
async def test_a_job_that_no_list_has_is_gone_when_the_server_does_not_find_it(ask: _Ask) -> None:
    cluster = Cluster()
    async with cluster.created() as jobs:
        cluster.lost = True
        await ask(jobs)
        assert jobs.get(KEY) is None
        assert not jobs.of_assignment(ASSIGNMENT)
        assert cluster.changed == [ASSIGNMENT]
        assert cluster.gone == [jobs.named(KEY)]


async def test_a_job_that_is_not_written_again_is_looked_for_after_half_a_minute() -> None:
    cluster = Cluster()
    async with cluster.created() as jobs:
        cluster.lost = True
        await jobs.verify_writes()
        assert jobs.get(KEY), "a watch may show it yet"
        cluster.clock.advance(OVERDUE)
        await jobs.verify_writes()
        assert jobs.get(KEY) is None
        assert cluster.changed == [ASSIGNMENT]


async def test_a_job_is_not_gone_because_its_cluster_does_not_answer() -> None:
    cluster = Cluster()
    async with cluster.created() as jobs:
        cluster.away = True
        cluster.clock.advance(600.0)
        with pytest.raises(KubeError):
            await jobs.verify_writes()
        assert jobs.get(KEY)
        cluster.away = False
        await jobs.verify_writes()
        assert jobs.get(KEY)
        assert not cluster.changed


async def test_a_job_outside_the_queues_of_its_cluster_stays_there_when_its_marks_are_restored() -> None:
    patches: list[dict[str, Any]] = []

    async def server(request: web.Request) -> web.StreamResponse:
        patches.append(orjson.loads(await request.read()))
        return json_answer(job("9"))

    found = job("8")
    found["metadata"] |= {"labels": {}, "annotations": {WORKLOAD_NAME_ANNOTATION: "w"}}
    async with stub_api(server) as api, api.client() as client:
        jobs = remote_jobs(client, ManualClock(), changed=lambda name: None, gone=lambda key: None)
        await jobs.adopt(KEY, "u", job("8"), found=found)
        await jobs.adopt(KEY, "u", job("8"))
    outside, inside = (patch["metadata"] for patch in patches)
    assert outside["labels"] == inside["labels"] == {ORIGIN_LABEL: "multikueue"}
    assert WORKLOAD_NAME_ANNOTATION in outside["annotations"]
    assert PREBUILT_WORKLOAD_ANNOTATION not in outside["annotations"], "the engine of the cluster would manage it"
    assert PREBUILT_WORKLOAD_ANNOTATION in inside["annotations"]
