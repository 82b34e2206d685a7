# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.kube.cache.store import read_row
from multikueue.kube.rest import json_slices
from multikueue.kube.rest.json_slices import elements, members

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.lists(VALUES, max_size=4), st.booleans())
def test_json_is_taken_apart_as_a_parser_does(obj: dict[str, object], listed: list[object], spaced: bool) -> None:
    option = orjson.OPT_INDENT_2 if spaced else 0
    sliced = members(orjson.dumps(obj, option=option))
    assert {name: orjson.loads(value) for name, value in sliced.items()} == obj
    assert [orjson.loads(part) for part in elements(orjson.dumps(listed, option=option))] == listed


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"a": 1', b"{1}", b"text"])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BadInput):
        members(raw)


def deep(name: str, levels: int) -> bytes:
    nested = b'{"a":' * levels + b"1" + b"}" * levels
    return b'{"metadata":{"name":"%s","namespace":"ns","uid":"u","resourceVersion":"7"},"status":%s}' % (
        name.encode(),
        nested,
    )


@pytest.mark.parametrize("levels", [10, 200, 500, 1_100, 9_000])
def test_an_object_of_any_depth_has_a_row_and_spoils_no_list(levels: int) -> None:
    row = read_row(deep("bad", levels))
    assert (row.key, row.resource_version) == (Key("ns", "bad"), "7")
    page = json_slices.split(
        b'{"metadata":{"resourceVersion":"9","continue":"c"},"items":[%s,%s]}' % (deep("bad", levels), deep("good", 1))
    )
    assert [read_row(raw).key.name for raw in page.items] == ["bad", "good"]
    assert (page.resource_version, page.continue_token) == ("9", "c")
