# SPDX-License-Identifier: Apache-2.0
"""Values that a schema accepts, changes or refuses, and the errors."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.crd.things import THINGS, thing
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("values")
_OBJECT: Final = {"a": 1}
_VALUES: Final[dict[str, list[Any]]] = {
    "string": ["", "x", 1, 1.5, True, None, [], _OBJECT],
    "integer": [0, -1, 1.0, 1.5, 2**63 - 1, 2**63, "1", True, None],
    "int32": [2**31 - 1, 2**31, -(2**31) - 1],
    "int64": [2**63 - 1, -(2**63)],
    "number": [1, 1.5, 1e300, "1", None],
    "boolean": [True, False, "true", 0, None],
    "short": ["abc", "äöü", "abcd", "äöüß"],
    "long": ["abc", "ab", ""],
    "pattern": ["abc", "ABC", "abc\n", ""],
    "enum": ["a", "c", "", 1],
    "numberEnum": [1, 3, "1"],
    "low": [2, 1, -5],
    "high": [4, 5],
    "above": [3, 2],
    "below": [4.4, 4.5, 5],
    "even": [2, 3, 0],
    "few": [[], ["a", "b"], ["a", "b", "c"], [1], "a", None, [None], {}],
    "many": [[1, 2], [1], [], [1, "2", "3"]],
    "unique": [["a", "b"], ["a", "a"], ["a", "b", "a", "b"]],
    "ports": [
        [{"name": "a"}, {"name": "b", "number": 3}],
        [{"name": "a"}, {"name": "a", "kind": "udp"}],
        [{"number": 1}],
        [{"name": "a", "number": 10}, {"name": "b", "number": 0}],
        [{"name": None}],
        ["a"],
        [{"name": "a", "what": 1}],
    ],
    "twoKeys": [
        [{"a": "x", "b": 1}, {"a": "x", "b": 2}],
        [{"a": "x", "b": 1}, {"a": "x", "b": 1}],
        [{"a": "x"}],
    ],
    "small": [{"a": "b"}, {"a": "b", "c": "d"}, {"a": 1}, {"a": None}],
    "big": [{"a": 1, "b": 2}, {"a": 1}, {}, {"a": "1", "b": 2}],
    "mapOfLists": [{"a": [1]}, {"a": ["1"]}, {"a.b": [1, "x"]}, {"a": 1}],
    "either": [1, "1", "x", 1.5, True, None, []],
    "eitherLimited": [1, "1", "50%", "x", True],
    "nullable": [None, "x", 1],
    "nullableObject": [None, {"a": "x"}, {"a": None}, {"b": 1}],
    "needs": [{"a": "1", "b": "2"}, {"a": "1"}, {}, {"a": None, "b": "x"}],
    "anything": [1, "x", None, [1, {"a": None}], {"b": {"c": [True]}}],
    "open": [{"unknown": {"x": 1}}, {"known": {"a": "x", "b": "gone"}}, {"unknown": None}],
    "template": [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"x": 1}},
        {"apiVersion": "v1", "metadata": {}},
        {"kind": "Pod"},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "Not A Name"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"unknown": "x", "name": "x"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}},
        {"apiVersion": "a/b/c", "kind": "Pod"},
        {"apiVersion": 1, "kind": "Pod"},
        {"apiVersion": "v1", "kind": "Pod", "metadata": "x"},
    ],
    "closedTemplate": [
        {"apiVersion": "v1", "kind": "Pod", "spec": {"a": "x", "b": "gone"}, "what": "gone"},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["a.b/c"], "uid": "u"}},
    ],
    "oneOf": [{"a": "x"}, {}, {"a": "x", "b": "y"}],
    "anyOf": [{"a": "x", "b": "y"}, {}],
    "allOf": [{"a": 3}, {"a": 1}, {"a": 5}],
    "not": [{"b": "x"}, {"a": "x"}],
    "time": ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123+01:00", "2026-01-02", "now", "2026-13-02T03:04:05Z"],
    "date": ["2026-01-02", "2026-1-2", "2026-02-30"],
    "duration": ["1h", "1h30m5s", "1.5h", "1 day", "5", "", "-3s"],
    "uuid": ["01234567-89ab-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdef", "x"],
    "uri": ["https://example.com/x?y#z", "example", "/path", "://"],
    "email": ["a@b.example", "a@b", "ab", "A <a@b.c>"],
    "hostname": ["a.example", "-a", "a_b", "a" * 64],
    "ipv4": ["10.0.0.1", "10.0.0.256", "::1"],
    "ipv6": ["::1", "10.0.0.1", "x"],
    "cidr": ["10.0.0.0/8", "10.0.0.1/8", "10.0.0.0", "::/0", "10.0.0.0/33"],
    "bytes": ["aGVsbG8=", "aGVsbG8", "***", ""],
    "password": ["x", ""],
    "unheardOf": ["x"],
    "defaults": [
        {},
        {"text": None},
        {"number": None, "list": None, "nothing": None},
        {"inner": {"b": "x"}},
        {"inner": None},
        {"lazy": {}},
        {"lazy": None},
        {"text": "own", "list": []},
    ],
    "defaultMap": [{"k": {}}, {"k": {"a": "y"}, "l": {"b": "z"}}, {"k": None}],
}


def _add(name: str, value: Any) -> None:
    async def play(side: Side) -> None:
        await side.post(THINGS, thing({name: value}))
        await side.get(f"{THINGS}/t")

    CASES.add(f"{name} is {value!r}"[:90], play)


for _name, _values in _VALUES.items():
    for _value in _values:
        _add(_name, _value)

_SEVERAL: Final[dict[str, Any]] = {
    "several fields are wrong at once": thing({"string": 1, "low": 0, "enum": "z", "needs": {}, "few": ["a"] * 3}),
    "the spec is missing": {"kind": "Thing", "apiVersion": "things.conformance.test/v1", "metadata": {"name": "t"}},
    "the spec is null": thing(None),
    "the spec is a string": thing("x"),
    "the spec is a list": thing([]),
    "fields outside of the spec are unknown": thing({}, data={"a": 1}, more=1),
    "the name is missing": {**thing({}), "metadata": {}},
    "the name is no name": {**thing({}), "metadata": {"name": "No Name"}},
    "the labels are no labels": {**thing({}), "metadata": {"name": "t", "labels": {"a b": "c d"}}},
    "the name and the spec are wrong": {**thing({"low": 1}), "metadata": {"name": "No Name"}},
    "a field of the metadata is unknown": {**thing({}), "metadata": {"name": "t", "what": 1}},
    "a label is a number": {**thing({}), "metadata": {"name": "t", "labels": {"a": 1}}},
    "the status is sent along": thing({}, status={"phase": "x", "count": 0}),
}
for _name, _value in _SEVERAL.items():
    for _mode in ("", "?fieldValidation=Strict", "?fieldValidation=Ignore"):
        CASES.exchanges(f"{_name} {_mode[17:]}".strip(), Exchange("POST", f"{THINGS}{_mode}", _value))

_UNKNOWN: Final[dict[str, Any]] = {
    "a field": {"what": 1},
    "several fields": {"z": 1, "a": 2, "needs": {"a": "1", "b": "2", "c": "3"}},
    "a field of an item": {"ports": [{"name": "a"}, {"name": "b", "what": {"x": 1}}]},
    "a field of a value": {"defaultMap": {"k": {"what": 1}}},
    "a field of an embedded object": {
        "closedTemplate": {"apiVersion": "v1", "kind": "Pod", "what": 1, "spec": {"x": 1}}
    },
    "a field beside an open one": {"open": {"known": {"x": 1}, "y": 2}},
}
for _name, _value in _UNKNOWN.items():
    for _mode in ("Warn", "Strict", "Ignore"):
        CASES.exchanges(
            f"{_name} is unknown, {_mode}", Exchange("POST", f"{THINGS}?fieldValidation={_mode}", thing(_value))
        )


@CASES.case("an update is validated")
async def _(side: Side) -> None:
    await side.post(THINGS, thing({"low": 2}))
    await side.patch("merge", f"{THINGS}/t", {"spec": {"low": 1}})
    await side.patch("merge", f"{THINGS}/t", {"spec": {"low": None, "what": 1}})
    await side.patch("json", f"{THINGS}/t", [{"op": "add", "path": "/spec/enum", "value": "z"}])
    await side.patch("apply", f"{THINGS}/t?fieldManager=m", thing({"enum": "z"}))


for _where, _patch in {
    "a field": {"spec": {"string": 1}},
    "a field to null": {"spec": {"string": None}},
    "a limit": {"spec": {"high": 9}},
    "a field of an item": {"spec": {"ports": [{"name": "a", "number": "x"}]}},
    "a limit of an item": {"spec": {"ports": [{"name": "a", "number": 0}, {"name": "b", "number": 99}]}},
    "what is required of an item": {"spec": {"ports": [{"number": 3}]}},
    "a value": {"spec": {"mapOfLists": {"a": ["x"]}}},
    "what is required": {"spec": {"needs": {"a": None}}},
    "how many there are": {"spec": {"few": ["a", "b", "c"], "many": []}},
    "a format": {"spec": {"time": "now", "uuid": "x"}},
    "several fields": {"spec": {"string": 1, "enum": "z", "pattern": "A", "twoKeys": [{"a": "x"}]}},
    "the whole spec": {"spec": None},
    "the type of the spec": {"spec": []},
}.items():

    async def _change(side: Side, patch: Any = _patch) -> None:
        known = {"ports": [{"name": "a"}], "needs": {"a": "1", "b": "2"}, "many": [1, 2], "string": "x", "high": 1}
        await side.post(THINGS, thing(known))
        await side.patch("merge", f"{THINGS}/t", patch)

    CASES.add(f"an update breaks {_where}", _change)


@CASES.case("the status is validated by itself")
async def _(side: Side) -> None:
    await side.post(THINGS, thing({}))
    await side.patch("merge", f"{THINGS}/t/status", {"status": {"phase": "x", "what": 1}})
    await side.patch("merge", f"{THINGS}/t/status", {"status": {"count": "x"}})
    await side.patch("merge", f"{THINGS}/t/status", {"spec": {"low": 0}, "status": {"count": 3}})
    await side.patch("merge", f"{THINGS}/t/status", {"status": {"count": 0, "inner": {"a": 1}}})
    await side.patch("merge", f"{THINGS}/t/status", {"status": "x"})
    await side.get(f"{THINGS}/t/status")


@pytest.mark.parametrize("case", CASES.params())
async def test_a_value_is_treated_as_a_real_server_treats_it(judge: Judge, things: None, case: Case) -> None:
    """Let in, defaulted, pruned or refused."""
    await judge(case)
