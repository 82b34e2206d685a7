# SPDX-License-Identifier: Apache-2.0
"""Pruning, defaulting and validation without a server around them."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.apiserver.schema import structural
from devcluster.apiserver.schema.formats import has_format
from devcluster.apiserver.schema.validate import validate

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


def test_unknown_fields_are_pruned_and_named() -> None:
    """Metadata is known, and preserved fields are kept."""
    value: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"x": 1, "open": {"y": 2}}, "z": 3}
    pruned: list[str] = []
    structural.prune(value, _kind(), pruned=pruned)
    assert value == {"metadata": {"name": "a"}, "spec": {"open": {"y": 2}}}
    assert sorted(pruned) == ["spec.x", "z"]


def test_defaults_are_set_in_present_objects() -> None:
    """An absent object is not created for defaults inside of it."""
    value: dict[str, Any] = {"spec": {}}
    structural.default(value, _kind())
    assert value == {"spec": {"size": 2}}
    empty: dict[str, Any] = {}
    structural.default(empty, _kind())
    assert empty == {}


def test_unchanged_parts_are_not_validated_again() -> None:
    """An object that an older schema accepted can be updated elsewhere."""
    old = {"spec": {"size": 0, "open": {}}}
    assert not validate({"spec": {"size": 0, "open": {"a": 1}}}, _kind(), old=old)
    (cause,) = validate({"spec": {"size": -1}}, _kind(), old=old)
    assert cause.field == "spec.size"


def test_a_transition_rule_is_not_evaluated_for_a_new_value() -> None:
    """It has nothing to compare with."""
    assert not validate({"spec": {"fixed": "a"}}, _kind())
    assert not validate({"spec": {"fixed": "a"}}, _kind(), old={"spec": {}})
    assert validate({"spec": {"fixed": "b"}}, _kind(), old={"spec": {"fixed": "a"}})


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
        ("date-time", "0000-02-29T00:00:00Z", "10000-01-01T00:00:00Z"),
        ("date-time", "9999-12-31t23:59:59.1234567890z", "2026-01-02T24:00:00Z"),
        ("date-time", "0001-01-01T00:00:00+99:99", "2026-02-30T00:00:00Z"),
        ("date-time", "1800-01-01T00:00:00Z", "2026-01-02T03:04:60Z"),
        ("duration", "1h30m", "5"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("byte", "aGk=", ""),
        ("hostname", "a.example", "a_b"),
    ],
)
def test_a_format_accepts_good_and_refuses_bad(format: str, good: str, bad: str) -> None:
    """Unknown formats accept everything."""
    assert has_format(good, format)
    assert not has_format(bad, format)
    assert has_format(bad, "unheard-of")
