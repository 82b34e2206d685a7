# SPDX-License-Identifier: Apache-2.0
"""Lists: resource versions, pages over a consistent snapshot, selectors."""

from __future__ import annotations

import pytest

from tests.support.embedded import Caller, Seen, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


def names(seen: Seen) -> list[str]:
    assert seen.status == 200, seen.body
    return [item["metadata"]["name"] for item in seen.body["items"]]


@pytest.fixture
async def five(admin: Caller) -> list[str]:
    """The versions at which `a` to `e` were created."""
    found = []
    for name in "abcde":
        labels = {"parity": "odd" if name in "ace" else "even"}
        found.append((await admin.create(MAPS, config_map(name, labels=labels))).version)
    return found


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        pytest.param({}, "abcde", id="the newest state without a version"),
        pytest.param({"resourceVersion": "0"}, "abcde", id="any state at version 0"),
        pytest.param({"resourceVersion": "{2}"}, "abcde", id="a state not older than a version"),
        pytest.param(
            {"resourceVersion": "{2}", "resourceVersionMatch": "NotOlderThan"}, "abcde", id="not older than a version"
        ),
        pytest.param({"resourceVersion": "{2}", "resourceVersionMatch": "Exact"}, "abc", id="the exact state"),
        pytest.param({"resourceVersion": "{2}", "limit": "10"}, "abc", id="the exact state for a page"),
    ],
)
async def test_a_list_answers(admin: Caller, five: list[str], query: dict[str, str], wanted: str) -> None:
    seen = await admin.get(MAPS, **{key: value.format(*five) for key, value in query.items()})
    assert names(seen) == list(wanted)
    exact = "".join(names(seen)) == "abc"
    assert seen.version == (five[2] if exact else five[4])


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        pytest.param({"resourceVersion": "x"}, 400, "BadRequest", id="a version that is no number"),
        pytest.param({"resourceVersion": "-1"}, 400, "BadRequest", id="a negative version"),
        pytest.param({"resourceVersion": "999999"}, 504, "Timeout", id="a version from the future"),
        pytest.param({"resourceVersionMatch": "Exact"}, 422, "Invalid", id="a match rule without a version"),
        pytest.param(
            {"resourceVersion": "5", "resourceVersionMatch": "Some"}, 422, "Invalid", id="an unknown match rule"
        ),
        pytest.param({"limit": "x"}, 400, "BadRequest", id="a limit that is no number"),
        pytest.param({"continue": "!!"}, 400, "BadRequest", id="a token that is none"),
        pytest.param({"labelSelector": "a in"}, 400, "BadRequest", id="a label selector that is none"),
        pytest.param({"fieldSelector": "spec.x=1"}, 400, "BadRequest", id="a field without a selector"),
        pytest.param({"sendInitialEvents": "true"}, 422, "Invalid", id="initial events of a list"),
    ],
)
async def test_a_list_refuses(admin: Caller, five: list[str], query: dict[str, str], status: int, reason: str) -> None:
    seen = await admin.get(MAPS, **query)
    assert (seen.status, seen.body["reason"]) == (status, reason)


async def test_pages_show_the_state_at_the_first_page(admin: Caller, five: list[str]) -> None:
    first = await admin.get(MAPS, limit=2)
    assert (names(first), first.body["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    await admin.delete(f"{MAPS}/c")
    await admin.create(MAPS, config_map("bb"))
    await admin.merge(f"{MAPS}/d", {"data": {"new": "yes"}})
    second = await admin.get(MAPS, limit=2, **{"continue": first.body["metadata"]["continue"]})
    assert (names(second), second.version) == (["c", "d"], first.version)
    assert second.body["metadata"]["remainingItemCount"] == 1
    assert not second.body["items"][1].get("data")
    third = await admin.get(MAPS, limit=2, **{"continue": second.body["metadata"]["continue"]})
    assert names(third) == ["e"]
    assert "continue" not in third.body["metadata"]
    assert "remainingItemCount" not in third.body["metadata"]
    assert names(await admin.get(MAPS)) == ["a", "b", "bb", "d", "e"]


async def test_pages_pass_over_namespaces(admin: Caller) -> None:
    for space in ("kube-system", "default"):
        for name in "ab":
            await admin.create(f"/api/v1/namespaces/{space}/configmaps", config_map(name))
    found, token = [], ""
    for _ in range(4):
        page = await admin.get("/api/v1/configmaps", limit=1, **({"continue": token} if token else {}))
        found += [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in page.body["items"]]
        token = page.body["metadata"].get("continue", "")
    assert found == [("default", "a"), ("default", "b"), ("kube-system", "a"), ("kube-system", "b")]
    assert not token


async def test_a_selected_page_does_not_count_what_remains(admin: Caller, five: list[str]) -> None:
    page = await admin.get(MAPS, limit=2, labelSelector="parity=odd")
    assert names(page) == ["a", "c"]
    assert "remainingItemCount" not in page.body["metadata"]
    rest = await admin.get(MAPS, limit=2, labelSelector="parity=odd", **{"continue": page.body["metadata"]["continue"]})
    assert names(rest) == ["e"]


async def test_a_token_from_before_a_compaction_expires_and_the_new_one_continues(
    admin: Caller, five: list[str]
) -> None:
    page = await admin.get(MAPS, limit=2)
    await admin.delete(f"{MAPS}/c")
    admin.api.compact()
    gone = await admin.get(MAPS, limit=2, **{"continue": page.body["metadata"]["continue"]})
    assert (gone.status, gone.body["reason"]) == (410, "Expired")
    going_on = gone.body["metadata"]["continue"]
    rest = await admin.get(MAPS, limit=5, **{"continue": going_on})
    assert names(rest) == ["d", "e"]
    assert rest.version == str(admin.api.context.store.version)


async def test_an_exact_version_from_before_a_compaction_is_gone(admin: Caller, five: list[str]) -> None:
    admin.api.compact()
    await admin.delete(f"{MAPS}/c")
    seen = await admin.get(MAPS, resourceVersion=five[1], resourceVersionMatch="Exact")
    assert (seen.status, seen.body["reason"]) == (410, "Expired")


async def test_a_token_and_a_version_exclude_each_other(admin: Caller, five: list[str]) -> None:
    page = await admin.get(MAPS, limit=2)
    seen = await admin.get(MAPS, resourceVersion=five[1], **{"continue": page.body["metadata"]["continue"]})
    assert seen.status == 400


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        pytest.param("parity=odd", "ace", id="equal"),
        pytest.param("parity!=odd", "bd", id="not equal"),
        pytest.param("parity in (odd,even)", "abcde", id="one of"),
        pytest.param("parity notin (odd)", "bd", id="none of"),
        pytest.param("parity", "abcde", id="present"),
        pytest.param("!parity", "", id="absent"),
        pytest.param("parity,parity=even", "bd", id="all of several"),
    ],
)
async def test_a_label_selector_selects(admin: Caller, five: list[str], labels: str, wanted: str) -> None:
    assert names(await admin.get(MAPS, labelSelector=labels)) == list(wanted)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        pytest.param("metadata.name=b", "b", id="one name"),
        pytest.param("metadata.name!=b", "acde", id="all but one name"),
        pytest.param("metadata.namespace=default", "abcde", id="one namespace"),
        pytest.param("metadata.name=b,metadata.namespace=other", "", id="all of several"),
    ],
)
async def test_a_field_selector_selects(admin: Caller, five: list[str], fields: str, wanted: str) -> None:
    assert names(await admin.get(MAPS, fieldSelector=fields)) == list(wanted)


async def test_a_name_with_the_same_suffix_is_not_selected(admin: Caller) -> None:
    await admin.create(MAPS, config_map("xb"))
    assert names(await admin.get(MAPS, fieldSelector="metadata.name=b")) == []


async def test_a_collection_is_deleted_by_selector(admin: Caller, five: list[str]) -> None:
    seen = await admin.delete(MAPS, labelSelector="parity=odd")
    assert seen.status == 200
    assert names(await admin.get(MAPS)) == ["b", "d"]


async def test_stale_reads_are_answered_from_the_past(admin: Caller, five: list[str]) -> None:
    changed = await admin.ask("PUT", "/faults", {"staleReads": int(five[2])})
    assert changed.status == 200
    await admin.merge(f"{MAPS}/a", {"data": {"new": "yes"}})
    assert names(await admin.get(MAPS)) == ["a", "b", "c"]
    assert "data" not in (await admin.get(f"{MAPS}/a")).body
    assert (await admin.get(f"{MAPS}/e")).status == 404
    await admin.ask("PUT", "/faults", {"staleReads": None})
    assert names(await admin.get(MAPS)) == ["a", "b", "c", "d", "e"]
