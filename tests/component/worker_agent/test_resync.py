# SPDX-License-Identifier: Apache-2.0
"""After a reconnect only differences travel: requests are counted on the agent's way to its hub."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import orjson
import pytest

from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import NODES, REMOTE_ASSIGNMENTS
from multikueue.kube.rest.client import KubeClient
from tests.support.agents import Mailbox, make_mailbox
from tests.support.hubs import Hub, agent_of, running_hub, worker_of
from tests.support.jobs import finish_job
from tests.support.managers import eventually
from tests.support.pull_workers import PullWorker

pytestmark = pytest.mark.anyio

NAME = "w"
TEAM = "team"
COUNT = 30
JOBS = [f"j{number}" for number in range(COUNT)]
REGULAR = frozenset({"leases", "clusterreports/status"})


class Scene:
    """A mailbox whose assignments all run, and what its agent has asked of the hub since."""

    def __init__(self, hub: Hub, client: KubeClient, worker: PullWorker) -> None:
        self.hub = hub
        self.client = client
        self.worker = worker
        self.mailbox = Mailbox(client, NAME, TEAM)
        self._sent = worker.to_hub.requests_sent
        self._before: Counter[tuple[str, str]] = Counter()
        self._agent = anyio.CancelScope()

    async def run_agents(self) -> None:
        """Run an agent, and another one when it has crashed."""
        while True:
            with anyio.CancelScope() as self._agent:
                await agent_of(self.worker).run()

    async def crash_agent(self) -> None:
        """Wait for the next one to have the newest of what the hub has."""
        self._agent.cancel()
        await self.heard()

    def begin(self) -> None:
        """Count from now on."""
        self._before = self._sent.copy()

    @property
    def asked(self) -> dict[str, int]:
        """What was asked, but for heartbeats and reports."""
        found = self._sent - self._before
        return {f"{verb} {what}": count for (verb, what), count in found.items() if what not in REGULAR}

    async def phases(self) -> Counter[str]:
        """How many assignments say what."""
        page = await self.client.list_all(REMOTE_ASSIGNMENTS, namespace=mailbox_namespace(NAME))
        return Counter((orjson.loads(raw).get("status") or {}).get("phase", "") for raw in page.items)

    async def say(self, **phases: int) -> None:
        """Wait until so many say that."""
        await eventually(self.phases, what=f"the assignments say {phases}", until=lambda seen: seen == phases)

    async def heard(self) -> None:
        """Wait until the agent has the newest of what the hub has."""
        await self.mailbox.assign("last", intent="Run")
        await self.mailbox.says("last", "Running")


@asynccontextmanager
async def scene(*, database: Path | None = None) -> AsyncIterator[Scene]:
    async with running_hub(database=database) as hub, worker_of(hub, NAME, namespace=TEAM) as worker:
        async with hub.client() as client, anyio.create_task_group() as tasks:
            await make_mailbox(client, NAME)
            # What hand-written assignments select.
            await worker.client.patch(NODES, f"{NAME}-node", {"metadata": {"labels": {"for": NAME}}})
            made = Scene(hub, client, worker)
            tasks.start_soon(made.run_agents)
            for name in JOBS:
                await made.mailbox.assign(name, intent="Run")
            await made.say(Running=COUNT)
            yield made
            tasks.cancel_scope.cancel()


async def test_an_interrupted_watch_continues_where_it_was() -> None:
    async with scene() as made:
        made.begin()
        made.hub.api.cut_watches()
        await made.heard()
        assert made.asked.pop("WATCH remoteassignments") >= 1
        assert set(made.asked) <= {"WATCH remoteassignments", "PATCH remoteassignments/status"}
        assert made.asked["PATCH remoteassignments/status"] == 1, "only the new one is told of"


async def test_a_compacted_history_costs_one_list() -> None:
    async with scene() as made:
        made.begin()
        made.hub.api.compact()
        await made.heard()
        asked = made.asked
        assert asked["LIST remoteassignments"] == 1
        assert asked["PATCH remoteassignments/status"] == 1, "only the new one is told of"
        assert not any(request.startswith("GET remoteassignments") for request in asked)


async def test_statuses_that_a_restored_hub_lost_are_written_again_and_nothing_else(tmp_path: Path) -> None:
    database, backup = tmp_path / "hub", tmp_path / "backup"
    async with scene(database=database) as made:
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        for name in JOBS[:5]:
            await finish_job(made.worker.client, name, namespace=TEAM)
        await made.say(Running=COUNT - 5, Finished=5)
        await made.hub.stop()
        made.begin()
        await made.hub.start(database=backup, restored=True)
        await made.say(Running=COUNT - 5, Finished=5)
        asked = made.asked
        assert asked["PATCH remoteassignments/status"] == 5, "the words that the backup does not have"
        assert asked["LIST remoteassignments"] == 1
        assert not any(request.startswith("GET remoteassignments") for request in asked)


async def test_statuses_that_an_agent_wrote_before_it_crashed_are_written_again_by_the_next_one(tmp_path: Path) -> None:
    """The next one has only read them, and would say nothing more of Jobs that have ended: seed 50016."""
    database, backup = tmp_path / "hub", tmp_path / "backup"
    async with scene(database=database) as made:
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        for name in JOBS[:5]:
            await finish_job(made.worker.client, name, namespace=TEAM)
        await made.say(Running=COUNT - 5, Finished=5)
        await made.crash_agent()
        await made.hub.stop()
        await made.hub.start(database=backup, restored=True)
        await made.say(Running=COUNT - 5, Finished=5)
