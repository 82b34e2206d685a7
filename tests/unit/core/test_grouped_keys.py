# SPDX-License-Identifier: Apache-2.0
"""Keys that are in one group at most."""

from __future__ import annotations

from multikueue.core.grouped_keys import GroupedKeys


def test_a_key_is_found_by_its_group_and_leaves_it_for_another_one() -> None:
    keys: GroupedKeys[str, int] = GroupedKeys()
    assert [keys.put("a", 1), keys.put("b", 1), keys.put("a", 2)] == [None, None, 1]
    assert (keys.of(1), keys.of(2), keys.group_of("a")) == (("b",), ("a",), 2)
    assert sorted(keys.items()) == [("a", 2), ("b", 1)]


def test_a_group_without_keys_is_forgotten() -> None:
    keys: GroupedKeys[str, int] = GroupedKeys()
    keys.put("a", 1)
    assert keys.put("a", None) == 1
    assert (keys.groups(), keys.of(1), keys.group_of("a"), keys.put("a", None)) == ((), (), None, None)
