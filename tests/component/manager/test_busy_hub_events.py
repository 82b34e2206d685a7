# SPDX-License-Identifier: Apache-2.0
"""On a busy hub, events that conditions show too leave the budget to the others."""

from __future__ import annotations

import orjson
import pytest

from multikueue.api.reasons import ORDINARY_STEPS
from multikueue.api.resource import EVENTS, JOBS, WORKLOADS
from multikueue.kube.rest.client import KubeClient
from tests.support.hubs import running_hub
from tests.support.managers import (
    eventually,
    job_manifest,
    make_namespace,
    make_queue,
    running_manager,
    wait_condition,
)

pytestmark = pytest.mark.anyio

TEAM = "team"
JOBS_SUBMITTED = 6
AT_ONCE = 8


async def reasons(client: KubeClient) -> list[str]:
    """Of all events in the namespace."""
    found = (await client.list_all(EVENTS, namespace=TEAM)).items
    return [orjson.loads(each)["reason"] for each in found]


async def test_steps_of_many_jobs_leave_the_other_half_of_the_budget_to_an_eviction() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_namespace(client, TEAM)
        await make_queue(client, TEAM, namespace=TEAM, cpu="64")
        # No event comes to the budget while the test runs.
        async with running_manager(hub.as_cluster, webhooks=False, event_qps=0.001, event_burst=AT_ONCE):
            for number in range(JOBS_SUBMITTED):
                job = job_manifest(f"j{number}", namespace=TEAM, queue=TEAM, suspend=True)
                await client.create(JOBS, job, namespace=TEAM)
                workload = await wait_condition(client, f"j{number}", "Admitted", namespace=TEAM)
            await client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, namespace=TEAM)
            found = await eventually(
                lambda: reasons(client),
                what="the eviction has its event",
                until=lambda seen: "EvictedDueToDeactivated" in seen,
            )
            assert len([each for each in found if each in ORDINARY_STEPS]) == AT_ONCE // 2
