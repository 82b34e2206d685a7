# SPDX-License-Identifier: Apache-2.0
"""Rules of schemas: their variables, when they are evaluated, and the errors of violated and failed ones."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.crd.installed import install
from tests.conformance.definitions import definition
from tests.conformance.harness import Both, Case, Cases, Side

pytestmark = pytest.mark.binaries

CASES = Cases("expressions")
GROUP: Final = "rules.conformance.test"
RULED: Final = f"/apis/{GROUP}/v1/namespaces/{{ns}}/ruleds"

Schema = dict[str, Any]


def _rule(text: str, **more: object) -> dict[str, Any]:
    return {"rule": text, **more}


def _string(*rules: dict[str, Any]) -> Schema:
    return {"type": "string", "maxLength": 40, "x-kubernetes-validations": [*rules]}


def _number(*rules: dict[str, Any]) -> Schema:
    return {"type": "integer", "x-kubernetes-validations": [*rules]}


# One field for each expression, which decides whether the field's text is valid.
_TEXTS: Final[dict[str, str]] = {
    "startsWith": "self.startsWith('ab')",
    "endsWith": "self.endsWith('yz')",
    "contains": "self.contains('mm')",
    "matches": "self.matches('^[a-z]+[0-9]?$')",
    "size": "self.size() == 3 && size(self) == 3",
    "charAt": "self.charAt(0) == 'x'",
    "indexOf": "self.indexOf('o') == 1 && self.lastIndexOf('o') == 2",
    "lowerAscii": "self.lowerAscii() == 'abc' && self.upperAscii() == 'ABC'",
    "replace": "self.replace('a', 'b') == 'bbb'",
    "split": "self.split(',').size() == 2 && self.split(',')[1] == 'b'",
    "substring": "self.substring(1) == 'bc' && self.substring(0, 1) == 'a'",
    "trim": "self.trim() == 'a'",
    "find": "self.find('[0-9]+') == '42'",
    "findAll": "self.findAll('[0-9]').size() == 2",
    "toInt": "int(self) > 3",
    "toDouble": "double(self) > 3.5",
    "duration": "duration(self) > duration('1m')",
    "timestamp": "timestamp(self) < timestamp('2026-01-01T00:00:00Z')",
    "year": "timestamp(self).getFullYear() == 2026",
    "quantity": "quantity(self).isGreaterThan(quantity('1Gi'))",
    "quantityAdd": "quantity(self).add(quantity('1')).compareTo(quantity('3')) == 0",
    "isQuantity": "isQuantity(self)",
    "url": "isURL(self) && url(self).getHostname() == 'example.com'",
    "in": "self in ['a', 'b']",
    "less": "self < 'm'",
    "plus": "self + 'x' == 'abx'",
    "ternary": "self == 'a' ? true : self.size() == 2",
    "or": "self == 'a' || int(self) == 7",
    "and": "int(self) == 7 && self != '8'",
    "sets": "sets.contains(['a', 'b'], [self]) && sets.intersects([self], ['b']) && sets.equivalent([self], ['b'])",
    "isIP": "isIP(self)",
    "ip": "isIP(self) && ip(self).family() == 4 && !ip(self).isLoopback() && ip.isCanonical(self)",
    "isCIDR": "isCIDR(self)",
    "cidr": "isCIDR(self) && cidr(self).containsIP('10.1.2.3') && cidr(self).prefixLength() == 8",
    "cidrs": "isCIDR(self) && cidr('10.0.0.0/8').containsCIDR(self) && cidr(self).masked() == cidr('10.1.0.0/16')",
}
_GIVEN: Final[dict[str, list[str]]] = {
    "startsWith": ["abc", "xab"],
    "endsWith": ["xyz", "yzx"],
    "contains": ["ammo", "amo"],
    "matches": ["abc1", "1abc", "Abc"],
    "size": ["abc", "äöü", "ab"],
    "charAt": ["xa", "ax", ""],
    "indexOf": ["foo", "off"],
    "lowerAscii": ["aBc", "abd"],
    "replace": ["aba", "abc"],
    "split": ["a,b", "a,c", "ab"],
    "substring": ["abc", "xyz", ""],
    "trim": [" a ", " b"],
    "find": ["a42b", "ab"],
    "findAll": ["4a2", "4"],
    "toInt": ["4", "3", "x"],
    "toDouble": ["4.5", "3", "x"],
    "duration": ["2m", "30s", "x"],
    "timestamp": ["2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "x"],
    "year": ["2026-05-05T00:00:00Z", "2025-01-01T00:00:00Z"],
    "quantity": ["2Gi", "1Mi", "x"],
    "quantityAdd": ["2", "3"],
    "isQuantity": ["1k", "1kk"],
    "url": ["https://example.com:80/x", "https://example.org", "x"],
    "in": ["a", "c"],
    "less": ["a", "z"],
    "plus": ["ab", "x"],
    "ternary": ["a", "bc", "b"],
    "or": ["a", "7", "8", "x"],
    "and": ["7", "8", "x"],
    "sets": ["b", "a", "c"],
    "isIP": ["10.0.0.1", "::1", "10.0.0.256", "10.0.0.01", "fe80::1%eth0", "::ffff:1.2.3.4", "x"],
    "ip": ["10.0.0.1", "127.0.0.1", "::1"],
    "isCIDR": ["10.0.0.0/8", "10.0.0.1/8", "::/0", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "x/8"],
    "cidr": ["10.0.0.0/8", "11.0.0.0/8", "10.0.0.0/9"],
    "cidrs": ["10.1.2.3/16", "10.2.0.0/16", "0.0.0.0/0"],
}

_ITEMS: Final[Schema] = {
    "type": "array",
    "maxItems": 10,
    "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "n": {"type": "integer"}}},
}
_LISTS: Final[dict[str, str]] = {
    "all": "self.all(x, x.n > 0)",
    "exists": "self.exists(x, x.name == 'a')",
    "existsOne": "self.exists_one(x, x.name == 'a')",
    "filter": "self.filter(x, x.n > 1).size() == 1",
    "map": "self.map(x, x.n).sum() == 3",
    "sorted": "self.map(x, x.n).isSorted()",
    "maxMin": "self.map(x, x.n).max() == 3 && self.map(x, x.n).min() == 1",
    "nested": "self.all(x, self.exists_one(y, y.name == x.name))",
    "has": "self.all(x, has(x.name))",
    "index": "self[0].n == 1",
}
_ROWS: Final[list[list[dict[str, Any]]]] = [
    [{"name": "a", "n": 1}, {"name": "b", "n": 2}],
    [{"name": "b", "n": 3}, {"name": "b", "n": 1}],
    [{"n": -1}],
    [],
]
_MESSAGES: Final[dict[str, Schema]] = {
    "plain": _string(_rule("self == 'a'")),
    "message": _string(_rule("self == 'a'", message="must be a")),
    "expression": _string(_rule("self == 'a'", messageExpression="'must be a, not ' + self")),
    "both": _string(_rule("self == 'a'", message="must be a", messageExpression="'not ' + self")),
    "failing": _string(_rule("self == 'a'", message="must be a", messageExpression="self.substring(9)")),
    "empty": _string(_rule("self == 'a'", message="must be a", messageExpression="''")),
    "required": _string(_rule("self == 'a'", reason="FieldValueRequired")),
    "forbidden": _string(_rule("self == 'a'", reason="FieldValueForbidden", message="no")),
    "duplicate": _string(_rule("self == 'a'", reason="FieldValueDuplicate")),
    "invalid": _number(_rule("self == 1", reason="FieldValueInvalid")),
    "several": _string(_rule("self == 'a'", message="one"), _rule("self.size() == 1", message="two")),
}
_PLACES: Final[Schema] = {
    "type": "object",
    "properties": {
        "left": {"type": "integer"},
        "right": {"type": "integer"},
        "a.b": {"type": "integer"},
        "namespace": {"type": "string", "maxLength": 9},
    },
    "x-kubernetes-validations": [
        _rule("!has(self.namespace) || self.namespace == self.__namespace__ && self.namespace != 'c'", message="not c"),
        _rule("!has(self.left) || self.left < 5", fieldPath=".left", message="too far"),
        _rule("!has(self.right) || self.right < 5", fieldPath=".right", reason="FieldValueForbidden", message="no"),
        _rule("!has(self.a__dot__b) || self.a__dot__b < 5", fieldPath="['a.b']", message="dotted"),
    ],
}
_CHANGES: Final[dict[str, Schema]] = {
    "fixed": _string(_rule("self == oldSelf", message="is fixed")),
    "grows": _number(_rule("self >= oldSelf", message="may not shrink")),
    "either": _string(_rule("oldSelf.hasValue() || self == 'a'", optionalOldSelf=True, message="o")),
    "orValue": _number(_rule("self >= oldSelf.orValue(3)", optionalOldSelf=True, message="less")),
    "limited": _string(_rule("self.size() < 3", message="too long")),
    "chosen": {"type": "string", "enum": ["a", "b"]},
    "keyed": {
        "type": "array",
        "maxItems": 5,
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 9}, "n": {"type": "integer"}},
            "required": ["name"],
            "x-kubernetes-validations": [_rule("self.n >= oldSelf.n", message="item may not shrink")],
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "mapped": {
        "type": "object",
        "maxProperties": 5,
        "additionalProperties": {"type": "integer", "x-kubernetes-validations": [_rule("self >= oldSelf")]},
    },
}
DEFINITION: Final = definition(
    "Ruled",
    {
        "type": "object",
        "properties": {
            "texts": {
                "type": "object",
                "properties": {name: _string(_rule(text)) for name, text in _TEXTS.items()},
            },
            "lists": {
                "type": "object",
                "properties": {
                    name: {**_ITEMS, "x-kubernetes-validations": [_rule(text)]} for name, text in _LISTS.items()
                },
            },
            "said": {"type": "object", "properties": _MESSAGES},
            "places": _PLACES,
            "changes": {"type": "object", "properties": _CHANGES},
        },
        "x-kubernetes-validations": [
            _rule("!self.metadata.name.startsWith('bad')", message="a bad name"),
            _rule("self.apiVersion != '' && self.kind == 'Ruled'"),
        ],
    },
    group=GROUP,
)


def ruled(name: str = "r", **parts: object) -> dict[str, Any]:
    """An object of that kind."""
    return {"kind": "Ruled", "apiVersion": f"{GROUP}/v1", "metadata": {"name": name}, **parts}


def _add(name: str, **parts: Any) -> None:
    async def play(side: Side) -> None:
        await side.post(RULED, ruled(**parts))

    CASES.add(name, play)


for _name, _values in _GIVEN.items():
    for _value in _values:
        _add(f"{_name} of {_value!r}", texts={_name: _value})
for _name in _LISTS:
    for _index, _row in enumerate(_ROWS):
        _add(f"{_name} of list {_index}", lists={_name: _row})
for _name in _MESSAGES:
    _add(f"a violated rule has {_name}", said={_name: 2 if _name == "invalid" else "bcd"})
_add("rules name other places", places={"left": 9, "right": 9, "a.b": 9})
_add("satisfied rules cause nothing", said={"message": "a"}, places={"left": 1})
_add("rules of several fields are broken", said={"plain": "b", "message": "c"}, places={"left": 9})
_add("a rule reads a field with a reserved name", places={"namespace": "c"})
_add("a rule about a field with a reserved name holds", places={"namespace": "a"})
_add("rules are not evaluated for values of another type", said={"plain": "b", "message": 1})
_add("rules are not evaluated beside an invalid enum", said={"plain": "b"}, changes={"chosen": "c"})
_add("rules are evaluated for values beyond limits", said={"plain": "b"}, texts={"in": "x" * 50})


@CASES.case("rules see the name")
async def _(side: Side) -> None:
    await side.post(RULED, ruled("bad-one"))
    await side.post(RULED, {**ruled(), "metadata": {"generateName": "bad-"}})


_STEPS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "a fixed text": ({"fixed": "a"}, {"fixed": "a"}, {"fixed": "b"}, {"fixed": None}, {"fixed": "c"}),
    "a number that grows": ({"grows": 1}, {"grows": 2}, {"grows": 1}),
    "an optional past": ({"either": "a"}, {"either": "ab"}, {"either": "b"}),
    "an optional past that is not there": ({"either": "b"},),
    "a value instead of a past": ({"orValue": 3}, {"orValue": 2}),
    "a value instead of no past": ({"orValue": 2},),
    "items by their keys": (
        {"keyed": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]},
        {"keyed": [{"name": "b", "n": 2}, {"name": "a", "n": 2}]},
        {"keyed": [{"name": "b", "n": 1}]},
        {"keyed": [{"name": "c", "n": 0}]},
    ),
    "values by their keys": ({"mapped": {"a": 1}}, {"mapped": {"a": 2, "b": 0}}, {"mapped": {"a": 1}}),
}
for _name, _steps in _STEPS.items():

    async def _changing(side: Side, steps: tuple[dict[str, Any], ...] = _steps) -> None:
        await side.post(RULED, ruled(changes=steps[0]))
        for step in steps[1:]:
            await side.patch("merge", f"{RULED}/r", {"changes": step})

    CASES.add(f"changes of {_name}", _changing)


@pytest.fixture(scope="package")
async def ruleds(both: Both) -> None:
    """The kind with all the rules."""
    await install(both, DEFINITION)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_rule_is_evaluated_as_by_a_real_server(judge: Judge, ruleds: None, case: Case) -> None:
    """Satisfied, violated, or impossible to evaluate."""
    await judge(case)
