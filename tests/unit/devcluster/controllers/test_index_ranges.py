# SPDX-License-Identifier: Apache-2.0
"""Completion indexes as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.controllers import index_ranges


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        pytest.param([], "", id="none is no text"),
        pytest.param([3], "3", id="one stands alone"),
        pytest.param([1, 0], "0,1", id="two neighbours are listed"),
        pytest.param([4, 2, 3], "2-4", id="three neighbours are a range"),
        pytest.param([0, 2, 3, 4, 5, 7, 8], "0,2-5,7,8", id="all forms stand side by side"),
    ],
)
def test_writes(indexes: list[int], text: str) -> None:
    assert index_ranges.text_of(indexes) == text
    assert index_ranges.parse(text) == set(indexes)


def test_indexes_from_the_limit_on_are_left_out() -> None:
    assert index_ranges.parse("0-4,6,9", below=4) == {0, 1, 2, 3}


@given(st.sets(st.integers(0, 60)))
def test_what_is_written_is_read_back(indexes: set[int]) -> None:
    assert index_ranges.parse(index_ranges.text_of(indexes)) == indexes
