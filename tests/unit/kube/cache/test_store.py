# SPDX-License-Identifier: Apache-2.0
"""Indexes of a store: what they hold after objects were added, changed and removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from multikueue.core.keys import Key
from multikueue.kube.cache.packing import packed
from multikueue.kube.cache.store import Store, row_of


def owners(obj: dict[str, Any]) -> Iterable[str]:
    return [owner["name"] for owner in obj["metadata"].get("ownerReferences", ())]


def put(store: Store, name: str, *owned_by: str) -> None:
    """Store an object with owners of these names."""
    references = [{"name": owner, "uid": f"{owner}-{number}"} for number, owner in enumerate(owned_by)]
    obj = {"metadata": {"namespace": "team-a", "name": name, "ownerReferences": references}}
    store.put(row_of(obj, orjson.dumps(obj)))


def names(store: Store, owner: str) -> list[str]:
    return [row.key.name for row in store.list("owner", owner)]


def test_a_value_has_the_objects_that_have_it_in_the_order_in_which_they_got_it() -> None:
    store = Store({"owner": owners})
    put(store, "first", "one")
    assert names(store, "one") == ["first"]
    put(store, "second", "one", "other")
    put(store, "third", "one")
    assert names(store, "one") == ["first", "second", "third"]
    assert names(store, "other") == ["second"]
    assert names(store, "nobody") == []


def test_a_value_that_an_object_no_longer_has_loses_it() -> None:
    store = Store({"owner": owners})
    put(store, "first", "one")
    put(store, "first", "other")
    assert (names(store, "one"), names(store, "other")) == ([], ["first"])
    put(store, "second", "other")
    put(store, "first")
    assert names(store, "other") == ["second"]


def test_removed_objects_are_in_no_index() -> None:
    store = Store({"owner": owners})
    for name in ("first", "second"):
        put(store, name, "one")
    store.remove(Key("team-a", "second"))
    assert names(store, "one") == ["first"]
    store.remove(Key("team-a", "first"))
    assert names(store, "one") == []
    put(store, "first", "one")
    assert names(store, "one") == ["first"]


def test_an_object_that_names_a_value_twice_has_it_once_and_can_be_changed_and_removed() -> None:
    # Two owner references of one name differ by their uid: an API server accepts both.
    store = Store({"owner": owners})
    put(store, "first", "one", "one")
    assert names(store, "one") == ["first"]
    put(store, "first", "other", "other")
    assert (names(store, "one"), names(store, "other")) == ([], ["first"])
    put(store, "second", "other", "other")
    store.remove(Key("team-a", "first"))
    assert names(store, "other") == ["second"]


def test_a_row_has_the_labels_of_its_object() -> None:
    for labels, shown in (({"app": "train", "team": "a"}, {"app": "train", "team": "a"}), ({}, {}), (None, {})):
        obj = {"metadata": {"name": "first", "labels": labels}}
        assert row_of(obj, packed(orjson.dumps(obj))).labels == shown
    assert row_of({"metadata": {"name": "first"}}, b'{"metadata":{"name":"first"}}').labels == {}


def test_a_row_without_the_bytes_of_its_object_has_no_labels() -> None:
    assert row_of({"metadata": {"name": "first", "labels": {"app": "train"}}}, b"").labels == {}


def test_whether_an_object_has_a_value_is_known_without_reading_it() -> None:
    store = Store({"owner": owners})
    for name in ("first", "second"):
        put(store, name, "one")
    put(store, "third", "other")
    having = [name for name in ("first", "second", "third", "fourth") if store.has("owner", "one", Key("team-a", name))]
    assert having == ["first", "second"]
    assert store.has("owner", "other", Key("team-a", "third"))
    assert not store.has("owner", "none", Key("team-a", "third"))
