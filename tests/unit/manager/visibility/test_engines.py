# SPDX-License-Identifier: Apache-2.0
"""Which engine a replica answers from, before it leads, while it leads, and afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from manager.context import ManagerContext
from manager.visibility.engines import QueueEngines
from multikueue.engine.settings import Settings
from tests.unit.manager.visibility.builders import Hub

pytestmark = pytest.mark.anyio


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()

    async def synced() -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(made.caches, "synced", synced)
    made.queue("cq", "a")
    for number in range(200):
        made.workload(f"w{number:03}", "a")
    return made


def engines(hub: Hub) -> QueueEngines:
    context = SimpleNamespace(caches=hub.caches, clock=hub.clock)
    return QueueEngines(cast(ManagerContext, context), settings=Settings())


async def test_a_replica_that_does_not_lead_follows_the_caches(hub: Hub) -> None:
    found = engines(hub)
    engine = await found.current()
    assert len(engine.pending("cq")) == 200
    hub.workload("later", "a")
    assert await found.current() is engine
    assert len(engine.pending("cq")) == 201


async def test_requests_at_once_fill_one_engine(hub: Hub) -> None:
    found = engines(hub)
    seen: set[int] = set()

    async def ask() -> None:
        engine = await found.current()
        assert len(engine.pending("cq")) == 200
        seen.add(id(engine))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert len(seen) == 1


async def test_clients_that_disconnect_leave_no_second_subscription(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    found = engines(hub)
    for _ in range(3):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await found.current()
    engine = await found.current()
    calls = 0
    upsert = engine.upsert_workload

    def counted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        upsert(*arguments)

    monkeypatch.setattr(engine, "upsert_workload", counted)
    hub.workload("later", "a")
    assert calls == 1


async def test_a_replica_that_leads_answers_from_its_scheduler_once_that_is_filled(hub: Hub) -> None:
    found = engines(hub)
    following = await found.current()
    found.begin_leading()
    hub.caches.unsubscribe_all()
    answered: list[object] = []

    async def ask() -> None:
        answered.append(await found.current())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert answered == []
        found.lead(lambda: hub.engine)
    assert answered == [hub.engine]
    hub.workload("later", "a")
    assert len(following.pending("cq")) == 200, "it is fed no more"


async def test_a_replica_that_begins_to_lead_while_it_is_filled_answers_from_its_scheduler(hub: Hub) -> None:
    found = engines(hub)
    answered: list[object] = []

    async def ask() -> None:
        answered.append(await found.current())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        found.begin_leading()
        hub.caches.unsubscribe_all()
        await anyio.wait_all_tasks_blocked()
        found.lead(lambda: hub.engine)
    assert answered == [hub.engine]


async def test_a_replica_that_leads_no_more_follows_again(hub: Hub) -> None:
    found = engines(hub)
    found.lead(lambda: hub.engine)
    found.follow()
    hub.caches.unsubscribe_all()
    engine = await found.current()
    assert engine is not hub.engine
    assert len(engine.pending("cq")) == 200
