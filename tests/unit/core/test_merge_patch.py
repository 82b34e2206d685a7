# SPDX-License-Identifier: Apache-2.0
"""The merge patch between two objects."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.merge_patch import apply_merge_patch, merge_patch


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, id="equal objects"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 2}, id="a changed value"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, {"b": None}, id="a removed key is null"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}, id="only the changed leaf"),
        pytest.param({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}, id="a removed key below another"),
        pytest.param({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}, id="a list is replaced as a whole"),
        pytest.param({"a": {"b": 1}}, {"a": 3, "d": 4}, {"a": 3, "d": 4}, id="a map replaced by a value"),
        pytest.param({}, {"a": {}}, {"a": {}}, id="an empty map is a value"),
    ],
)
def test_merge_patch(old: dict[str, Any], new: dict[str, Any], want: dict[str, Any]) -> None:
    assert merge_patch(old, new) == want


def test_a_patch_is_applied_field_by_field_and_null_removes() -> None:
    target = {"a": {"b": 1, "c": [1, 2]}, "d": 1, "e": "text"}
    patch = {"a": {"b": None, "c": [3], "n": {"x": 1}}, "d": None, "e": {"f": 1}}
    assert apply_merge_patch(target, patch) == {"a": {"c": [3], "n": {"x": 1}}, "e": {"f": 1}}
    assert target["d"] == 1


def test_the_patch_between_two_objects_turns_the_one_into_the_other() -> None:
    old, new = {"a": {"b": 1}, "c": [1], "x": 1}, {"a": {"b": 2, "d": {"e": 3}}, "c": []}
    assert apply_merge_patch(old, merge_patch(old, new)) == new
