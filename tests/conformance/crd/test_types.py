# SPDX-License-Identifier: Apache-2.0
"""Type checks of rules when a definition is created; each case has many rules."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.crd.installed import DEFINITIONS
from tests.conformance.crd.test_definitions import definition, version
from tests.conformance.harness import Case, Cases, Side

pytestmark = pytest.mark.binaries

CASES = Cases("types")
Schema = dict[str, Any]
_STRING: Final[Schema] = {"type": "string", "maxLength": 20}


def _text(format: str) -> Schema:
    return {"type": "string", "format": format}


def _list(items: Schema, **more: object) -> Schema:
    return {"type": "array", "maxItems": 5, "items": items, **more}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


FIELDS: Final[dict[str, Schema]] = {
    "a": _STRING,
    "n": {"type": "integer"},
    "d": {"type": "number"},
    "b": {"type": "boolean"},
    "l": _list(_STRING),
    "m": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}},
    "o": _object(x=_STRING),
    "t": _text("date-time"),
    "day": _text("date"),
    "span": _text("duration"),
    "raw": {**_text("byte"), "maxLength": 8},
    "either": {"x-kubernetes-int-or-string": True},
    "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "anything": _list({"x-kubernetes-preserve-unknown-fields": True}),
    "maybe": {**_STRING, "nullable": True},
    "items": _list(_object(k=_STRING)),
    "nested": _list(_list({"type": "integer"})),
    "choice": {"type": "string", "enum": ["a", "b"]},
    "x-y": _STRING,
    "namespace": _STRING,
    **dict.fromkeys(("import", "package", "for", "as", "while", "const", "void"), _STRING),
}
_UNKNOWN: Final = r"""
self.q == 1
self.o.y == 'a'
self.o.x.z == 'a'
self.l[0].q == 'a'
self.a.b.c.d
self.kept.z == 1
self.anything[0] == 1
self.metadata.name == 'a'
self.items.all(i, i.z == 1)
self.items.all(i, self.l.all(j, q))
self.?q.orValue('a') == 'a'
self.?o.?q == self.?o.?x
has(self.q)
has(self.o.y)
has(self.a.b)
has(self)
oldSelf.q == 1
true || self.q
foo == 1
foo.bar == 1
foo.bar.baz(1)
foo(q, 1)
self.a.foo()
sets.foo(self.l)
math.abs(1) == 1
cel.bind(x, self.a, x == 1)
has(self, 1)
if == 1
self.l.all(1, true)
self.l.all(i)
self.l.all(i, i == 'a', 1)
self.a ==  'b' && self.n == 'c' && self.q
self.n == self.q && self.z == self.n
self.q.startsWith(1)
self.a == 'ü' && self.q
"""
_MISMATCHED: Final = r"""
self.a == 1
self.n + 'a' == 'b'
self.n + self.d > 1
self.l.all(i, i > 1)
self.l['a'] == 'a'
self.m['a'] == 'b'
self.m[1] == 1
self.a[0] == 'a'
self.a.size(1) == 1
self.a.startsWith(1)
size(self.n) == 1
-self.a == 'b'
self.b ? 1 : 'a'
self.a == 'a' ? self.n : self.d
1 in self.l
'a' in self.n
self.n in ['a']
self.a in {1: 1}
self.t == 'a'
self.day == 'x'
self.raw == 'a'
self.raw == null
self.maybe == null
self.l == null
self.m == null
self.choice == 1
self.items.map(i, i.k) == [1]
self.l.map(i, 1) == self.l
self.m.all(k, self.m[k] == 'a')
self.m.all(k, v, v == 'a')
self.nested.flatten() == ['a']
[1, 'a'] == [1]
{'a': 1, 'b': 'x'} == {'a': 1}
[self.a, self.n] == []
self.n in [1, 2, 'a']
self.n == 1u
self.n == 1.0
int(self.l) == 1
string(self.l) == 'a'
type(self.a) == 'string'
self.a.matches(self.n)
quantity(self.a) == 1
quantity(self.a).isGreaterThan(1)
semver(self.a).major() == '1'
format.named('uuid') == 'a'
self.m == {'a': 'b'}
self.l + [1] == self.l
optional.of(1) == 1
self.?a.orValue(1) == 'a'
self.l[?0].orValue(1) == 1
sets.contains(self.l, [1])
ip(self.a).family() == '4'
cidr(self.a).prefixLength() == 'x'
self.a < self.n
self.l < self.l
self.t.getFullYear() == '1'
self.t - self.t == 1
self.t + self.t == self.t
self.span + self.span == self.t
self.n % 2.0 == 1
self.d % 2.0 == 1.0
self.a * 2 == 'aa'
self.a.matches('[')
timestamp('x') == self.t
duration('x') == self.span
"""
_NO_QUESTION: Final = r"""
self.a
self
1
[true]
dyn(true)
self.either
self.items.map(i, i.k == 'a')
self.b && self.n
self.b || 1
!self.n
self.n ? true : false
self.l.all(i, i)
self.l.exists(i, 1)
self.items.exists(i, i.k)
self.l.exists_one(i, i)
self.l.map(i, i, i) == self.l
self.a.all(i, i)
self.n.all(i, true)
"""
_UNREADABLE: Final = r"""
self..a == 1
self.
self.a ==
self.a = 'b'
(self.a == 'a'
self.a == 'a')
self.a == 'a' &&
self.a == 'a' self
self.a == 'a' self b
self.a == 'a' &&&& true
self.a ## 'a'
self.a == 'a
[1,2
self.l[0 == 'a'
{'a' 1} == {}
{'a'
{'a': 1
self.a ? true
size(self.a
self.true == 'a'
"""
_NO_TEXT: Final = r"""
1
self.q
self.a + 1
self.either
self.a
null
'a' +
"""
_RIGHT: Final = r"""
self.n > 1.5
self.m.a == 1
'a' in self.m
self.t > timestamp('2020-01-01T00:00:00Z')
self.span == duration('1s')
self.raw == b'a'
self.either == 1
self.either == 'a'
type(self.either) == int
self.t == null
self.o == null
self.x__dash__y == 'a' && self.__namespace__ == 'b'
self.namespace == 'a' || !has(self.namespace)
has(self.__namespace__) && size(self.namespace) > 1
self.import == 'a' && self.package == 'b' && self.for == 'c' && self.as == 'd'
self.while == 'a' && self.const == 'b' && self.void == 'c' && self.__void__ == 'd'
dyn(self.a) == 1
self.l == [] && self.m == {}
self.l + ['a'] == self.l
self.l.all(self, self == 'a')
oldSelf == self
self.nested[0].sum() == 1
"""


def _judged(name: str, text: str, field: str = "rule") -> None:
    """A case with all the rules in one definition, which is never stored."""
    rules = [{"rule": "true", field: line} for line in text.strip().split("\n")]
    rules += [{"rule": "true", "message": "and this is right"}]
    schema = _object(spec={**_object(**FIELDS), "x-kubernetes-validations": rules})

    async def play(side: Side) -> None:
        await side.post(f"{DEFINITIONS}?dryRun=All", definition(version(schema=schema)))

    CASES.add(name, play)


_judged("rules with unknown names are refused", _UNKNOWN)
_judged("rules of types that do not go together are refused", _MISMATCHED)
_judged("rules that are no questions are refused", _NO_QUESTION)
_judged("rules that cannot be read are refused", _UNREADABLE)
_judged("rules that are right are let in", _RIGHT)
_judged("messages that are no text are refused", _NO_TEXT, "messageExpression")

_OLD: Final = {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
_LATE: Final = {"x-kubernetes-validations": [{"rule": "self == 'a'", "optionalOldSelf": True}]}
_PLACES: Final[dict[str, Schema]] = {
    "of a list": _list({**_STRING, **_OLD}),
    "of a set": _list({**_STRING, **_OLD}, **{"x-kubernetes-list-type": "set"}),
    "within a list": _list(_object(a={**_STRING, **_OLD})),
    "of a map": {"type": "object", "maxProperties": 3, "additionalProperties": {**_STRING, **_OLD}},
    "that does not look": {**_STRING, **_LATE},
    "of no type": {"x-kubernetes-preserve-unknown-fields": True, **_OLD},
}


@CASES.case("rules with oldSelf are refused where values cannot be correlated")
async def _(side: Side) -> None:
    schema = _object(spec=_object(**{name.replace(" ", "-"): body for name, body in _PLACES.items()}))
    await side.post(f"{DEFINITIONS}?dryRun=All", definition(version(schema=schema)))


@pytest.mark.parametrize("case", CASES.params())
async def test_rules_are_judged_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """By their types, before there is an object."""
    await judge(case)
