# SPDX-License-Identifier: Apache-2.0
"""What is nobody's is removed, and what is somebody else's is never touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import orjson
import pytest

from manager.dispatch.controller import DispatchController
from multikueue.api.constants import MANAGER_UID_ANNOTATION, ORIGIN_LABEL
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import JOBS, NAMESPACES, NODES, REMOTE_ASSIGNMENTS
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import MANAGER_UID, Mailbox, assignment_manifest, make_mailbox
from tests.support.hubs import Hub, agent_of, running_hub, worker_of
from tests.support.managers import Object, eventually, get, running_manager
from tests.support.pull_workers import PullWorker
from tests.support.workers import SCALED_DOWN, FakeWorker, make_check

pytestmark = pytest.mark.anyio

NAME = "w"
TEAM = "team"


def copy(name: str, *, cluster: str = NAME, manager_uid: str = MANAGER_UID) -> Object:
    """A Job as the agent of a cluster makes it for a manager."""
    body = assignment_manifest(name, cluster=cluster, namespace=TEAM, manager_uid=manager_uid)
    manifest: Object = body["spec"]["job"]["manifest"]
    return manifest


@asynccontextmanager
async def worker_at(*hubs: Hub) -> AsyncIterator[PullWorker]:
    """One worker with an agent for each of the hubs, all of one name and one origin."""
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(worker_of(hubs[0], NAME, namespace=TEAM))
        await worker.client.patch(NODES, f"{NAME}-node", {"metadata": {"labels": {"for": NAME}}})
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(agent_of(worker).run)
        for hub in hubs[1:]:
            to_hub = await stack.enter_async_context(hub.client())
            second = PullWorker(NAME, TEAM, worker.client, to_hub, worker.to_worker, worker.listener)
            tasks.start_soon(agent_of(second).run)
        yield worker
        tasks.cancel_scope.cancel()


async def names(client: KubeClient) -> set[str]:
    """The Jobs that are there, and are not about to go."""
    page = await client.list_all(JOBS, namespace=TEAM)
    jobs = [orjson.loads(raw) for raw in page.items]
    return {job["metadata"]["name"] for job in jobs if "deletionTimestamp" not in job["metadata"]}


async def left(client: KubeClient, *wanted: str) -> None:
    """Wait until those are there, and no others."""
    await eventually(lambda: names(client), what=f"{wanted} are left", until=lambda seen: seen == set(wanted))


async def test_an_orphan_goes_and_whatever_is_not_ours_stays() -> None:
    async with running_hub() as hub, hub.client() as client, worker_at(hub) as worker:
        await make_mailbox(client, NAME)
        await Mailbox(client, NAME, TEAM).assign("wanted", intent="Run")
        await left(worker.client, "wanted")
        without_origin = copy("without-origin")
        del without_origin["metadata"]["labels"][ORIGIN_LABEL]
        other_origin = copy("other-origin")
        other_origin["metadata"]["labels"][ORIGIN_LABEL] = "somebody"
        unmarked = copy("unmarked")
        unmarked["metadata"]["annotations"] = {}
        strangers = (
            without_origin,
            other_origin,
            unmarked,
            copy("of-another-agent", cluster="v"),
            copy("of-another-manager", manager_uid="another"),
        )
        for job in (*strangers, copy("orphan")):
            await worker.client.create(JOBS, job, namespace=TEAM)
        kept = ("wanted", *(job["metadata"]["name"] for job in strangers))
        await left(worker.client, *kept)
        # A second orphan goes as well: by then the agent has looked at all the others at least once more.
        await worker.client.create(JOBS, copy("orphan-again"), namespace=TEAM)
        await left(worker.client, *kept)


async def test_an_orphan_that_could_not_be_removed_is_removed_later(caplog: pytest.LogCaptureFixture) -> None:
    async def spared() -> bool:
        return "the mailbox belongs to another manager" in caplog.text

    async with running_hub() as hub, hub.client() as client, worker_at(hub) as worker:
        await make_mailbox(client, NAME)
        await Mailbox(client, NAME, TEAM).assign("wanted", intent="Run")
        await left(worker.client, "wanted")
        # Nobody knows whose mailbox it is for a while.
        where = mailbox_namespace(NAME)
        await client.patch(NAMESPACES, where, {"metadata": {"annotations": {MANAGER_UID_ANNOTATION: None}}})
        hub.api.compact()
        await Mailbox(client, NAME, TEAM).assign("heard", intent="Run")
        await left(worker.client, "wanted", "heard")
        await worker.client.create(JOBS, copy("orphan"), namespace=TEAM)
        await eventually(spared, what="the agent has looked at the orphan and left it")
        await client.patch(NAMESPACES, where, {"metadata": {"annotations": {MANAGER_UID_ANNOTATION: MANAGER_UID}}})
        hub.api.compact()
        await left(worker.client, "wanted", "heard")


async def test_two_managers_with_one_origin_remove_only_their_own() -> None:
    async with AsyncExitStack() as stack:
        hubs = [await stack.enter_async_context(running_hub()) for _ in range(2)]
        clients = [await stack.enter_async_context(hub.client()) for hub in hubs]
        worker = await stack.enter_async_context(worker_at(*hubs))
        mailboxes = []
        for client, uid in zip(clients, ("one", "two"), strict=True):
            await make_mailbox(client, NAME, manager_uid=uid)
            mailbox = Mailbox(client, NAME, TEAM)
            await mailbox.assign(f"of-{uid}", intent="Run", manager_uid=uid)
            await mailbox.assign(f"also-of-{uid}", intent="Run", manager_uid=uid)
            mailboxes.append(mailbox)
        await left(worker.client, "of-one", "of-two", "also-of-one", "also-of-two")
        await mailboxes[0].remove("of-one")
        await left(worker.client, "of-two", "also-of-one", "also-of-two")
        await mailboxes[1].remove("also-of-two")
        await left(worker.client, "of-two", "also-of-one")
        # Nor does either take the other's name for its own work.
        await mailboxes[1].assign("also-of-one", intent="Run", manager_uid="two")
        await mailboxes[1].says("also-of-one", "Refused", reason="NameConflict")
        await left(worker.client, "of-two", "also-of-one")


async def test_an_assignment_without_a_workload_is_taken_back() -> None:
    async with running_hub() as hub, hub.client() as client:
        await make_check(client, TEAM, (NAME,))
        await FakeWorker(client, NAME).enrol()
        async with running_manager(hub.as_cluster, settings=SCALED_DOWN, webhooks=False, dispatch=DispatchController):
            where = mailbox_namespace(NAME)
            await eventually(lambda: get(client, NAMESPACES, where), what="the mailbox is made")
            body = assignment_manifest("nobodys", cluster=NAME, namespace=TEAM)
            await client.create(REMOTE_ASSIGNMENTS, body, namespace=where)
            await eventually(
                lambda: get(client, REMOTE_ASSIGNMENTS, body["metadata"]["name"], namespace=where),
                what="it is gone",
                until=lambda seen: seen is None,
            )
