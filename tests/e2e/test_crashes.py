# SPDX-License-Identifier: Apache-2.0
"""Acceptance 4 of the first issue: whatever is killed in mid-flight, every Job finishes exactly once."""

from __future__ import annotations

import anyio
import pytest

from devcluster import manifests
from devcluster.federation.federation import Federation
from devcluster.federation.spec import FederationSpec
from multikueue.api.resource import JOBS
from multikueue.testing.plugin import MakeFederation
from tests.support.federations import (
    apply_two_teams,
    finished,
    job,
    left_over,
    ran_once,
    wait_until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.attacks, pytest.mark.binaries, pytest.mark.timeout(420)]

JOB_COUNT = 50
API_SERVER_DOWN_SECONDS = 20
RUN_FOR = ("2s", "4s", "6s")


async def test_every_job_finishes_exactly_once_whatever_is_killed(make_federation: MakeFederation) -> None:
    federation = await make_federation(FederationSpec(name="crashes"))
    await apply_two_teams(federation)
    jobs = [
        job(f"job-{number:02}", namespace=f"team-{'ab'[number % 2]}", run_for=RUN_FOR[number % 3], pods=1 + number % 2)
        for number in range(JOB_COUNT)
    ]
    async with federation.hub.client() as hub:

        async def wait_for_finished(count: int) -> None:
            async def enough() -> bool:
                return len(await finished(hub)) >= count

            await wait_until(enough, within=180, what=f"{count} of {JOB_COUNT} Jobs finished")

        await manifests.create_all(hub, jobs)

        # 1. The manager, while Jobs are queued, dispatched and running.
        await wait_for_finished(5)
        await federation.manager.kill()
        await anyio.sleep(2)
        await federation.manager.start()

        # 2. Each agent.
        for number, agent in enumerate(federation.agents.values(), start=1):
            await wait_for_finished(10 * number)
            await agent.kill()
            await anyio.sleep(2)
            await agent.start()

        # 3. The API server of a worker, under the agent, the nodes and the controllers that use it.
        await wait_for_finished(28)
        worker = federation.workers["worker-1"]
        await worker.kill("apiserver")
        await anyio.sleep(API_SERVER_DOWN_SECONDS)
        await worker.start("apiserver")

        await wait_for_finished(JOB_COUNT)
        assert ran_once(federation, jobs) == []
        assert {entry.cluster for entry in federation.journal()} == {"worker-1", "worker-2"}
        for each in jobs:
            await hub.delete(
                JOBS, each["metadata"]["name"], namespace=each["metadata"]["namespace"], propagation="Background"
            )
    await _wait_until_empty(federation)


async def _wait_until_empty(federation: Federation) -> None:
    left: list[str] = []
    with anyio.move_on_after(60):
        while left := await left_over(federation):
            await anyio.sleep(0.5)
    assert left == []
