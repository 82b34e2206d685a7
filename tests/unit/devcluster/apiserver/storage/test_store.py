# SPDX-License-Identifier: Apache-2.0
"""Versions, snapshots, history and durability of the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from devcluster.apiserver.storage.collection import Compacted
from devcluster.apiserver.storage.durable import SqliteJournal
from devcluster.apiserver.storage.entry import StoredChange
from devcluster.apiserver.storage.store import ObjectStore


def thing(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, "data": data}


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def notify(self, event: StoredChange) -> None:
        self.seen.append((event.type, event.key, event.version))


def test_versions_grow_by_one_over_all_collections() -> None:
    store = ObjectStore()
    versions = [store.put("a", "ns/x", thing("x")).version, store.put("b", "ns/y", thing("y")).version]
    assert versions[1] == versions[0] + 1 == store.version


def test_an_object_has_the_version_of_its_write() -> None:
    entry = ObjectStore().put("a", "ns/x", thing("x"))
    assert entry.parse()["metadata"]["resourceVersion"] == str(entry.version)


def test_stored_bytes_begin_with_the_type() -> None:
    assert ObjectStore().put("a", "ns/x", thing("x")).raw.startswith(b'{"kind":"Thing","apiVersion":"v1",')


def test_a_list_at_an_old_version_is_exact() -> None:
    store = ObjectStore()
    for name in ("a", "c", "b"):
        store.put("things", f"ns/{name}", thing(name))
    then = store.version
    store.remove("things", "ns/b")
    store.put("things", "ns/a", thing("a", new="yes"))
    store.put("things", "ns/d", thing("d"))
    rows = store.collection("things")
    assert [entry.key for entry in rows.entries(at=then)] == ["ns/a", "ns/b", "ns/c"]
    assert [entry.parse()["data"] for entry in rows.entries(at=then)] == [{}, {}, {}]
    assert [entry.key for entry in rows.entries()] == ["ns/a", "ns/c", "ns/d"]


def test_a_list_continues_after_a_key_within_a_prefix() -> None:
    store = ObjectStore()
    for key in ("a/1", "b/1", "b/2", "b/3", "c/1"):
        store.put("things", key, thing("x"))
    rows = store.collection("things")
    assert [entry.key for entry in rows.entries(prefix="b/", after="b/1")] == ["b/2", "b/3"]
    assert rows.count(prefix="b/", after="b/1") == 2


def test_watchers_get_each_change_once_and_in_order() -> None:
    store, recorder = ObjectStore(), Recorder()
    store.collection("things").watch(recorder)
    first = store.put("things", "ns/a", thing("a")).version
    store.put("things", "ns/a", thing("a", b="c"))
    store.remove("things", "ns/a")
    assert recorder.seen == [
        ("ADDED", "ns/a", first),
        ("MODIFIED", "ns/a", first + 1),
        ("DELETED", "ns/a", first + 2),
    ]


def test_a_deletion_has_the_last_state_and_a_new_version() -> None:
    store = ObjectStore()
    store.put("things", "ns/a", thing("a", b="c"))
    event = store.remove("things", "ns/a")
    assert event.value()["data"] == {"b": "c"}
    assert event.value()["metadata"]["resourceVersion"] == str(event.version)


def test_compacted_changes_are_gone() -> None:
    store = ObjectStore()
    store.put("things", "ns/a", thing("a"))
    then = store.version
    store.put("things", "ns/b", thing("b"))
    store.compact()
    with pytest.raises(Compacted):
        store.collection("things").since(then)
    assert store.collection("things").since(store.version) == []


def test_a_reopened_file_has_every_acknowledged_write_and_continues_the_versions(tmp_path: Path) -> None:
    store = ObjectStore(SqliteJournal(tmp_path / "db"))
    store.put("things", "ns/a", thing("a"))
    store.put("things", "ns/b", thing("b"))
    store.remove("things", "ns/b")
    last = store.version
    # No close: that is what a crash does. The second connection sees what was committed.
    again = ObjectStore(SqliteJournal(tmp_path / "db"))
    assert [entry.key for entry in again.collection("things").entries()] == ["ns/a"]
    assert again.version == last
    assert again.put("things", "ns/c", thing("c")).version == last + 1
    store.close()
    again.close()


def test_a_file_of_an_older_layout_is_used(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(
        "CREATE TABLE objects"
        " (collection TEXT, key TEXT, version INTEGER, value BLOB, PRIMARY KEY (collection, key)) WITHOUT ROWID"
    )
    database.execute("INSERT INTO objects VALUES ('things', 'ns/a', 7, '{}')")
    database.commit()
    database.close()
    store = ObjectStore(SqliteJournal(tmp_path / "db"))
    store.put("things", "ns/a", thing("a", n="2"))
    store.close()
    again = ObjectStore(SqliteJournal(tmp_path / "db"))
    entry = again.collection("things").get("ns/a")
    assert entry is not None
    assert (entry.version, entry.parse()["data"]) == (8, {"n": "2"})
    again.close()


def test_an_amended_object_keeps_its_version_and_is_no_change(tmp_path: Path) -> None:
    store, seen = ObjectStore(SqliteJournal(tmp_path / "db")), Recorder()
    version = store.put("a", "ns/x", thing("x")).version
    store.collection("a").watch(seen)
    amended = store.collection("a").get("ns/x")
    assert amended is not None
    store.amend("a", "ns/x", {**amended.parse(), "color": "blue"})
    store.close()
    again = ObjectStore(SqliteJournal(tmp_path / "db"))
    kept = again.collection("a").get("ns/x")
    assert kept is not None
    assert (kept.version, kept.parse()["color"], seen.seen) == (version, "blue", [])
    again.close()


def test_an_object_that_is_gone_is_not_amended() -> None:
    with pytest.raises(KeyError):
        ObjectStore().amend("a", "ns/x", thing("x"))
