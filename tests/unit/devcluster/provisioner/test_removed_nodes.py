# SPDX-License-Identifier: Apache-2.0
"""Nodes that are taken away go with their pods, whatever the server answers at first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web

from devcluster.provisioner import removed_nodes
from devcluster.provisioner.removed_nodes import RemovedNodes
from multikueue.core.clock import SystemClock
from tests.support.stub_api import json_answer, listing, status_answer, stub_api, thing

NODE, POD, OTHER = "n-1", "p", "q"


class Server:
    """Some nodes and the pods on them; each deletion is refused with the next of `refusals`, if there is one."""

    def __init__(self, *refusals: int, pods: tuple[str, ...] = (POD, OTHER)) -> None:
        self.refusals = list(refusals)
        self.nodes = {NODE}
        self.pods = set(pods)
        self.finalized: set[str] = set()
        """Pods that something keeps after their deletion."""
        self.deleted: list[str] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            assert request.query["fieldSelector"] == f"spec.nodeName={NODE}"
            return listing(*(thing(name) for name in sorted(self.pods)))
        if self.refusals:
            return status_answer(self.refusals.pop(0), "", "not now", Retry_After="60")
        name = request.path.rsplit("/", 1)[1]
        self.deleted.append(name)
        found = self.nodes if name.startswith("n-") else self.pods
        if name not in found:
            return status_answer(404, "NotFound")
        if name not in self.finalized:
            found.discard(name)
        return json_answer({"kind": "Status"})


@asynccontextmanager
async def removing(server: Server) -> AsyncIterator[RemovedNodes]:
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        removed = RemovedNodes(client, clock=SystemClock())
        tasks.start_soon(removed.controller.run)
        removed.add([NODE])
        yield removed
        tasks.cancel_scope.cancel()


async def done(removed: RemovedNodes) -> None:
    with anyio.fail_after(30):
        while removed.pending:
            await anyio.sleep(0.01)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_nodes, "LOST_SECONDS", 0.05)


@pytest.mark.parametrize(
    "refusals",
    [
        pytest.param((), id="at once"),
        pytest.param((429, 429), id="after the server was overloaded"),
        pytest.param((500, 500, 500), id="after it failed"),
        pytest.param((409, 503), id="after a conflict, and while it was not available"),
    ],
)
async def test_a_node_and_each_of_its_pods_are_deleted(refusals: tuple[int, ...]) -> None:
    server = Server(*refusals)
    async with removing(server) as removed:
        await done(removed)
    assert (server.nodes, server.pods, server.refusals) == (set(), set(), [])
    assert server.deleted.index(NODE) < server.deleted.index(POD)


@pytest.mark.parametrize("refusal", [429, 500])
async def test_a_pod_whose_deletion_fails_keeps_no_other_and_is_tried_again(refusal: int) -> None:
    server = Server()
    async with removing(server) as removed:
        with anyio.fail_after(30):
            while server.nodes:
                await anyio.lowlevel.checkpoint()
        server.refusals.append(refusal)
        await done(removed)
    assert server.pods == set()
    assert server.deleted == [NODE, OTHER, POD]


async def test_pods_that_something_keeps_are_looked_at_again() -> None:
    server = Server()
    server.finalized.add(POD)
    async with removing(server) as removed:
        with anyio.fail_after(30):
            while server.deleted.count(POD) < 3:
                await anyio.sleep(0.01)
        assert removed.pending == {NODE}
        server.finalized.clear()
        await done(removed)
    assert server.pods == set()


async def test_a_node_that_is_gone_already_still_loses_its_pods() -> None:
    server = Server(pods=(POD,))
    server.nodes.clear()
    async with removing(server) as removed:
        await done(removed)
    assert server.pods == set()


async def test_a_node_that_is_added_again_keeps_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_nodes, "LOST_SECONDS", 3600.0)
    server = Server()
    async with removing(server) as removed:
        with anyio.fail_after(30):
            while server.nodes:
                await anyio.sleep(0.01)
        removed.discard([NODE])
        assert removed.pending == frozenset()
        assert await removed.reconcile(NODE) is None
    assert server.pods == {POD, OTHER}
