# SPDX-License-Identifier: Apache-2.0
"""The order of requests: users take turns, administrators get every second one, and many waiting requests of one user
delay only that user."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from devcluster.apiserver.http.fair_turns import FairTurns
from devcluster.apiserver.http.requests import MASTERS, Answer, Reply, User

pytestmark = pytest.mark.anyio

FLOOD, OTHER, THIRD = User("flood"), User("other"), User("third")
ADMIN = User("admin", (MASTERS,))


class Server:
    """Executes requests that end at once, or when their gate is opened, and records the order."""

    def __init__(self, *, seat_seconds: float = 3600.0) -> None:
        self.turns = FairTurns(seats=2, seat_seconds=seat_seconds)
        self.begun: list[str] = []
        self.gate = asyncio.Event()
        self.tasks: list[asyncio.Task[Reply | None]] = []

    def ask(self, user: User, name: str, *, waits: bool = False) -> None:
        """Send a request, as a connection does."""

        async def work() -> Reply:
            self.begun.append(name)
            await self.gate.wait()
            return Answer(200, name.encode())

        def start() -> Reply | Coroutine[Any, Any, Reply | None]:
            if waits:
                return work()
            self.begun.append(name)
            return Answer(200, name.encode())

        found = self.turns.take(user, start)
        if isinstance(found, Coroutine):
            self.tasks.append(asyncio.create_task(found))

    async def idle(self) -> None:
        """Run everything that is ready."""
        for _ in range(200):
            await asyncio.sleep(0)


@pytest.fixture
async def server() -> Server:
    return Server()


async def test_a_single_user_is_answered_at_once(server: Server) -> None:
    for number in range(20):
        server.ask(FLOOD, f"flood-{number}", waits=number % 2 == 0)
    assert server.begun == [f"flood-{number}" for number in range(20) if number % 2]
    await server.idle()
    assert len(server.begun) == 20
    server.gate.set()
    await asyncio.gather(*server.tasks)


async def test_the_request_of_another_user_waits_for_few_of_a_flood(server: Server) -> None:
    server.ask(OTHER, "first")
    for number in range(20):
        server.ask(FLOOD, f"flood-{number}")
    server.ask(OTHER, "other")
    server.ask(THIRD, "third")
    await server.idle()
    assert len(server.begun) == 23
    assert server.begun.index("other") <= 4
    assert server.begun.index("third") <= 5
    flood = [name for name in server.begun if name.startswith("flood")]
    assert flood == [f"flood-{number}" for number in range(20)]


async def test_administrators_have_every_second_turn_among_many_users(server: Server) -> None:
    server.ask(ADMIN, "first")
    for number in range(10):
        server.ask(User(f"user-{number}"), f"user-{number}")
    for number in range(5):
        server.ask(ADMIN, f"admin-{number}")
    await server.idle()
    places = [server.begun.index(f"admin-{number}") for number in range(5)]
    assert places == [3, 5, 7, 9, 11]
    assert len(server.begun) == 16


async def test_waiting_requests_of_one_user_delay_only_that_user(server: Server) -> None:
    server.ask(OTHER, "first")
    for number in range(6):
        server.ask(FLOOD, f"flood-{number}", waits=True)
    await server.idle()
    assert server.begun == ["first", "flood-0", "flood-1"]
    server.ask(OTHER, "other", waits=True)
    server.ask(ADMIN, "admin", waits=True)
    await server.idle()
    assert server.begun[3:] == ["other", "admin"]
    server.gate.set()
    await asyncio.gather(*server.tasks)
    assert len(server.begun) == 9


async def test_a_request_that_waits_for_long_lets_others_of_its_user_in_since_it_may_wait_for_them() -> None:
    server = Server(seat_seconds=0.2)
    server.ask(OTHER, "first")
    for number in range(5):
        server.ask(FLOOD, f"flood-{number}", waits=True)
    await server.idle()
    assert server.begun == ["first", "flood-0", "flood-1"]
    while len(server.begun) < 6:
        await asyncio.sleep(0.001)
    server.gate.set()
    await asyncio.gather(*server.tasks)
    # Nobody's seat is freed twice: two more wait, and a third queues.
    server.gate.clear()
    server.ask(OTHER, "second")
    for number in range(5, 8):
        server.ask(FLOOD, f"flood-{number}", waits=True)
    await server.idle()
    assert server.begun[6:] == ["second", "flood-5", "flood-6"]
    server.gate.set()
    await asyncio.gather(*server.tasks[-3:])


async def test_administrators_have_no_limit_of_waiting_requests(server: Server) -> None:
    server.ask(OTHER, "first")
    for number in range(6):
        server.ask(ADMIN, f"admin-{number}", waits=True)
    await server.idle()
    assert len(server.begun) == 7
    server.gate.set()
    await asyncio.gather(*server.tasks)


async def test_a_client_that_disconnects_frees_its_turn_and_its_seat(server: Server) -> None:
    server.ask(OTHER, "first")
    for number in range(6):
        server.ask(FLOOD, f"flood-{number}", waits=True)
    await server.idle()
    for task in server.tasks[:3]:  # two that are executed, and one that waits
        task.cancel()
    await server.idle()
    assert server.begun == ["first", "flood-0", "flood-1", "flood-3", "flood-4"]
    server.ask(OTHER, "other-1")
    server.ask(OTHER, "other-2")
    server.tasks[-1].cancel()  # before its turn
    server.ask(OTHER, "other-3")
    await server.idle()
    assert server.begun[5:] == ["other-1", "other-3"]
    server.gate.set()
    await asyncio.gather(*server.tasks, return_exceptions=True)
    assert server.begun[7:] == ["flood-5"]
