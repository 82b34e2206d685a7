# SPDX-License-Identifier: Apache-2.0
"""A view: own writes over the cache reach its subscribers, which get existing objects first."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import anyio
import anyio.lowlevel
import orjson
import pytest

from manager.cache.views import View
from multikueue.api.resource import WORKLOADS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change
from multikueue.kube.cache.store import Row, Store, read_row
from multikueue.kube.rest.client import KubeClient

pytestmark = pytest.mark.anyio

KEY = Key("ns", "w")


def raw(version: int, *, uid: str = "u") -> bytes:
    metadata = {"namespace": "ns", "name": "w", "uid": uid, "resourceVersion": str(version)}
    return orjson.dumps({"metadata": metadata})


class Feed:
    """A fake informer."""

    def __init__(self) -> None:
        self.store = Store({"uid": lambda obj: [obj["metadata"]["uid"]]})
        self.clock = ManualClock()
        self.view = View(WORKLOADS, clock=self.clock)
        self.seen: list[tuple[str, str]] = []
        self.handlers: list[object] = []
        self.view.follow(self)  # type: ignore[arg-type]
        self.view.subscribe(lambda change: self.seen.append((change.type, change.row.resource_version)))

    def add_handler(self, handler: object) -> None:
        self.handlers.append(handler)

    def caches(self, version: int, *, uid: str = "u") -> None:
        row = read_row(raw(version, uid=uid))
        old = self.store.put(row)
        self.emit(Change("ADDED" if old is None else "MODIFIED", KEY, old, row))

    def deletes(self) -> None:
        self.emit(Change("DELETED", KEY, self.store.remove(KEY), None))

    def emit(self, change: Change) -> None:
        for handler in self.handlers:
            assert callable(handler)
            handler(change)

    @property
    def version(self) -> str | None:
        row: Row | None = self.view.get(KEY)
        return None if row is None else row.resource_version


@pytest.fixture
def feed() -> Feed:
    return Feed()


def test_a_write_reaches_subscribers_at_once_and_once(feed: Feed) -> None:
    feed.caches(1)
    feed.view.on_write(raw(5))
    assert feed.version == "5"
    feed.caches(3)
    assert feed.version == "5", "an event from before our write does not hide it"
    feed.caches(5)
    assert feed.seen == [("ADDED", "1"), ("MODIFIED", "5")]
    feed.caches(6)
    assert feed.seen[-1] == ("MODIFIED", "6")


def test_a_created_object_is_there_before_the_cache_has_it(feed: Feed) -> None:
    feed.view.on_write(raw(2))
    assert [row.resource_version for row in feed.view.rows()] == ["2"]
    feed.caches(2)
    assert feed.seen == [("ADDED", "2")]


def test_no_subscriber_is_called_after_unsubscribing_and_the_cache_is_still_updated(feed: Feed) -> None:
    feed.view.unsubscribe_all()
    feed.caches(1)
    assert feed.seen == []
    assert feed.version == "1"


def test_items_of_a_list_get_their_kind(feed: Feed) -> None:
    feed.caches(1)
    found = feed.view.object(KEY)
    assert found is not None
    assert (found["apiVersion"], found["kind"]) == ("kueue.x-k8s.io/v1beta2", "Workload")


def test_an_index_finds_a_written_object_before_the_cache_has_it(feed: Feed) -> None:
    feed.view.on_write(raw(1))
    assert feed.view.indexed("uid", "u") == (KEY,)
    feed.caches(1)
    assert feed.view.indexed("uid", "u") == (KEY,)
    feed.deletes()
    assert feed.view.indexed("uid", "u") == ()


def test_subscribers_see_the_deletion_of_an_object_that_the_cache_never_had(feed: Feed) -> None:
    feed.view.on_write(raw(2))
    feed.view.on_not_found(KEY)
    assert feed.version is None
    assert feed.seen == [("ADDED", "2"), ("DELETED", "2")]
    feed.view.on_not_found(KEY)
    assert len(feed.seen) == 2


def test_an_index_of_a_kind_that_is_not_installed_is_empty() -> None:
    view = View(WORKLOADS, clock=ManualClock())
    assert view.indexed("uid", "u") == ()


async def test_a_replay_yields_and_reports_what_changes_meanwhile_once_and_in_time() -> None:
    feed = Feed()
    names = [f"w{number:03}" for number in range(200)]

    def row(name: str, version: int) -> Row:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}
        return read_row(orjson.dumps({"metadata": metadata}))

    def caches(name: str, version: int) -> None:
        new = row(name, version)
        feed.emit(Change("MODIFIED", new.key, feed.store.put(new), new))

    for name in names:
        feed.store.put(row(name, 1))
    seen: list[tuple[str, str, str]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.view.replay, lambda change: seen.append((change.type, change.key.name, _version(change))))
        await anyio.lowlevel.checkpoint()
        assert 0 < len(seen) < len(names), "others had a turn"
        caches("w000", 2)  # replayed already
        caches("w199", 2)  # not yet
        gone = Key("ns", "w198")
        feed.emit(Change("DELETED", gone, feed.store.remove(gone), None))
    assert ("MODIFIED", "w000", "2") in seen
    assert [each for each in seen if each[1] == "w199"] == [("ADDED", "w199", "2")]
    assert not [each for each in seen if each[1] == "w198"]
    assert len(seen) == len(names)
    caches("w199", 3)
    assert seen[-1] == ("MODIFIED", "w199", "3")


def _version(change: Change) -> str:
    return change.row.resource_version


class Listed:
    """An API server that lists what it is given, and keeps what was asked."""

    def __init__(self, *items: bytes) -> None:
        self.items = items
        self.asked: list[tuple[str | None, str | None]] = []
        self.while_it_answers: Callable[[], object] = lambda: None

    async def list_page(self, resource: Resource, *, namespace: str | None, field_selector: str) -> Listed:
        assert resource == WORKLOADS
        self.asked.append((namespace, field_selector))
        self.while_it_answers()
        return self


async def verify(feed: Feed, server: Listed) -> None:
    await feed.view.verify_writes(cast(KubeClient, server))


async def test_a_write_that_no_event_followed_and_whose_object_is_gone_is_forgotten(feed: Feed) -> None:
    feed.view.on_write(raw(5))
    server = Listed()
    await verify(feed, server)
    assert not server.asked, "an event may still come"
    feed.clock.advance(31)
    await verify(feed, server)
    assert server.asked == [("ns", "metadata.name=w")]
    assert feed.version is None
    assert feed.seen[-1] == ("DELETED", "5"), "subscribers give back what it held"
    await verify(feed, server)
    assert len(server.asked) == 1, "it is asked about once"


async def test_a_write_that_no_event_followed_and_whose_object_is_there_stays(feed: Feed) -> None:
    feed.view.on_write(raw(5))
    feed.clock.advance(31)
    await verify(feed, Listed(raw(7)))
    assert feed.version == "7"
    assert feed.seen == [("ADDED", "5"), ("MODIFIED", "7")]


async def test_an_object_that_was_created_while_the_server_answered_stays(feed: Feed) -> None:
    feed.view.on_write(raw(5))
    feed.clock.advance(31)
    server = Listed()
    server.while_it_answers = lambda: feed.view.on_write(raw(9, uid="another"))
    await verify(feed, server)
    assert feed.version == "9"


async def test_a_write_that_an_event_followed_is_not_asked_about(feed: Feed) -> None:
    feed.view.on_write(raw(5))
    feed.caches(5)
    feed.clock.advance(31)
    server = Listed()
    await verify(feed, server)
    assert not server.asked


async def test_the_newest_version_says_whether_an_object_is_in_an_index() -> None:
    feed = Feed()
    feed.caches(1)
    feed.view.on_write(raw(2, uid="other"))
    assert [feed.view.has("uid", uid, KEY) for uid in ("u", "other")] == [False, True]
    feed.caches(3)
    assert [feed.view.has("uid", uid, KEY) for uid in ("u", "other")] == [True, False]


async def test_nothing_is_in_an_index_of_a_kind_without_indexes() -> None:
    assert not View(WORKLOADS, clock=ManualClock()).has("uid", "u", KEY)
