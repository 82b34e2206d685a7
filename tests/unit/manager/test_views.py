# SPDX-License-Identifier: Apache-2.0
"""The cache with our own writes over it: never older than what we wrote, and each version told once."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import orjson
import pytest

from manager.views import View
from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.header import read_row
from multikueue.kube.informer import Change
from multikueue.kube.store import Row, Store

pytestmark = pytest.mark.anyio

KEY = Key("ns", "w")


def raw(version: int, *, uid: str = "u") -> bytes:
    metadata = {"namespace": "ns", "name": "w", "uid": uid, "resourceVersion": str(version)}
    return orjson.dumps({"metadata": metadata})


class Feed:
    """Stands for an informer."""

    def __init__(self) -> None:
        self.store = Store({"uid": lambda obj: [obj["metadata"]["uid"]]})
        self.clock = ManualClock()
        self.view = View(WORKLOADS, clock=self.clock)
        self.told: list[tuple[str, str]] = []
        self.handlers: list[object] = []
        self.view.follow(self)  # type: ignore[arg-type]
        self.view.subscribe(lambda change: self.told.append((change.type, change.row.resource_version)))

    def add_handler(self, handler: object) -> None:
        self.handlers.append(handler)

    def comes(self, version: int, *, uid: str = "u") -> None:
        row = read_row(raw(version, uid=uid))
        old = self.store.put(row)
        self.tell(Change("ADDED" if old is None else "MODIFIED", KEY, old, row))

    def goes(self) -> None:
        self.tell(Change("DELETED", KEY, self.store.remove(KEY), None))

    def tell(self, change: Change) -> None:
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


def test_our_own_write_is_seen_at_once_and_told_once(feed: Feed) -> None:
    feed.comes(1)
    feed.view.observe(raw(5))
    assert feed.version == "5"
    feed.comes(3)
    assert feed.version == "5", "an event from before our write does not hide it"
    feed.comes(5)
    assert feed.told == [("ADDED", "1"), ("MODIFIED", "5")]
    feed.comes(6)
    assert feed.told[-1] == ("MODIFIED", "6")


def test_an_answer_that_is_older_than_the_cache_is_not_taken(feed: Feed) -> None:
    feed.comes(7)
    feed.view.observe(raw(5))
    assert feed.version == "7"
    assert feed.told == [("ADDED", "7")]


def test_what_we_made_is_there_before_the_cache_has_it(feed: Feed) -> None:
    feed.view.observe(raw(2))
    assert [row.resource_version for row in feed.view.rows()] == ["2"]
    feed.comes(2)
    assert feed.told == [("ADDED", "2")]


def test_a_deletion_ends_the_overlay(feed: Feed) -> None:
    feed.comes(1)
    feed.view.observe(raw(2))
    feed.goes()
    assert feed.version is None
    assert feed.told[-1][0] == "DELETED"


def test_the_deletion_of_a_former_object_of_that_name_does_not_hide_ours(feed: Feed) -> None:
    feed.comes(1, uid="old")
    feed.view.observe(raw(5, uid="new"))
    feed.goes()
    assert feed.version == "5"


def test_an_overlay_that_the_cache_never_confirms_runs_out(feed: Feed) -> None:
    feed.view.observe(raw(2))
    feed.clock.advance(61)
    assert feed.version is None


def test_nobody_is_told_after_unsubscribing_and_the_cache_goes_on(feed: Feed) -> None:
    feed.view.unsubscribe_all()
    feed.comes(1)
    assert feed.told == []
    assert feed.version == "1"


def test_items_of_a_list_get_their_kind(feed: Feed) -> None:
    feed.comes(1)
    found = feed.view.object(KEY)
    assert found is not None
    assert (found["apiVersion"], found["kind"]) == ("kueue.x-k8s.io/v1beta2", "Workload")


def test_an_index_finds_what_we_wrote_before_the_cache_has_it(feed: Feed) -> None:
    feed.view.observe(raw(1))
    assert feed.view.indexed("uid", "u") == (KEY,)
    feed.comes(1)
    assert feed.view.indexed("uid", "u") == (KEY,)
    feed.goes()
    assert feed.view.indexed("uid", "u") == ()


def test_an_answer_that_comes_after_the_deletion_does_not_bring_the_object_back(feed: Feed) -> None:
    feed.comes(1)
    feed.goes()
    feed.view.observe(raw(2))
    assert feed.version is None
    assert feed.told == [("ADDED", "1"), ("DELETED", "1")]
    feed.view.observe(raw(3, uid="another"))
    assert feed.version == "3", "one of that name that was made since is another"


def test_what_the_server_does_not_have_is_told_to_be_gone_although_the_cache_never_knew_it(feed: Feed) -> None:
    feed.view.observe(raw(2))
    feed.view.gone(KEY)
    assert feed.version is None
    assert feed.told == [("ADDED", "2"), ("DELETED", "2")]
    feed.view.gone(KEY)
    assert len(feed.told) == 2


def test_what_is_gone_gives_way_to_what_the_cache_has_of_that_name(feed: Feed) -> None:
    feed.comes(1, uid="first")
    feed.view.observe(raw(2, uid="second"))
    feed.view.gone(KEY)
    assert feed.told[-1] == ("MODIFIED", "1")


def test_an_index_of_a_kind_that_is_not_installed_is_empty() -> None:
    view = View(WORKLOADS, clock=ManualClock())
    assert view.indexed("uid", "u") == ()


async def test_a_replay_gives_way_and_tells_what_changes_meanwhile_once_and_in_time() -> None:
    feed = Feed()
    names = [f"w{number:03}" for number in range(200)]

    def row(name: str, version: int) -> Row:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}
        return read_row(orjson.dumps({"metadata": metadata}))

    def comes(name: str, version: int) -> None:
        new = row(name, version)
        feed.tell(Change("MODIFIED", new.key, feed.store.put(new), new))

    for name in names:
        feed.store.put(row(name, 1))
    told: list[tuple[str, str, str]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.view.replay, lambda change: told.append((change.type, change.key.name, _version(change))))
        await anyio.lowlevel.checkpoint()
        assert 0 < len(told) < len(names), "others had a turn"
        comes("w000", 2)  # told of before
        comes("w199", 2)  # not yet
        gone = Key("ns", "w198")
        feed.tell(Change("DELETED", gone, feed.store.remove(gone), None))
    assert ("MODIFIED", "w000", "2") in told
    assert [each for each in told if each[1] == "w199"] == [("ADDED", "w199", "2")]
    assert not [each for each in told if each[1] == "w198"]
    assert len(told) == len(names)
    comes("w199", 3)
    assert told[-1] == ("MODIFIED", "w199", "3")


def _version(change: Change) -> str:
    return change.row.resource_version
