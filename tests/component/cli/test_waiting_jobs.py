# SPDX-License-Identifier: Apache-2.0
"""What a user sees of a Job that waits: it is Suspended until it runs, and events say why. Embedded and real."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, EVENTS, JOBS
from multikueue.cli.cluster.lifecycle import set_availability
from multikueue.core.keys import Key
from multikueue.kube.rest.client import KubeClient
from tests.support.jobs import running_status
from tests.support.managers import (
    Object,
    condition,
    connections_closed,
    eventually,
    get,
    make_job,
    make_queue,
    running_manager,
    wait_condition,
)
from tests.support.tenant_hubs import hub
from tests.support.workers import SCALED_DOWN, FakeWorker, make_check

__all__ = ["hub"]

pytestmark = pytest.mark.anyio

TEAM = "team-waits"


@pytest.fixture
async def client(hub: Cluster) -> AsyncIterator[KubeClient]:
    """The administrator of a hub with a manager, the worker `one`, and a queue of 4 cpu that it serves."""
    async with connections_closed(), hub.client() as client:
        await make_check(client, "workers", ("one",))
        async with running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController):
            worker = FakeWorker(client, "one")
            await worker.enrol()
            await worker.connect()
            if await get(client, CLUSTER_QUEUES, TEAM) is None:
                await make_queue(client, TEAM, namespace=TEAM, cpu="4", checks=("workers",))
            await eventually(
                lambda: get(client, CLUSTER_QUEUES, TEAM),
                what="the queue is active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
            yield client


async def job_with(client: KubeClient, name: str, *, suspended: str, reason: str) -> Object:
    """The Job, once its condition Suspended stands so."""
    found = await eventually(
        lambda: get(client, JOBS, name, namespace=TEAM),
        what=f"the Job {name} has Suspended={suspended}",
        until=lambda seen: condition(seen, "Suspended").get("status") == suspended,
    )
    assert found is not None
    assert condition(found, "Suspended")["reason"] == reason
    return found


async def told(client: KubeClient, job: str, reason: str) -> str:
    """The one event of that reason about the Job, which was recorded once."""

    async def events() -> list[JsonObject]:
        page = await client.list_all(EVENTS, namespace=TEAM)
        about = [orjson.loads(raw) for raw in page.items]
        return [
            event
            for event in about
            if event["reason"] == reason and (event["regarding"]["kind"], event["regarding"]["name"]) == ("Job", job)
        ]

    (found,) = await eventually(events, what=f"an event {reason} about {job}")
    assert not found.get("series"), "it was recorded again"
    return str(found["note"])


async def test_a_job_that_can_never_fit_is_shown_as_suspended(client: KubeClient) -> None:
    await make_job(client, "much", namespace=TEAM, queue=TEAM, cpu="50")
    found = await job_with(client, "much", suspended="True", reason="JobSuspended")
    assert condition(found, "Suspended")["message"] == "Job suspended"
    assert await told(client, "much", "Suspended") == "Job suspended"
    await client.delete(JOBS, "much", namespace=TEAM, propagation="Background")


async def test_a_job_of_a_held_queue_is_suspended_and_an_event_names_the_queue(client: KubeClient) -> None:
    await client.patch(CLUSTER_QUEUES, TEAM, {"spec": {"stopPolicy": "Hold"}})
    try:
        await make_job(client, "held", namespace=TEAM, queue=TEAM)
        await job_with(client, "held", suspended="True", reason="JobSuspended")
        assert await told(client, "held", "QueueHeld") == (
            f"ClusterQueue {TEAM} is held: its stopPolicy is Hold; it admits no workload until an administrator"
            " sets it to None"
        )
    finally:
        await client.patch(CLUSTER_QUEUES, TEAM, {"spec": {"stopPolicy": "None"}})
        await client.delete(JOBS, "held", namespace=TEAM, propagation="Background")


async def test_a_job_that_waits_for_a_cluster_is_suspended_until_it_runs_there(client: KubeClient) -> None:
    worker = FakeWorker(client, "one")
    await set_availability(client, "one", {"cordoned": True})
    await make_job(client, "waits", namespace=TEAM, queue=TEAM)
    await job_with(client, "waits", suspended="True", reason="JobSuspended")
    assert await told(client, "waits", "WaitingForCluster") == (
        "Waiting for a worker cluster: one: is cordoned and takes no new work"
    )
    await set_availability(client, "one", {"cordoned": False})
    workload = await wait_condition(client, "waits", "QuotaReserved", namespace=TEAM)
    key = Key(TEAM, workload["metadata"]["name"])
    await worker.assigned(key)
    await worker.say(key, "Reserved")
    await worker.assigned(key, intent="Run")
    # Granted, and not running yet: nothing else would be true.
    assert condition(await get(client, JOBS, "waits", namespace=TEAM), "Suspended")["status"] == "True"
    await worker.say(key, "Running", jobStatus=running_status(), jobUID="u")
    found = await job_with(client, "waits", suspended="False", reason="JobResumed")
    assert found["status"]["active"] == 1
    await worker.say_finished(key)
    ended = await eventually(
        lambda: get(client, JOBS, "waits", namespace=TEAM),
        what="the Job is complete",
        until=lambda seen: condition(seen, "Complete").get("status") == "True",
    )
    assert condition(ended, "Suspended")["status"] == "False"
