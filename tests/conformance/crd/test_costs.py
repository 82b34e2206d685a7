# SPDX-License-Identifier: Apache-2.0
"""Rules that could cost too much are refused with their definition, to the very factor; each case has many rules."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.crd.installed import DEFINITIONS
from tests.conformance.crd.test_definitions import definition, version
from tests.conformance.harness import Case, Cases, Side

pytestmark = pytest.mark.binaries

CASES = Cases("costs")
Schema = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _list(items: Schema, most: int | None = None) -> Schema:
    return {"type": "array", "items": items, **({} if most is None else {"maxItems": most})}


def _map(values: Schema, most: int | None = None) -> Schema:
    found: Schema = {"type": "object", "additionalProperties": values}
    return found if most is None else {**found, "maxProperties": most}


def _text(most: int) -> Schema:
    return {"type": "string", "maxLength": most}


def _ruled(schema: Schema, *rules: str) -> Schema:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, "message": "no"} for rule in rules]}


_INTEGER: Final[Schema] = {"type": "integer"}
FIELDS: Final[dict[str, Schema]] = {
    "short": _text(10),
    "long": _text(1000),
    "endless": {"type": "string"},
    "n": _INTEGER,
    "b": {"type": "boolean"},
    "t": {"type": "string", "format": "date-time"},
    "span": {"type": "string", "format": "duration"},
    "raw": {"type": "string", "format": "byte", "maxLength": 100},
    "either": {"x-kubernetes-int-or-string": True},
    "choice": {"type": "string", "enum": ["abc", "abcdefghijklmnopqrstuvwxyz"]},
    "l": _list(_text(100), 50),
    "numbers": _list(_INTEGER, 30),
    "m": _map(_text(25), 40),
    "o": _object(x=_text(10)),
    "items": _list(_object(k=_text(10), v=_list(_text(10), 5)), 20),
    "nested": _list(_list(_INTEGER, 11), 7),
}
_MANY: Final = r"""
self.n == self.n && self.b
self.short == self.long && self.t == self.t && self.span == self.span
self.long == self.long
self.choice == self.long && self.raw == self.raw
self.either == 1 || self.either == 'a'
self.l == ['a', 'b', 'c'] && self.m == self.m
has(self.short) && has(self.o.x) || self.b
self.b ? self.short == 'a' : self.long == self.long
self.long.startsWith(self.short) || self.long.endsWith('abc') || self.long.contains('abc')
self.long.matches('[a-z]+[a-z]+[a-z]+')
'a' in self.l && 'a' in self.m && self.n in [1, 2, 3]
self.l.all(i, i == 'a')
self.l.exists(i, i.startsWith('abc'))
self.l.exists_one(i, i == 'a')
self.l.map(i, i).all(j, j == 'a')
self.l.filter(i, i == 'a').size() == 1
self.l.filter(i, true)[0] == self.long
self.l.all(i, self.l.exists_one(j, i == j))
self.m.all(k, self.m[k] == 'a') && self.m.all(k, k == 'a')
self.l.all(i, self.m.exists(k, k == i && self.m[k] == i))
self.items.all(i, i.v.all(j, j == 'a'))
self.nested.all(i, i.all(j, j == 1)) && self.nested[0].all(j, j == 1)
self.short + self.short == self.long && (self.l + self.l).all(i, i == 'a')
quantity(self.long).compareTo(quantity(self.short)) == 1
cidr(self.long).containsIP(ip(self.short)) && isIP(self.long)
self.long.split(',').all(i, i == 'a')
self.long.lowerAscii() == self.long && self.long.replace('a', 'b') == 'a'
self.long.findAll('[a-z]+').size() == 1
self.l.join(',') == 'a' && self.l.isSorted() && self.numbers.sum() == self.l.indexOf('a')
sets.contains(self.l, ['a']) && sets.equivalent(self.l, ['a', 'b'])
self.?short.orValue('a') == 'b' && self.l[?0].orValue('a') == self.long
{'a': 1}['a'] == [1, 2][0]
self.l.map(i, i.lowerAscii()).all(j, j == self.long)
self.l == oldSelf.l && string(self.n) == 'a' && type(self.short) == string
"""


async def _post(side: Side, **properties: Schema) -> None:
    schema = _object(spec=_object(**properties))
    await side.post(f"{DEFINITIONS}?dryRun=All", definition(version(schema=schema)))


@CASES.case("every rule costs what it costs on a real server")
async def _(side: Side) -> None:
    """So many of each that all are too expensive; lists of different lengths make small differences visible."""
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]}
    found = {}
    for number, rule in enumerate(_MANY.strip().split("\n")):
        item = {**_object(**FIELDS, key=_text(5)), "required": ["key"]}
        for size, most in (("some", 99_990), ("more", 900_000), ("most", 9_000_000)):
            found[f"{size}{number}"] = {**_list(_ruled(item, rule), most), **keyed}
    await _post(side, **found)


_LONG: Final = _object(a=_text(1000))
_DEAR: Final = "self.a.contains(self.a)"


@CASES.case("nested loops over lists without limits are refused")
async def _(side: Side) -> None:
    rule = "self.all(x, self.exists_one(y, x == y))"
    await _post(
        side,
        endless=_ruled(_list({"type": "string"}), rule),
        half=_ruled(_list(_text(10)), rule),
        short=_ruled(_list(_text(10), 10), rule),
    )


@CASES.case("nested loops over lists with limits are let in")
async def _(side: Side) -> None:
    await _post(side, short=_ruled(_list(_text(10), 10), "self.all(x, self.exists_one(y, x == y))"))


@CASES.case("what has no limit counts as often as a request can hold it")
async def _(side: Side) -> None:
    item = {**_object(abcd=_INTEGER, ef={**_INTEGER, "default": 3}), "required": ["abcd", "ef"]}
    often = " || ".join(["self > 1"] * 21)
    await _post(
        side,
        objects=_list(_ruled(item, " || ".join(["self.ef > 1"] * 21))),
        values=_map(_ruled(_LONG, "self.a.contains('abc')")),
        within=_list(_list(_ruled(_LONG, "self.a.contains('abc')")), 10),
        around=_list(_list(_ruled(_LONG, "self.a.contains('abc')"), 10)),
        numbers=_list(_ruled(_INTEGER, often)),
        truths=_list(_ruled({"type": "boolean"}, "self" + " || self" * 60)),
        texts=_list(_ruled({"type": "string"}, " || ".join(["self == 'a'"] * 21))),
        spans=_list(_ruled({"type": "string", "format": "duration"}, " || ".join(["self != null"] * 21))),
        days=_list(_ruled({"type": "string", "format": "date"}, " || ".join(["self != null"] * 42))),
        lists=_list(_ruled(_list(_INTEGER), " || ".join(["self.size() > 1"] * 20))),
    )


@CASES.case("rules that are too dear together name the dearest")
async def _(side: Side) -> None:
    await _post(side, **{f"x{n}": _list(_ruled(_LONG, _DEAR), 60 - n) for n in range(12)})


@CASES.case("small rules are not named beside a large one")
async def _(side: Side) -> None:
    await _post(
        side,
        a=_list(_ruled(_LONG, _DEAR), 6000),
        b=_list(_ruled(_LONG, _DEAR), 6),
        c=_list(_ruled(_LONG, _DEAR), 7),
        d=_list(_ruled(_LONG, _DEAR), 63),
    )


@pytest.mark.parametrize("case", CASES.params())
async def test_rules_cost_what_they_cost_on_a_real_server(judge: Judge, case: Case) -> None:
    """Refused with the same text."""
    await judge(case)
