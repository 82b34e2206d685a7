# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patch on the types of built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.apiserver.patch.json_patch import PatchFailed, PatchMalformed
from devcluster.apiserver.patch.strategic import strategic_patch
from devcluster.apiserver.schema import builtin

POD = builtin.node("io.k8s.api.core.v1.PodSpec")
META = builtin.node("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
SPEC: dict[str, Any] = {
    "containers": [{"name": "a", "image": "1", "command": ["x"]}, {"name": "b", "image": "1"}],
    "nodeSelector": {"k": "v"},
}


def test_lists_of_maps_are_merged_by_their_key_and_others_are_replaced() -> None:
    found = strategic_patch(SPEC, {"containers": [{"name": "a", "command": ["y", "z"]}]}, POD)
    assert found["containers"] == [{"name": "a", "image": "1", "command": ["y", "z"]}, {"name": "b", "image": "1"}]


def test_new_items_come_first_unless_an_order_is_given() -> None:
    patch: dict[str, Any] = {"containers": [{"name": "c", "image": "1"}]}
    assert [c["name"] for c in strategic_patch(SPEC, patch, POD)["containers"]] == ["c", "a", "b"]
    patch["$setElementOrder/containers"] = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert [c["name"] for c in strategic_patch(SPEC, patch, POD)["containers"]] == ["a", "b", "c"]


def test_items_are_deleted_and_lists_replaced_by_directive() -> None:
    gone = strategic_patch(SPEC, {"containers": [{"name": "a", "$patch": "delete"}]}, POD)
    assert [c["name"] for c in gone["containers"]] == ["b"]
    only = strategic_patch(SPEC, {"containers": [{"$patch": "replace"}, {"name": "z", "image": "9"}]}, POD)
    assert only["containers"] == [{"name": "z", "image": "9"}]


def test_plain_values_are_merged_as_a_set_and_deleted_one_by_one() -> None:
    value = {"finalizers": ["x/a", "x/b"]}
    assert set(strategic_patch(value, {"finalizers": ["x/c"]}, META)["finalizers"]) == {"x/a", "x/b", "x/c"}
    assert strategic_patch(value, {"$deleteFromPrimitiveList/finalizers": ["x/a"]}, META)["finalizers"] == ["x/b"]


@pytest.mark.parametrize(
    ("patch", "failure"),
    [
        ({"containers": [{"image": "no name"}]}, PatchFailed),
        ({"nodeSelector": {"$patch": "invent"}}, PatchFailed),
        ({"$retainKeys": ["other"], "nodeSelector": {}}, PatchMalformed),
        ({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}, PatchFailed),
        ({"$setElementOrder/containers": "a"}, PatchFailed),
    ],
    ids=["an item without its key", "an unknown directive", "a key not retained", "an item out of order", "no order"],
)
def test_an_inapplicable_patch_fails(patch: dict[str, Any], failure: type[PatchFailed]) -> None:
    with pytest.raises(failure):
        strategic_patch(SPEC, patch, POD)


def test_the_patched_value_is_not_changed() -> None:
    before = str(SPEC)
    strategic_patch(SPEC, {"containers": [{"name": "a", "$patch": "delete"}], "nodeSelector": {"k": None}}, POD)
    assert str(SPEC) == before
