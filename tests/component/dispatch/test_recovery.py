# SPDX-License-Identifier: Apache-2.0
"""A management cluster that was lost is filled again from what its workers run (ADR 0010)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import pytest

from devcluster.apiserver.http.faults import Fault
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import MANAGER_UID_ANNOTATION, MULTIKUEUE_MANAGED_BY
from multikueue.api.resource import CLUSTER_QUEUES, JOBS
from multikueue.cli.cluster.recovering import RecoveryAction, recover
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.watch import WatchEvent
from tests.support.hubs import Hub, agent_of, running_hub, worker_of
from tests.support.jobs import finish_job, run_job
from tests.support.managers import (
    Object,
    condition,
    eventually,
    get,
    job_manifest,
    make_queue,
    running_manager,
    wait_condition,
    workload_of,
)
from tests.support.pull_workers import PullWorker
from tests.support.workers import SCALED_DOWN, FakeWorker, make_check
from worker_agent.hub.mailbox import Mailbox

pytestmark = pytest.mark.anyio

TEAM = "team"
CLUSTERS = ("one", "two")


@asynccontextmanager
async def federated(hub: Hub) -> AsyncIterator[KubeClient]:
    """The hub as GitOps would set it up, and its manager."""
    async with hub.client() as client:
        await make_check(client, TEAM, CLUSTERS)
        await make_queue(client, TEAM, namespace=TEAM, cpu="64", checks=(TEAM,))
        for name in CLUSTERS:
            await FakeWorker(client, name).enrol()
        async with running_manager(hub.as_cluster, settings=SCALED_DOWN, webhooks=False, dispatch=DispatchController):
            await eventually(
                lambda: get(client, CLUSTER_QUEUES, TEAM),
                what="the queue is active",
                until=lambda seen: condition(seen, "Active").get("status") == "True",
            )
            yield client


async def submit(client: KubeClient, name: str, *, cpu: str = "1") -> None:
    manifest = job_manifest(name, namespace=TEAM, queue=TEAM, cpu=cpu, suspend=True)
    manifest["spec"]["managedBy"] = MULTIKUEUE_MANAGED_BY
    await client.create(JOBS, manifest, namespace=TEAM)


async def copies(workers: list[PullWorker], name: str) -> list[Object]:
    """Those of that name, wherever they are."""
    found = [await get(worker.client, JOBS, name, namespace=TEAM) for worker in workers]
    return [job for job in found if job is not None]


async def runs(workers: list[PullWorker], name: str) -> Object:
    """Wait for the one copy, and let it have a pod."""
    (job,) = await eventually(lambda: copies(workers, name), what=f"{name} is made")
    await run_job(home_of(workers, job).client, name, namespace=TEAM)
    return job


def home_of(workers: list[PullWorker], job: Object) -> PullWorker:
    return next(w for w in workers if w.name == job["metadata"]["annotations"]["multikueue.io/cluster"])


def marks(job: Object | None) -> str:
    return str((job or {}).get("metadata", {}).get("annotations", {}).get(MANAGER_UID_ANNOTATION, ""))


def _is_taken_over(before: Object, seen: Object | None) -> bool:
    return marks(seen) not in ("", marks(before))


async def told(client: KubeClient, *, total: int) -> dict[str, str]:
    """What would be done about each copy, once the agents tell of as many."""

    async def ask() -> dict[str, str]:
        found: dict[str, str] = {}
        for cluster in CLUSTERS:
            done = await recover(client, cluster, action=RecoveryAction.ADOPT, dry_run=True)
            found |= {entry["name"]: entry["action"] for entry in done.entries}
        return found

    return await eventually(ask, what=f"{total} copies are told of", until=lambda seen: len(seen) == total)


@asynccontextmanager
async def deployed() -> AsyncIterator[tuple[Hub, list[PullWorker]]]:
    """A hub and two workers with their agents."""
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running_hub())
        made = [await stack.enter_async_context(worker_of(hub, name, namespace=TEAM)) for name in CLUSTERS]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for worker in made:
            tasks.start_soon(agent_of(worker).run)
        yield hub, made
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def rebuilt_after(
    hub: Hub, workers: list[PullWorker], *names: str
) -> AsyncIterator[tuple[dict[str, Object], KubeClient]]:
    """Jobs run when the hub is lost; gives their copies, and an empty hub with a manager."""
    async with federated(hub) as client:
        for name in names:
            await submit(client, name)
        made = {name: await runs(workers, name) for name in names}
        for name in names:
            await wait_condition(client, name, "Admitted", namespace=TEAM)
    await hub.stop()
    await hub.start()
    async with federated(hub) as client:
        yield made, client


async def test_a_lost_hub_is_filled_again_and_nothing_runs_twice() -> None:
    async with deployed() as (hub, workers), rebuilt_after(hub, workers, "lost", "again") as (before, client):
        # One was submitted again by its user, and waits.
        await client.patch(CLUSTER_QUEUES, TEAM, {"spec": {"stopPolicy": "Hold"}})
        await submit(client, "again")
        await eventually(lambda: workload_of(client, "again", namespace=TEAM), what="it has a Workload")
        assert await told(client, total=2) == {"lost": "create", "again": "bind"}
        assert await get(client, JOBS, "lost", namespace=TEAM) is None, "a dry run changes nothing"
        for cluster in CLUSTERS:
            await recover(client, cluster, action=RecoveryAction.ADOPT)
        assert await told(client, total=2) == {"lost": "wait", "again": "wait"}
        await client.patch(CLUSTER_QUEUES, TEAM, {"spec": {"stopPolicy": "None"}})

        for name, job in before.items():
            home = home_of(workers, job)
            await eventually(
                partial(get, home.client, JOBS, name, namespace=TEAM),
                what=f"{name} is taken over",
                until=partial(_is_taken_over, job),
            )
            (copy,) = await copies(workers, name)
            assert copy["metadata"]["uid"] == job["metadata"]["uid"], "the very copy goes on"
            await finish_job(home.client, name, namespace=TEAM)
            await wait_condition(client, name, "Finished", namespace=TEAM, reason="Succeeded")
            mirrored = await get(client, JOBS, name, namespace=TEAM)
            assert mirrored is not None
            assert mirrored["status"]["succeeded"] == 1
            assert await workload_of(client, name, namespace=TEAM)
        assert await told(client, total=0) == {}


@pytest.mark.conformance
async def test_what_is_discarded_is_removed_and_nothing_else() -> None:
    async with deployed() as (hub, workers), rebuilt_after(hub, workers, "lost") as (before, client):
        home = home_of(workers, before["lost"])
        foreign = job_manifest("foreign", namespace=TEAM, queue=None, suspend=True)
        await home.client.create(JOBS, foreign, namespace=TEAM)
        await told(client, total=1)
        found = await recover(client, home.name, action=RecoveryAction.DISCARD)
        assert [(entry["name"], entry["action"]) for entry in found.entries] == [("lost", "discard")]

        async def gone() -> bool:
            job = await get(home.client, JOBS, "lost", namespace=TEAM)
            return job is None or "deletionTimestamp" in job["metadata"]

        await eventually(gone, what="the agent removes it")
        assert await told(client, total=0) == {}
        assert await get(home.client, JOBS, "foreign", namespace=TEAM) is not None


@pytest.mark.conformance
async def test_a_removal_that_the_worker_refuses_is_reported_and_can_be_asked_for_again() -> None:
    async with deployed() as (hub, workers), rebuilt_after(hub, workers, "lost") as (before, client):
        home = home_of(workers, before["lost"])
        await told(client, total=1)
        path = f"/apis/batch/v1/namespaces/{TEAM}/jobs/lost"
        home.listener.api.faults.rules = [Fault(method="DELETE", path=path, code=403)]
        (entry,) = (await recover(client, home.name, action=RecoveryAction.DISCARD)).entries
        assert (entry["name"], entry["action"]) == ("lost", "refused")
        assert f"delete jobs.batch {TEAM}/lost" in entry["why"].lower()
        home.listener.api.faults.rules = []
        (entry,) = (await recover(client, home.name, action=RecoveryAction.DISCARD)).entries
        assert (entry["name"], entry["action"]) == ("lost", "discard")
        assert await told(client, total=0) == {}


@pytest.mark.conformance
async def test_a_job_that_runs_elsewhere_by_now_leaves_the_old_copy_alone() -> None:
    async with deployed() as (hub, workers), rebuilt_after(hub, workers, "lost") as (before, client):
        home = home_of(workers, before["lost"])
        await told(client, total=1)
        # Submitted again, and admitted before anybody thought of recovering.
        await submit(client, "lost")
        other = next(worker for worker in workers if worker is not home)
        await eventually(lambda: get(other.client, JOBS, "lost", namespace=TEAM), what="it runs on the other")
        (entry,) = (await recover(client, home.name, action=RecoveryAction.ADOPT)).entries
        assert (entry["action"], entry["why"]) == ("leave", f"the job of that name on the hub runs on {other.name}")


@pytest.mark.conformance
async def test_an_event_that_was_lost_is_found_by_comparing() -> None:
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(running_hub())
        worker = await stack.enter_async_context(worker_of(hub, "one", namespace=TEAM))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        agent = agent_of(worker)
        assert isinstance(agent.mailbox, Mailbox)
        lost: list[bytes] = []
        apply = agent.mailbox.informer._apply

        def lose_first(event: WatchEvent) -> None:
            if event.type == "ADDED" and not lost:
                lost.append(event.raw)
            else:
                apply(event)

        agent.mailbox.informer._apply = lose_first  # type: ignore[method-assign]
        tasks.start_soon(agent.run)
        async with federated(hub) as client:
            await submit(client, "unheard")
            await eventually(lambda: get(worker.client, JOBS, "unheard", namespace=TEAM), what="it is made after all")
        assert lost
        tasks.cancel_scope.cancel()
