# SPDX-License-Identifier: Apache-2.0
"""A variable that is there twice: what a container sees stays the same when each name is there once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.api.environment import without_repetitions


def seen(env: list[dict[str, Any]]) -> dict[str, str]:
    """What a container is given, as the kubelet works it out: one entry after the other, `$(NAME)` of those before."""
    known: dict[str, str] = {}
    for entry in env:
        known[entry["name"]] = re.sub(
            r"\$\$|\$\(([^)]*)\)",
            lambda match: "$" if match[1] is None else known.get(match[1], match[0]),
            entry.get("value", ""),
        )
    return known


def variables(*given: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in given]


@pytest.mark.parametrize(
    ("env", "want"),
    [
        pytest.param([("A", "1"), ("B", "2")], [("A", "1"), ("B", "2")], id="nothing twice"),
        pytest.param([("A", "1"), ("B", "2"), ("A", "3")], [("B", "2"), ("A", "3")], id="the last one, in its place"),
        pytest.param([("A", "1"), ("A", "$(A)2")], [("A", "12")], id="one that goes on with its former value"),
        pytest.param(
            [("A", "1"), ("B", "$(A)"), ("A", "2"), ("C", "$(A)")],
            [("B", "1"), ("A", "2"), ("C", "$(A)")],
            id="one that was read in between",
        ),
        pytest.param([("A", "$$x"), ("A", "$(A)y")], [("A", "$$xy")], id="a dollar sign"),
        pytest.param([("A", "$"), ("A", "$(A)$")], [("A", "$$$")], id="a dollar sign at the end"),
        pytest.param(
            [("A", "$(U)"), ("U", "5"), ("B", "$(A)"), ("A", "2")],
            [("U", "5"), ("B", "$$(U)"), ("A", "2")],
            id="what meant nothing where it was",
        ),
        pytest.param([("A", "$(A"), ("A", "$(A)$(")], [("A", "$$(A$(")], id="parentheses that do not close"),
    ],
)
def test_each_name_is_there_once(env: list[tuple[str, str]], want: list[tuple[str, str]]) -> None:
    assert without_repetitions(variables(*env)) == variables(*want)


def test_a_value_from_elsewhere_counts_like_any_other() -> None:
    secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    plain = {"name": "A", "value": "1"}
    assert without_repetitions([plain, secret]) == [secret]
    assert without_repetitions([secret, {"name": "B", "value": "$(A)"}, plain]) == [
        {"name": "B", "value": "$(A)"},
        plain,
    ]


names = st.sampled_from("ABC")
texts = st.lists(st.sampled_from(["x", "$", "$$", "(", ")", "$(A)", "$(B)", "$(C)", "$(D)"]), max_size=5).map("".join)


@given(st.lists(st.tuples(names, texts), max_size=7))
def test_a_container_sees_the_same(env: list[tuple[str, str]]) -> None:
    before = variables(*env)
    after = without_repetitions(before)
    assert seen(after) == seen(before)
    assert len({entry["name"] for entry in after}) == len(after)
    assert before == variables(*env)
