# SPDX-License-Identifier: Apache-2.0
"""Pruning, defaulting and validation without a server around them."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.devcluster.apiserver.schema import structural
from multikueue.devcluster.apiserver.schema.formats import has_format
from multikueue.devcluster.apiserver.schema.validate import pattern_of, validate

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 2},
                "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}


def _kind() -> structural.Structural:
    return structural.read(_SCHEMA, root=True)


def test_what_nobody_described_is_pruned_and_named() -> None:
    """Metadata is known, and what is open is kept."""
    value: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"x": 1, "open": {"y": 2}}, "z": 3}
    gone: list[str] = []
    structural.prune(value, _kind(), gone=gone)
    assert value == {"metadata": {"name": "a"}, "spec": {"open": {"y": 2}}}
    assert sorted(gone) == ["spec.x", "z"]


def test_defaults_fill_what_is_there_to_be_filled() -> None:
    """An absent object is not made for the sake of what is inside of it."""
    value: dict[str, Any] = {"spec": {}}
    structural.default(value, _kind())
    assert value == {"spec": {"size": 2}}
    empty: dict[str, Any] = {}
    structural.default(empty, _kind())
    assert empty == {}


def test_what_did_not_change_is_not_looked_at_again() -> None:
    """An object that an older schema let in can be updated elsewhere."""
    old = {"spec": {"size": 0, "open": {}}}
    assert not validate({"spec": {"size": 0, "open": {"a": 1}}}, _kind(), old=old)
    (cause,) = validate({"spec": {"size": -1}}, _kind(), old=old)
    assert cause.field == "spec.size"


def test_a_transition_rule_is_not_asked_of_what_is_new() -> None:
    """It has nothing to compare with."""
    assert not validate({"spec": {"fixed": "a"}}, _kind())
    assert not validate({"spec": {"fixed": "a"}}, _kind(), old={"spec": {}})
    assert validate({"spec": {"fixed": "b"}}, _kind(), old={"spec": {"fixed": "a"}})


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
        ("duration", "1h30m", "5"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("byte", "aGk=", ""),
        ("hostname", "a.example", "a_b"),
    ],
)
def test_a_format_tells_good_from_bad(format: str, good: str, bad: str) -> None:
    """And formats that nobody knows let everything in."""
    assert has_format(good, format)
    assert not has_format(bad, format)
    assert has_format(bad, "unheard-of")


def test_patterns_are_written_for_go() -> None:
    """Flags after the anchor, and an end that is no newline."""
    assert pattern_of("^(?i)[a-z]+$").search("ABC")
    assert not pattern_of("^[a-z]+$").search("abc\n")
