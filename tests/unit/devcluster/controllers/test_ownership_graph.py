# SPDX-License-Identifier: Apache-2.0
"""Who owns whom, and what becomes of what is owned."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from devcluster.controllers.discovery import resources_of
from devcluster.controllers.namespaces import Contents, conditions_of
from devcluster.controllers.ownership_graph import (
    FOREGROUND,
    ORPHAN,
    Decision,
    Disown,
    Item,
    Keep,
    OwnershipGraph,
    OwnerState,
    RemoveObject,
    decide,
    item_of,
)
from multikueue.api.objects import JsonObject
from multikueue.api.resource import CONFIG_MAPS
from multikueue.core.timestamps import format_time

PRESENT, AWAITS, ABSENT, UNKNOWN = OwnerState
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def item(
    uid: str, *owners: str, blocks: bool = False, deleting: bool = False, finalizers: tuple[str, ...] = ()
) -> Item:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "blockOwnerDeletion": blocks}
        for name in owners
    ]
    metadata: JsonObject = {"name": uid, "namespace": "ns", "uid": uid, "ownerReferences": references}
    if deleting:
        metadata["deletionTimestamp"] = format_time(NOW)
    return item_of(CONFIG_MAPS, {**metadata, "finalizers": list(finalizers)})


DEPENDENTS = [item("y", "x")]


@pytest.mark.parametrize(
    ("of", "states", "dependents", "decision"),
    [
        pytest.param(item("x"), {}, [], Keep(), id="an object without owners stays"),
        pytest.param(item("x", "a"), {"a": PRESENT}, [], Keep(), id="what is owned stays"),
        pytest.param(item("x", "a"), {"a": ABSENT}, [], RemoveObject("Background"), id="what has lost its owner goes"),
        pytest.param(
            item("x", "a", "b"), {"a": ABSENT, "b": PRESENT}, [], Disown(("a",)), id="one owner of two is enough"
        ),
        pytest.param(
            item("x", "a", "b"),
            {"a": AWAITS, "b": PRESENT},
            DEPENDENTS,
            Disown(("a",)),
            id="an owner that waits is let go",
        ),
        pytest.param(
            item("x", "a"),
            {"a": AWAITS},
            DEPENDENTS,
            RemoveObject("Foreground"),
            id="it waits for its own, as its owner does",
        ),
        pytest.param(item("x", "a"), {"a": AWAITS}, [], RemoveObject("Background"), id="it has nothing to wait for"),
        pytest.param(
            item("x", "a", finalizers=(ORPHAN,)),
            {"a": ABSENT},
            DEPENDENTS,
            RemoveObject("Orphan"),
            id="as it was asked before",
        ),
        pytest.param(
            item("x", "a", "b"), {"a": ABSENT, "b": UNKNOWN}, [], Keep(), id="what cannot be known proves nothing"
        ),
        pytest.param(
            item("x", "a"),
            {"a": AWAITS},
            [item("y", "x", deleting=True, finalizers=(FOREGROUND,))],
            RemoveObject("Foreground", unblock=True),
            id="a dependent that waits may own its owner",
        ),
        pytest.param(item("x", "a", deleting=True), {"a": ABSENT}, [], Keep(), id="it goes already"),
    ],
)
def test_decides(of: Item, states: dict[str, OwnerState], dependents: list[Item], decision: Decision) -> None:
    assert decide(of, states, dependents=dependents) == decision


def test_dependents_are_known_before_and_after_their_owner() -> None:
    graph = OwnershipGraph()
    graph.put(item("x", "a"))
    assert [found.uid for found in graph.dependents("a")] == ["x"]
    graph.put(item("a"))
    graph.remove("a")
    assert [found.uid for found in graph.dependents("a")] == ["x"]
    graph.put(item("x", "b"))
    assert graph.dependents("a") == []
    graph.remove("x")
    assert graph.dependents("b") == []


def test_only_what_blocks_is_waited_for() -> None:
    graph = OwnershipGraph()
    graph.put(item("free", "a"))
    graph.put(item("blocks", "a", blocks=True))
    assert [found.uid for found in graph.blockers("a")] == ["blocks"]


def test_finalizers_mean_nothing_before_the_deletion() -> None:
    assert not item("a", finalizers=(FOREGROUND, ORPHAN)).awaits_dependents
    assert item("a", deleting=True, finalizers=(FOREGROUND,)).awaits_dependents
    assert item("a", deleting=True, finalizers=(ORPHAN,)).orphans_dependents


def test_a_namespace_reports_its_remaining_content() -> None:
    contents = Contents(remaining={"pods.": 2, "jobs.batch": 1}, finalizers={"x/y": 1})
    found = {c["type"]: (c["status"], c["message"]) for c in conditions_of(contents, [], now=NOW)}
    assert found["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: jobs.batch has 1 resource instances, pods. has 2 resource instances",
    )
    assert found["NamespaceFinalizersRemaining"][0] == "True"
    assert found["NamespaceDeletionContentFailure"][0] == "False"


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    old = [{"type": "NamespaceContentRemaining", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]
    found = {c["type"]: c["lastTransitionTime"] for c in conditions_of(Contents(remaining={"x": 1}), old, now=NOW)}
    assert found["NamespaceContentRemaining"] == "2025-01-01T00:00:00Z"
    assert found["NamespaceFinalizersRemaining"] == format_time(NOW)


def test_resources_are_taken_in_the_first_version_that_can_be_watched_and_deleted() -> None:
    def entry(plural: str, kind: str, *verbs: str) -> JsonObject:
        return {"resource": plural, "scope": "Namespaced", "verbs": list(verbs), "responseKind": {"kind": kind}}

    whole = ("get", "list", "watch", "delete")
    group = {
        "metadata": {"name": "example.com"},
        "versions": [
            {"version": "v2", "resources": [entry("things", "Thing", *whole), entry("reviews", "Review", "create")]},
            {"version": "v1", "resources": [entry("things", "Thing", *whole), entry("olds", "Old", *whole)]},
        ],
    }
    found = [(one.qualified, one.version, one.namespaced) for one in resources_of({"items": [group]})]
    assert found == [("things.example.com", "v2", True), ("olds.example.com", "v1", True)]
