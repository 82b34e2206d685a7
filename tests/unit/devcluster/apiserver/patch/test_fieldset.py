# SPDX-License-Identifier: Apache-2.0
"""Sets of field paths obey the laws of sets."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devcluster.apiserver.patch import fieldset
from devcluster.apiserver.patch.fieldset import FieldSet

PATHS = st.frozensets(
    st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":1}']), min_size=1, max_size=3).map(tuple), max_size=6
)


def tree(paths: frozenset[tuple[str, ...]]) -> FieldSet | None:
    """A set from its members."""
    found: FieldSet | None = None
    for path in sorted(paths):
        one: Any = {}
        for element in reversed(path):
            one = {element: one}
        found = fieldset.union(found, one)
    return found


def members(node: FieldSet | None, prefix: tuple[str, ...] = ()) -> frozenset[tuple[str, ...]]:
    """The members of a set, read from its form only."""
    if node is None:
        return frozenset()
    if not node:
        return frozenset({prefix})
    found: set[tuple[str, ...]] = set()
    for element, child in node.items():
        found |= {prefix} if element == "." else members(child, (*prefix, element))
    return frozenset(found)


@given(PATHS)
def test_a_set_has_the_members_it_was_made_of(paths: frozenset[tuple[str, ...]]) -> None:
    assert members(tree(paths)) == paths


@given(PATHS, PATHS)
def test_union_intersection_and_difference_are_those_of_sets(
    left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]
) -> None:
    assert members(fieldset.union(tree(left), tree(right))) == left | right
    assert members(fieldset.intersection(tree(left), tree(right))) == left & right
    assert members(fieldset.difference(tree(left), tree(right))) == left - right


@given(PATHS, PATHS)
def test_outside_leaves_nothing_below_what_is_taken(
    left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]
) -> None:
    expected = {path for path in left if not any(path[: len(gone)] == gone for gone in right)}
    assert members(fieldset.outside(tree(left), tree(right))) == expected


@given(PATHS, PATHS)
def test_no_set_is_changed_in_place(left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]) -> None:
    one, other = tree(left), tree(right)
    for operation in (fieldset.union, fieldset.intersection, fieldset.difference, fieldset.outside):
        operation(one, other)
    assert (members(one), members(other)) == (left, right)


@given(PATHS)
def test_every_member_is_listed_once(paths: frozenset[tuple[str, ...]]) -> None:
    listed = fieldset.paths(tree(paths))
    assert len(listed) == len(set(listed)) == len(paths)


def test_paths_are_readable_text() -> None:
    node: FieldSet = {"f:spec": {"f:parts": {'k:{"name":"a","port":1}': {".": {}, "f:x": {}}, 'v:"s"': {}}}}
    assert fieldset.paths(node) == [
        '.spec.parts[name="a",port=1]',
        '.spec.parts[="s"]',
        '.spec.parts[name="a",port=1].x',
    ]
