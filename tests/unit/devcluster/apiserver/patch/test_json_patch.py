# SPDX-License-Identifier: Apache-2.0
"""JSON patch and merge patch against their definitions, and against another implementation."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.apiserver.patch.json_patch import PatchFailed, json_patch, merge_patch

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), DOCUMENTS, max_size=3)


@given(OBJECTS, OBJECTS)
def test_a_difference_turns_one_document_into_the_other(old: Any, new: Any) -> None:
    operations = jsonpatch.make_patch(old, new).patch
    assert json_patch(old, operations) == new


@given(OBJECTS, OBJECTS)
def test_the_patched_value_is_not_changed(old: Any, new: Any) -> None:
    before = copy.deepcopy(old)
    json_patch(old, jsonpatch.make_patch(old, new).patch)
    merge_patch(old, new)
    assert old == before


def _reference_merge(value: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for name, entry in patch.items():
        if entry is None:
            found.pop(name, None)
        else:
            found[name] = _reference_merge(found.get(name), entry)
    return found


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_that_of_the_rfc(old: Any, patch: Any) -> None:
    assert merge_patch(old, patch) == _reference_merge(old, patch)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_a_merge_patch_once(old: Any, patch: Any) -> None:
    once = merge_patch(old, patch)
    assert merge_patch(once, patch) == once


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/absent"},
        {"op": "test", "path": "/a", "value": 1.0},
        {"op": "test", "path": "/absent", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "", "value": {}},
        {"op": "move", "path": "/x", "from": "/absent"},
        {"op": "invent", "path": "/a"},
        {"op": "add"},
    ],
    ids=str,
)
def test_an_inapplicable_operation_fails(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchFailed):
        json_patch({"a": 1, "list": [1]}, [operation])


def test_a_path_is_parsed_with_its_escapes() -> None:
    assert json_patch({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}]) == {"c~d": 2}
    assert json_patch({"c~d": 2}, [{"op": "replace", "path": "/c~0d", "value": 3}]) == {"c~d": 3}
