# SPDX-License-Identifier: Apache-2.0
"""Following the jobs of one kind; against an API server whose answers the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from aiohttp import web

from multikueue.core.clock import ManualClock
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from tests.support.remote_jobs import KEY, OVERDUE, job, remote_jobs
from tests.support.stub_api import json_answer, listing, status_answer, stream, stub_api
from worker_agent.local.jobs import RemoteJobKey, RemoteJobs
from worker_agent.local.rights import Rights
from worker_agent.local.served_kinds import KindFollower

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

SECONDS = 0.01


async def no_event() -> None:
    await asyncio.Event().wait()


class Cluster:
    """A worker whose list and watch show no job, although it takes one."""

    def __init__(self) -> None:
        self.answer = 200
        self.asked = 0
        self.clock = ManualClock()
        self.gone = asyncio.Queue[RemoteJobKey]()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            answer: web.StreamResponse = await stream(request, then=no_event)
            return answer
        if request.path.endswith("/jobs"):
            return json_answer(job("1007"), 201) if request.method == "POST" else listing(version="1000")
        self.asked += 1
        return json_answer(job("1007")) if self.answer == 200 else status_answer(self.answer, "Answer")

    async def is_asked(self) -> None:
        """Wait until it is asked about the job once more."""
        before = self.asked
        while self.asked == before:
            await asyncio.sleep(SECONDS)

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[RemoteJobs]:
        """Its jobs, while they are followed; one was just created."""
        async with stub_api(self) as api, api.client() as client:
            jobs = remote_jobs(client, self.clock, changed=lambda _: None, gone=self.gone.put_nowait)
            rights = Rights(
                client, [BATCH_JOB.resource], seconds=60.0, clock=self.clock, random=Random(2), on_change=lambda: None
            )
            follower = KindFollower(client, jobs, rights, changed=lambda: None, seconds=SECONDS)
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(follower.run())
                await follower.decided.wait()
                assert follower.is_served
                await jobs.create(job("1007"))
                yield jobs
                task.cancel()


async def test_a_job_that_was_deleted_without_an_event_is_noticed_while_its_kind_is_followed() -> None:
    cluster = Cluster()
    async with cluster.followed() as jobs:
        cluster.answer = 404
        cluster.clock.advance(OVERDUE)
        assert await cluster.gone.get() == jobs.named(KEY)
        assert jobs.get(KEY) is None


@pytest.mark.parametrize("answer", [409, 429, 500])
async def test_a_request_that_fails_is_repeated_and_the_job_is_kept_meanwhile(answer: int) -> None:
    cluster = Cluster()
    async with cluster.followed() as jobs:
        cluster.answer = answer
        cluster.clock.advance(OVERDUE)
        await cluster.is_asked()
        await cluster.is_asked()
        assert jobs.get(KEY)
        assert cluster.gone.empty()
        cluster.answer = 404
        assert await cluster.gone.get() == jobs.named(KEY)


async def test_a_job_that_is_still_there_is_not_asked_about_again() -> None:
    cluster = Cluster()
    async with cluster.followed() as jobs:
        cluster.clock.advance(OVERDUE)
        await cluster.is_asked()
        await asyncio.sleep(20 * SECONDS)
        assert cluster.asked == 1
        assert jobs.get(KEY)
