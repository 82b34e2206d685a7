# SPDX-License-Identifier: Apache-2.0
"""A job kind that is removed from the management cluster and installed again, as its followers see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import pytest
from aiohttp import web

from manager.cache import followed_kind
from manager.cache.caches import Caches
from manager.cache.followed_kind import FollowedKind
from multikueue.api.resource import CLUSTER_QUEUES, Resource
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from tests.support.stub_api import json_answer, listing, status_answer, stream, stub_api, thing

PIPELINES: Final = Resource("ci.example.com", "v1", "Pipeline", "pipelines")
KIND: Final = FollowedKind(resource=PIPELINES, framework="Pipeline.v1.ci.example.com")
KEY: Final = Key("ns", "a")


@dataclass
class Server:
    """An API server with one kind, whose watch ends when the kind is removed, without the deletions."""

    items: list[dict[str, Any]] = field(default_factory=lambda: [thing("a")])
    served: bool = True
    defined: bool = True
    fails: bool = False
    forbids: bool = False
    failures: int = 0
    asked: int = 0
    """How often the definition was asked for."""

    def __post_init__(self) -> None:
        self.changed = anyio.Event()

    def change(self, **changes: Any) -> None:
        """End each watch; what is asked later is answered so."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.changed.set()
        self.changed = anyio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if self.fails:
            self.failures += 1
            return status_answer(500, "InternalError", Retry_After="60")
        if self.forbids:
            self.failures += 1
            return status_answer(403, "Forbidden")
        if "customresourcedefinitions" in request.path:
            self.asked += 1
            if self.defined:
                return json_answer({"metadata": {"name": PIPELINES.qualified}})
            details = {"name": PIPELINES.qualified, "kind": "customresourcedefinitions"}
            return json_answer({"kind": "Status", "reason": "NotFound", "code": 404, "details": details}, 404)
        if request.path == "/apis":
            versions = [{"groupVersion": "apiextensions.k8s.io/v1"}]
            return json_answer({"kind": "APIGroupList", "groups": [{"name": "x", "versions": versions}]})
        if not self.served:
            return web.Response(text="404 page not found\n", status=404)
        if "watch" in request.query:
            return await stream(request, then=self.changed.wait)  # type: ignore[no-any-return]
        return listing(*self.items)


@dataclass
class Followed:
    """What a leader has seen."""

    server: Server
    caches: Caches
    resource: Resource
    changes: list[str] = field(default_factory=list)
    waits: list[bool] = field(default_factory=list)
    removals: list[Resource] = field(default_factory=list)

    async def seen(self, *changes: str) -> None:
        with anyio.fail_after(30):
            while self.changes != list(changes):
                await anyio.sleep(0.01)

    async def removed(self) -> None:
        with anyio.fail_after(30):
            while self.removals != [self.resource]:
                await anyio.sleep(0.01)
        assert self.caches.is_removed(self.resource)
        assert self.caches.has_removed_kinds

    async def waiting(self, *waits: bool) -> None:
        with anyio.fail_after(30):
            while self.waits != list(waits):
                await anyio.sleep(0.01)

    async def asked(self, times: int) -> None:
        """Wait until its definition was asked for that often from now on."""
        times += self.server.asked
        with anyio.fail_after(30):
            while self.server.asked < times:
                await anyio.sleep(0.01)


@asynccontextmanager
async def following(server: Server, kind: FollowedKind = KIND) -> AsyncIterator[Followed]:
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        caches = Caches(client, [kind], clock=SystemClock())
        found = Followed(server, caches, kind.resource)

        def note(change: Change) -> None:
            found.changes.append(f"{change.type} {change.key.name}")

        caches.subscribe(kind.resource, note)
        caches.subscribe_removals(found.removals.append)
        caches.report_frameworks(lambda _, waits: found.waits.append(waits))
        tasks.start_soon(caches.run)
        await caches.synced()
        yield found
        tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_kind, "_MISSING_SECONDS", 0.05)
    monkeypatch.setattr(followed_kind, "_REMOVED_SECONDS", 0.05)


async def test_objects_that_went_with_their_kind_without_an_event_are_reported_as_deleted() -> None:
    async with following(Server()) as found:
        await found.seen("ADDED a")
        found.server.change(served=False, defined=False)
        await found.seen("ADDED a", "DELETED a")
        await found.removed()
        assert found.caches.view(PIPELINES).get(KEY) is None
        assert found.caches.informer(PIPELINES) is None
        await found.waiting(True)


async def test_what_the_manager_wrote_goes_with_the_kind_too() -> None:
    async with following(Server(items=[])) as found:
        found.caches.view(PIPELINES).on_write(
            b'{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"9"}}'
        )
        await found.seen("ADDED a")
        found.server.change(served=False, defined=False)
        await found.seen("ADDED a", "DELETED a")


async def test_a_kind_that_is_installed_again_is_followed_again() -> None:
    async with following(Server()) as found:
        found.server.change(served=False, defined=False)
        await found.waiting(True)
        found.server.change(served=True, defined=True, items=[thing("b", "30")])
        await found.seen("ADDED a", "DELETED a", "ADDED b")
        assert not found.caches.is_removed(PIPELINES)
        assert found.caches.informer(PIPELINES) is not None
        await found.waiting(True, False)
        found.server.change(served=False, defined=False)
        await found.seen("ADDED a", "DELETED a", "ADDED b", "DELETED b")


async def test_a_kind_that_answers_404_and_has_a_definition_keeps_its_objects() -> None:
    async with following(Server()) as found:
        found.server.change(served=False)
        await found.asked(5)
        assert found.changes == ["ADDED a"]
        assert found.caches.view(PIPELINES).get(KEY) is not None
        assert not found.caches.is_removed(PIPELINES)


async def test_a_kind_that_was_removed_before_the_manager_started_is_reported_too() -> None:
    async with following(Server(served=False, defined=False)) as found:
        await found.removed()
        assert found.waits == [True]
        assert found.changes == []


async def test_a_removed_kind_remains_so_while_the_server_fails() -> None:
    async with following(Server(served=False, defined=False)) as found:
        await found.removed()
        found.server.change(fails=True)
        with anyio.fail_after(30):
            while found.server.failures < 5:
                await anyio.sleep(0.01)
        assert found.caches.is_removed(PIPELINES)
        assert found.waits == [True]


async def test_a_follower_is_not_called_and_knows_it_when_it_leads() -> None:
    async with following(Server()) as found:
        found.caches.unsubscribe_all()
        found.caches.report_frameworks(None)
        found.server.change(served=False, defined=False)
        with anyio.fail_after(30):
            while not found.caches.is_removed(PIPELINES):
                await anyio.sleep(0.01)
        assert (found.removals, found.changes) == ([], ["ADDED a"])
        found.caches.report_frameworks(lambda _, waits: found.waits.append(waits))
        assert found.waits == [True]


async def test_a_kind_that_the_manager_needs_keeps_its_objects() -> None:
    async with following(Server(), FollowedKind(resource=CLUSTER_QUEUES)) as found:
        await found.seen("ADDED a")
        found.server.change(served=False, defined=False)
        informer = found.caches.informer(CLUSTER_QUEUES)
        assert informer is not None
        with anyio.fail_after(30):
            while informer.last_error is None:
                await anyio.sleep(0.01)
        assert found.server.asked == 0
        assert found.changes == ["ADDED a"]


ON_DEMAND: Final = FollowedKind(resource=PIPELINES, on_demand=True)


async def known(found: Followed) -> None:
    with anyio.fail_after(30):
        while not found.caches.is_known(PIPELINES):
            await anyio.sleep(0.01)


async def test_a_kind_on_demand_is_known_once_it_was_listed() -> None:
    async with following(Server(), ON_DEMAND) as found:
        assert found.changes == [], "no one has asked for it"
        assert not found.caches.is_known(PIPELINES)
        await known(found)
        assert found.changes == ["ADDED a"]


async def test_a_kind_on_demand_that_is_not_installed_is_known_to_have_no_objects_until_it_is() -> None:
    async with following(Server(served=False, defined=False), ON_DEMAND) as found:
        await known(found)
        found.server.change(served=True, defined=True)
        await found.seen("ADDED a")


async def test_a_kind_on_demand_that_may_not_be_listed_holds_up_nothing() -> None:
    async with following(Server(forbids=True), ON_DEMAND) as found:
        await known(found)
        assert found.changes == []


async def test_a_kind_on_demand_is_not_known_while_the_server_fails() -> None:
    async with following(Server(fails=True), ON_DEMAND) as found:
        found.caches.is_known(PIPELINES)
        with anyio.fail_after(30):
            while found.server.failures < 3:
                await anyio.sleep(0.01)
        assert not found.caches.is_known(PIPELINES)
        found.server.change(fails=False)
        await known(found)


async def test_a_kind_that_is_not_followed_holds_up_nothing() -> None:
    async with following(Server(), ON_DEMAND) as found:
        assert found.caches.is_known(CLUSTER_QUEUES)


OPTIONAL: Final = FollowedKind(resource=PIPELINES, optional="pipelines are not counted")


async def test_an_optional_kind_that_may_not_be_listed_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with following(Server(forbids=True), OPTIONAL) as found:
        assert found.changes == []
        assert found.caches.waiting_for == ()
    (line,) = [each.getMessage() for each in caplog.records if "pipelines are not counted" in each.getMessage()]
    assert line.startswith("pipelines are not counted: may not be listed kind=pipelines.ci.example.com cluster=")


async def test_an_optional_kind_that_is_not_served_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with following(Server(served=False, defined=False), OPTIONAL) as found:
        assert found.changes == []
        found.server.change(served=True, defined=True)
        await found.seen("ADDED a")
    lines = [each.getMessage() for each in caplog.records if "pipelines are not counted" in each.getMessage()]
    assert len(lines) == 1
    assert "the API server does not serve it" in lines[0]


async def test_an_optional_kind_that_is_allowed_later_is_followed() -> None:
    async with following(Server(forbids=True), OPTIONAL) as found:
        found.server.change(forbids=False)
        await found.seen("ADDED a")


async def test_an_optional_kind_is_waited_for_while_the_server_fails() -> None:
    server = Server(fails=True)
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        caches = Caches(client, [OPTIONAL], clock=SystemClock())
        tasks.start_soon(caches.run)
        with anyio.fail_after(30):
            while server.failures < 3:
                await anyio.sleep(0.01)
        assert caches.waiting_for == (PIPELINES.qualified,)
        server.change(fails=False)
        with anyio.fail_after(30):
            await caches.synced()
        assert caches.view(PIPELINES).get(KEY) is not None
        tasks.cancel_scope.cancel()


async def test_objects_of_an_optional_kind_are_there_once_it_has_settled() -> None:
    async with following(Server(), OPTIONAL) as found:
        assert found.changes == ["ADDED a"]


async def test_a_kind_that_the_manager_needs_is_waited_for_while_it_is_forbidden() -> None:
    server = Server(forbids=True)
    async with stub_api(server) as api, api.client() as client, anyio.create_task_group() as tasks:
        caches = Caches(client, [FollowedKind(resource=CLUSTER_QUEUES)], clock=SystemClock())
        tasks.start_soon(caches.run)
        with anyio.fail_after(30):
            while server.failures < 3:
                await anyio.sleep(0.01)
        assert caches.waiting_for == (CLUSTER_QUEUES.qualified,)
        tasks.cancel_scope.cancel()
