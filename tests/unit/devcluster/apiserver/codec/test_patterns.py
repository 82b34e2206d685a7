# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of schemas and rules mean what they mean in Go."""

from __future__ import annotations

import re

import pytest

from devcluster.apiserver.codec.patterns import pattern_of


@pytest.mark.parametrize(
    ("pattern", "text", "want"),
    [
        pytest.param("^(?i)[a-z]+$", "ABC", True, id="flags may follow the anchor"),
        pytest.param("^[a-z]+$", "abc\n", False, id="the end is not before a newline"),
        pytest.param("^a$|^b$", "a\n", False, id="nor is that of an alternative"),
        pytest.param("(?m)^a$", "a\nb", True, id="it is where lines are matched"),
        pytest.param(r"^a\z", "a", True, id="the end of the text has another name"),
        pytest.param("^a[$]$", "a$", True, id="in a class it is a character"),
        pytest.param(r"^a\$$", "a$", True, id="and so it is when it is escaped"),
        pytest.param("^[]$]+$", "]$", True, id="a class may begin with a bracket"),
        pytest.param(r"^[\]$]+$", "]$", True, id="or have an escaped one"),
        pytest.param(r"^\d$", "\u0663", False, id="digits are those of ASCII"),
    ],
)
def test_a_pattern_matches_as_in_go(pattern: str, text: str, want: bool) -> None:
    assert bool(pattern_of(pattern).search(text)) is want


def test_what_is_no_pattern_is_an_error() -> None:
    with pytest.raises(re.error):
        pattern_of("a(")
