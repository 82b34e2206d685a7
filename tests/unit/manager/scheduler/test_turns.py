# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from manager.scheduler.turns import NamespaceTurns
from multikueue.core.keys import Key


def test_a_key_waits_for_one_of_another_namespace_however_many_there_are() -> None:
    turns = NamespaceTurns()
    for number in range(1000):
        turns.append(Key("flood", str(number)))
    turns.append(Key("other", "a"))
    turns.append(Key("other", "b"))
    found = [str(turns.popleft()) for _ in range(5)]
    assert found == ["flood/0", "other/a", "flood/1", "other/b", "flood/2"]


def test_it_is_empty_when_each_key_was_taken() -> None:
    turns = NamespaceTurns()
    turns.append(Key("a", "b"))
    assert turns
    turns.popleft()
    assert not turns
    with pytest.raises(KeyError):
        turns.popleft()
