# SPDX-License-Identifier: Apache-2.0
"""Syntax errors of JSON and YAML, and YAML as Kubernetes reads it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.apiserver.codec.grammar import json_problem, load_yaml


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        ("hello", "invalid character 'h' looking for beginning of value"),
        ('{"a":1} x', "invalid character 'x' after top-level value"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
    ],
)
def test_the_first_syntax_error_is_reported(text: str, problem: str) -> None:
    assert json_problem(text) == problem


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_valid_json_has_no_syntax_error(value: object) -> None:
    assert json_problem(json.dumps(value)) == ""
    assert json_problem(json.dumps(value, ensure_ascii=False, indent=1)) == ""


def test_yaml_has_old_booleans_and_no_dates() -> None:
    text = b"a: y\nb: 2020-01-01\nc: 12:30:45\nd: 010\ne: 1e3\nf: ~\n1: x\ntrue: z\n"
    expected = {"a": True, "b": "2020-01-01", "c": "12:30:45", "d": 8, "e": 1000.0, "f": None, "1": "x", "true": "z"}
    assert load_yaml(text) == expected


def test_duplicate_keys_are_reported_with_their_lines() -> None:
    twice: list[str] = []
    assert load_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\na: 2\n", twice=twice) == {"a": 2, "b": {"c": 2}}
    assert sorted(twice) == ['line 4: key "c" already set in map', 'line 5: key "a" already set in map']


def test_invalid_yaml_is_reported() -> None:
    with pytest.raises(ValueError, match="mapping values are not allowed in this context"):
        load_yaml(b"a: b: c")
