# SPDX-License-Identifier: Apache-2.0
"""Own writes over a cache: never older than what was written, and each version returned once."""

from __future__ import annotations

import orjson
import pytest

from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.cache.overlay import WriteOverlay
from multikueue.kube.cache.store import Store, read_row
from multikueue.kube.cache.subscribers import Change
from multikueue.kube.rest import watch

KEY = Key("ns", "w")


def raw(version: int, *, uid: str = "u") -> bytes:
    metadata = {"namespace": "ns", "name": "w", "uid": uid, "resourceVersion": str(version)}
    return orjson.dumps({"metadata": metadata})


class Feed:
    """An overlay over a store that changes as an informer's does; keeps what a reader is shown."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store({"uid": lambda obj: [obj["metadata"]["uid"]]})
        self.overlay = WriteOverlay(self.store, clock=self.clock)
        self.seen: list[tuple[str, str]] = []

    def writes(self, version: int, *, uid: str = "u") -> None:
        self._keep(self.overlay.on_write(raw(version, uid=uid)))

    def not_found(self) -> None:
        self._keep(self.overlay.on_not_found(KEY))

    def caches(self, version: int, *, uid: str = "u") -> None:
        row = read_row(raw(version, uid=uid))
        old = self.store.put(row)
        self._keep(self.overlay.on_change(Change(watch.ADDED if old is None else watch.MODIFIED, KEY, old, row)))

    def deletes(self) -> None:
        self._keep(self.overlay.on_change(Change(watch.DELETED, KEY, self.store.remove(KEY), None)))

    @property
    def version(self) -> str | None:
        row = self.overlay.get(KEY)
        return None if row is None else row.resource_version

    def _keep(self, change: Change | None) -> None:
        if change is not None:
            self.seen.append((change.type, change.row.resource_version))


@pytest.fixture
def feed() -> Feed:
    return Feed()


def test_an_entry_whose_owner_verifies_it_is_shown_until_the_store_has_caught_up() -> None:
    clock, store = ManualClock(), Store()
    overlay = WriteOverlay(store, clock=clock, expires=False)
    overlay.on_write(raw(7))
    clock.advance(3_600.0)
    assert overlay.get(KEY) is not None
    assert [row.key for row in overlay.overdue()] == [KEY]
    overlay.on_not_found(KEY)
    assert overlay.get(KEY) is None


def test_a_write_is_seen_at_once_and_returned_once(feed: Feed) -> None:
    feed.caches(1)
    feed.writes(5)
    assert feed.version == "5"
    feed.caches(3)
    assert feed.version == "5", "an event from before the write does not hide it"
    feed.caches(5)
    assert feed.seen == [("ADDED", "1"), ("MODIFIED", "5")]
    feed.caches(6)
    assert feed.seen[-1] == ("MODIFIED", "6")


def test_an_answer_that_is_older_than_the_cache_is_ignored(feed: Feed) -> None:
    feed.caches(7)
    feed.writes(5)
    assert feed.version == "7"
    assert feed.seen == [("ADDED", "7")]


def test_a_created_object_is_there_before_the_cache_has_it(feed: Feed) -> None:
    feed.writes(2)
    assert feed.overlay.keys() == (KEY,)
    assert [row.resource_version for row in feed.overlay.rows()] == ["2"]
    feed.caches(2)
    assert feed.seen == [("ADDED", "2")]


def test_a_deletion_drops_the_written_object(feed: Feed) -> None:
    feed.caches(1)
    feed.writes(2)
    feed.deletes()
    assert feed.version is None
    assert feed.seen[-1][0] == "DELETED"


def test_the_deletion_of_a_former_object_of_that_name_does_not_hide_the_new_one(feed: Feed) -> None:
    feed.caches(1, uid="old")
    feed.writes(5, uid="new")
    feed.deletes()
    assert feed.version == "5"
    assert feed.seen == [("ADDED", "1"), ("MODIFIED", "5")]


def test_an_entry_that_the_cache_never_confirms_expires(feed: Feed) -> None:
    feed.writes(2)
    feed.clock.advance(61)
    assert feed.version is None


def test_an_answer_after_the_deletion_does_not_bring_the_object_back(feed: Feed) -> None:
    feed.caches(1)
    feed.deletes()
    feed.writes(2)
    assert feed.version is None
    assert feed.seen == [("ADDED", "1"), ("DELETED", "1")]
    feed.writes(3, uid="another")
    assert feed.version == "3", "an object of that name that was created since is another one"


def test_not_found_drops_an_object_that_the_cache_never_had(feed: Feed) -> None:
    feed.writes(2)
    feed.not_found()
    assert feed.version is None
    assert feed.seen == [("ADDED", "2"), ("DELETED", "2")]
    feed.not_found()
    assert len(feed.seen) == 2


def test_not_found_shows_what_the_cache_has_of_that_name(feed: Feed) -> None:
    feed.caches(1, uid="first")
    feed.writes(2, uid="second")
    feed.not_found()
    assert feed.seen[-1] == ("MODIFIED", "1")


def test_an_index_finds_a_written_object_before_the_cache_has_it(feed: Feed) -> None:
    feed.writes(1)
    assert feed.overlay.indexed("uid", "u") == (KEY,)
    feed.caches(1)
    assert feed.overlay.indexed("uid", "u") == (KEY,)
    feed.deletes()
    assert feed.overlay.indexed("uid", "u") == ()


def test_an_index_of_a_store_without_indexes_is_empty() -> None:
    overlay = WriteOverlay(Store(), clock=ManualClock())
    overlay.on_write(raw(1))
    assert overlay.indexed("uid", "u") == ()


def test_what_the_cache_has_not_confirmed_for_long_is_overdue_until_the_server_is_asked(feed: Feed) -> None:
    feed.writes(5)
    assert not feed.overlay.overdue()
    feed.clock.advance(40)
    (row,) = feed.overlay.overdue()
    assert feed.overlay.holds(row)
    feed.writes(5)  # the server still has it
    assert not feed.overlay.overdue()
    feed.clock.advance(40)
    feed.not_found()
    assert feed.seen == [("ADDED", "5"), ("DELETED", "5")]
    assert not feed.overlay.overdue()


def test_an_expired_entry_that_was_not_read_still_ends_when_the_server_is_asked(feed: Feed) -> None:
    feed.writes(5)
    feed.clock.advance(61)
    assert feed.version is None
    assert [row.resource_version for row in feed.overlay.overdue()] == ["5"]
    feed.not_found()
    assert feed.seen == [("ADDED", "5"), ("DELETED", "5")]
