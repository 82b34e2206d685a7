# SPDX-License-Identifier: Apache-2.0
"""A manager that has just started goes on with the elastic jobs that run on a cluster which it reaches itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import orjson
import pytest

from manager.dispatch.controller import DispatchController
from manager.dispatch.transport.push_hosts import PushSettings
from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.resource import JOBS, WORKLOADS
from multikueue.core.backoff import Backoff
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import QUICK
from tests.support.hubs import Hub, running_hub
from tests.support.jobs import finish_job, run_job
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    is_true,
    job_manifest,
    make_queue,
    running_manager,
)
from tests.support.push_workers import PushWorker, push_worker
from tests.support.workers import SCALED_DOWN, make_check

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]

TEAM = "team"
WORKER = "one"
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
SETTINGS = f"{SCALED_DOWN}\nfeatureGates: {{ElasticJobsViaWorkloadSlices: true}}\n"
PUSH = PushSettings(intervals=QUICK, backoff=Backoff(base=0.2, cap=1.0), first_read_seconds=10.0)


@asynccontextmanager
async def managed(hub: Hub) -> AsyncIterator[None]:
    dispatch = partial(DispatchController, push=PUSH)
    async with running_manager(hub.as_cluster, settings=SETTINGS, webhooks=False, dispatch=dispatch):
        yield


class Scene:
    """One elastic job, and what there is of it on both clusters."""

    def __init__(self, hub: KubeClient, worker: PushWorker) -> None:
        self.hub = hub
        self.worker = worker

    async def submit(self) -> None:
        manifest = job_manifest("e", namespace=TEAM, queue=TEAM, parallelism=1, annotations=ELASTIC, suspend=True)
        del manifest["spec"]["completions"]
        manifest["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
        await self.hub.create(JOBS, manifest, namespace=TEAM)
        await self.has_size(1)
        await run_job(self.worker.client, "e", namespace=TEAM)

    async def scale(self, size: int) -> None:
        await self.hub.patch(JOBS, "e", {"spec": {"parallelism": size}}, namespace=TEAM)

    async def has_size(self, size: int) -> str:
        """Once the remote job has that size and one slice is admitted: the uid of the remote job."""

        async def now() -> tuple[int, list[str]]:
            remote = await get(self.worker.client, JOBS, "e", namespace=TEAM)
            living = [each for each in await self.slices() if not is_true(each, "Finished")]
            states = ["admitted" if is_true(each, "Admitted") else "waits" for each in living]
            return (remote["spec"]["parallelism"] if remote else 0), states

        await eventually(now, what=f"it runs with {size} pods", until=lambda seen: seen == (size, ["admitted"]))
        remote = await get(self.worker.client, JOBS, "e", namespace=TEAM)
        assert remote is not None
        return str(remote["metadata"]["uid"])

    async def slices(self) -> list[Object]:
        return [orjson.loads(raw) for raw in (await self.hub.list_all(WORKLOADS, namespace=TEAM)).items]

    async def ends(self) -> None:
        await finish_job(self.worker.client, "e", namespace=TEAM)

        async def reasons() -> set[str]:
            return {str(condition(each, "Finished").get("reason")) for each in await self.slices()}

        await eventually(
            reasons, what="it has ended", until=lambda seen: seen == {"WorkloadSliceReplaced", "Succeeded"}
        )


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[Hub, Scene]]:
    async with running_hub() as hub, hub.client() as client, push_worker(client, WORKER, namespace=TEAM) as worker:
        await make_check(client, TEAM, (WORKER,))
        await make_queue(client, TEAM, namespace=TEAM, cpu="8", checks=(TEAM,))
        yield hub, Scene(client, worker)


async def test_a_job_that_was_scaled_meanwhile_gets_its_size_where_it_runs() -> None:
    async with scene() as (hub, job):
        async with managed(hub):
            await job.submit()
            remote = await job.has_size(1)
        await job.scale(3)
        async with managed(hub):
            assert await job.has_size(3) == remote
            await job.ends()


async def test_a_job_whose_first_slice_is_gone_is_the_same_job() -> None:
    async with scene() as (hub, job):
        async with managed(hub):
            await job.submit()
            remote = await job.has_size(1)
            for size in (2, 3):
                await job.scale(size)
                await job.has_size(size)
            await eventually(job.slices, what="the first slice is gone", until=lambda seen: len(seen) == 2)
        async with managed(hub):
            await job.scale(4)
            assert await job.has_size(4) == remote
            await job.scale(1)
            assert await job.has_size(1) == remote
            await job.ends()
