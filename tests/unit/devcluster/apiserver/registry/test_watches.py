# SPDX-License-Identifier: Apache-2.0
"""Watches: their start, their events and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from devcluster.apiserver.http.requests import Answer
from devcluster.apiserver.registry import watching
from tests.support.embedded import Caller, config_map

MAPS = "/api/v1/namespaces/default/configmaps"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


async def test_a_watch_without_a_version_begins_with_the_existing_objects(admin: Caller) -> None:
    await admin.create(MAPS, config_map("a"))
    for query in ({}, {"resourceVersion": "0"}):
        watch = admin.watch(MAPS, **query)
        assert await watch.said() == [("ADDED", "a")]
        watch.stop()


async def test_a_watch_from_a_version_has_the_later_changes(admin: Caller) -> None:
    first = await admin.create(MAPS, config_map("a"))
    await admin.merge(f"{MAPS}/a", {"data": {"x": "1"}})
    await admin.create(MAPS, config_map("b"))
    watch = admin.watch(MAPS, resourceVersion=first.version)
    await admin.delete(f"{MAPS}/a")
    assert await watch.said() == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    watch.stop()


async def test_versions_in_a_watch_only_grow_and_a_deletion_has_a_new_one(admin: Caller) -> None:
    watch = admin.watch(MAPS, resourceVersion=str(admin.api.context.store.version))
    for name in "abc":
        await admin.create(MAPS, config_map(name))
    await admin.merge(f"{MAPS}/b", {"data": {"x": "1"}})
    await admin.delete(f"{MAPS}/a")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in await watch.events()]
    assert versions == list(range(versions[0], versions[0] + 5))
    assert versions[-1] == admin.api.context.store.version
    watch.stop()


async def test_a_watch_of_one_namespace_has_no_other_events(admin: Caller) -> None:
    watch = admin.watch(MAPS, resourceVersion=str(admin.api.context.store.version))
    everywhere = admin.watch("/api/v1/configmaps", resourceVersion=str(admin.api.context.store.version))
    await admin.create("/api/v1/namespaces/kube-system/configmaps", config_map("other"))
    await admin.create(MAPS, config_map("mine"))
    assert await watch.said() == [("ADDED", "mine")]
    assert await everywhere.said() == [("ADDED", "other"), ("ADDED", "mine")]
    watch.stop()
    everywhere.stop()


async def test_an_object_enters_and_leaves_a_selection(admin: Caller) -> None:
    watch = admin.watch(MAPS, labelSelector="on=yes")
    await admin.create(MAPS, config_map("a"))
    entered = await admin.merge(f"{MAPS}/a", {"metadata": {"labels": {"on": "yes"}}})
    await admin.merge(f"{MAPS}/a", {"data": {"x": "1"}})
    left = await admin.merge(f"{MAPS}/a", {"metadata": {"labels": {"on": "no"}}, "data": {"x": "2"}})
    await admin.delete(f"{MAPS}/a")
    events = await watch.events()
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0]["object"] == entered.body
    last = events[2]["object"]
    assert last["metadata"]["resourceVersion"] == left.version
    assert (last["metadata"]["labels"], last["data"]) == ({"on": "yes"}, {"x": "1"})
    watch.stop()


async def test_a_watch_of_one_name_has_no_other_events(admin: Caller) -> None:
    watch = admin.watch(MAPS, fieldSelector="metadata.name=b")
    for name in ("a", "b", "xb"):
        await admin.create(MAPS, config_map(name))
    assert await watch.said() == [("ADDED", "b")]
    watch.stop()


async def test_a_watch_list_has_the_existing_objects_and_an_end(admin: Caller) -> None:
    for name in "ab":
        await admin.create(MAPS, config_map(name))
    watch = admin.watch(MAPS, **INITIAL)
    *added, mark = await watch.events()
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in added] == [("ADDED", "a"), ("ADDED", "b")]
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"] == {
        "resourceVersion": str(admin.api.context.store.version),
        "creationTimestamp": None,
        "annotations": {"k8s.io/initial-events-end": "true"},
    } or mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await admin.create(MAPS, config_map("c"))
    assert await watch.said() == [("ADDED", "c")]
    watch.stop()


async def test_a_watch_list_of_nothing_ends_at_once(admin: Caller) -> None:
    watch = admin.watch(MAPS, labelSelector="none=here", **INITIAL)
    assert [event["type"] for event in await watch.events()] == ["BOOKMARK"]
    watch.stop()


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        pytest.param({"resourceVersion": "x"}, 400, "BadRequest", id="a version that is no number"),
        pytest.param({"sendInitialEvents": "true"}, 422, "Invalid", id="initial events without a match rule"),
        pytest.param(
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
            422,
            "Invalid",
            id="initial events without bookmarks",
        ),
        pytest.param({"resourceVersionMatch": "Exact"}, 422, "Invalid", id="a match rule without initial events"),
        pytest.param({"fieldSelector": "spec.x=1"}, 400, "BadRequest", id="a field without a selector"),
    ],
)
async def test_a_watch_refuses(admin: Caller, query: dict[str, str], status: int, reason: str) -> None:
    seen = await admin.get(MAPS, watch="true", **query)
    assert (seen.status, seen.body["reason"]) == (status, reason)


async def test_a_watch_from_a_version_of_the_future_is_silent_until_then(admin: Caller) -> None:
    version = admin.api.context.store.version + 2
    watch = admin.watch(MAPS, resourceVersion=str(version), allowWatchBookmarks="true")
    for name in "abc":
        await admin.create(MAPS, config_map(name))
    assert await watch.said() == [("ADDED", "c")]
    watch.stop()


async def test_initial_events_of_a_version_of_the_future_end_with_an_error(admin: Caller) -> None:
    watch = admin.begin("GET", MAPS, watch="true", resourceVersion="999999", **INITIAL)
    assert isinstance(watch, Answer)
    assert b"Too large resource version: 999999" in watch.body


async def test_a_watch_from_before_a_compaction_is_refused(admin: Caller) -> None:
    first = await admin.create(MAPS, config_map("a"))
    await admin.create(MAPS, config_map("b"))
    admin.api.compact()
    found = admin.begin("GET", MAPS, watch="true", resourceVersion=first.version)
    assert isinstance(found, Answer)
    assert b'"type":"ERROR"' in found.body
    assert b'"code":410' in found.body
    assert b'"reason":"Expired"' in found.body


async def test_an_open_watch_gets_an_error_event_at_a_compaction(admin: Caller) -> None:
    watch = admin.watch(MAPS)
    admin.api.compact()
    (event,) = await watch.events()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert watch.closed
    assert not admin.api.reader.feeds


async def test_bookmarks_advance_an_idle_watch(admin: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_BOOKMARK_SECONDS", 0.01)
    with_marks = admin.watch(MAPS, allowWatchBookmarks="true")
    without = admin.watch(MAPS)
    other = await admin.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    async with asyncio.timeout(5):
        while not (events := await with_marks.events()):
            await asyncio.sleep(0.01)
    assert events[0]["type"] == "BOOKMARK"
    assert events[0]["object"]["kind"] == "ConfigMap"
    assert events[0]["object"]["metadata"]["resourceVersion"] == other.version
    assert await without.events() == []
    with_marks.stop()
    without.stop()


async def test_a_watch_ends_after_its_timeout_with_a_bookmark(admin: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = admin.watch(MAPS, timeoutSeconds=1, allowWatchBookmarks="true")
    feed = next(iter(admin.api.reader.feeds))
    feed._timeout()
    assert [event["type"] for event in await watch.events()] == ["BOOKMARK"]
    assert watch.closed
    assert not watch.aborted


async def test_a_client_that_does_not_read_is_disconnected(admin: Caller) -> None:
    watch = admin.watch(MAPS)
    watch.pending = 1 << 30
    await admin.create(MAPS, config_map("a"))
    await asyncio.sleep(0)
    assert watch.aborted
    assert not admin.api.reader.feeds


async def test_a_disconnected_client_is_forgotten(admin: Caller) -> None:
    watch = admin.watch(MAPS)
    watch.stop()
    assert not admin.api.reader.feeds
    await admin.create(MAPS, config_map("a"))
    assert await watch.events() == []


async def test_watches_of_one_client_are_cut_and_others_continue(admin: Caller) -> None:
    mine = admin.watch(MAPS)
    stranger = Caller(admin.api, headers={"impersonate-user": "jane", "impersonate-group": "system:masters"})
    theirs = stranger.watch(MAPS)
    seen = await admin.ask("POST", "/faults/cut-watches", user="jane")
    assert seen.status == 200
    assert (mine.aborted, theirs.aborted) == (False, True)
    mine.stop()


async def test_the_old_form_of_a_watch_is_accepted(admin: Caller) -> None:
    found = admin.begin("GET", "/api/v1/watch/namespaces/default/configmaps")
    assert not isinstance(found, Coroutine | Answer)
    admin.api.cut_watches()


async def test_a_watch_as_table_has_its_columns_once(admin: Caller) -> None:
    table = Caller(admin.api, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    watch = table.watch(MAPS)
    await admin.create(MAPS, config_map("a"))
    await admin.create(MAPS, config_map("b"))
    first, second = await watch.events()
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]
    assert second["object"]["rows"][0]["object"]["metadata"]["name"] == "b"
    watch.stop()


async def test_a_watch_of_metadata_has_metadata_only(admin: Caller) -> None:
    partial = Caller(admin.api, headers={"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"})
    watch = partial.watch(MAPS)
    await admin.create(MAPS, config_map("a", x="1"))
    (event,) = await watch.events()
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in event["object"]
    watch.stop()


async def test_a_watch_of_a_definition_that_is_removed_ends(admin: Caller) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.test"},
        "spec": {
            "group": "example.test",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await admin.create(path, definition)).status == 201
    thing = {"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "a"}}
    assert (await admin.create("/apis/example.test/v1/things", thing)).status == 201
    watch = admin.watch("/apis/example.test/v1/things")
    assert (await admin.delete(f"{path}/things.example.test")).status == 200
    async with asyncio.timeout(5):
        while not watch.closed:
            await asyncio.sleep(0)
    assert await watch.said() == [("ADDED", "a"), ("DELETED", "a")]
    assert (await admin.get("/apis/example.test/v1/things")).status == 404
