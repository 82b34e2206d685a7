# SPDX-License-Identifier: Apache-2.0
"""Every function that rules may call, evaluated in one object: true, false, failures, and their messages."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.crd.installed import install
from tests.conformance.definitions import definition
from tests.conformance.harness import Both, Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("functions")
GROUP: Final = "functions.conformance.test"
_QUESTIONS: Final = r"""
semver('1.2.3') == semver('1.2.3')
isSemver('v1.2.3')
isSemver('v1.2', true)
isSemver('1.2')
isSemver('01.2.3')
isSemver('01.2.3', true)
isSemver('1.2.3-rc.1+b')
semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))
semver('1.2.3-rc.1').compareTo(semver('1.2.3-rc.2')) == -1
semver('1.2.3-rc.10').isGreaterThan(semver('1.2.3-rc.2'))
semver('1.2.3+a').compareTo(semver('1.2.3+b')) == 0
semver('1.2.3+a') == semver('1.2.3+b')
semver('v1.2', true).patch() == 0
semver('v1', true).minor() == 0
semver('x').major() == 1
isSemver('1.2.3.4', true)
isSemver('', true)
format.named('uuid').hasValue()
format.named('nope').hasValue()
[3,1,2].sort() == [1,2,3]
['b','a'].sortBy(i, i) == ['a','b']
[3,1].sortBy(i, -i) == [3,1]
[1,2,1,3].distinct() == [1,2,3]
[1,2,3].slice(0,2) == [1,2]
[1,2,3].slice(0,9) == []
[[1],[2,3]].flatten() == [1,2,3]
lists.range(3) == [0,1,2]
[1,2].first().value() == 1
[1,2].last().value() == 2
[1,2].reverse() == [2,1]
strings.quote('a"b\n') == '"a\\"b\\n"'
'%s %d %.2f %x'.format(['a', 1, 1.5, 255]) == 'a 1 1.50 ff'
'%s'.format([1.5]) == '1.5'
'%%'.format([]) == '%'
timestamp('2023-03-05T01:02:03.456Z').getDate() == 5
timestamp('2023-03-05T01:02:03.456Z').getDayOfMonth() == 4
timestamp('2023-03-05T01:02:03.456Z').getDayOfWeek() == 0
timestamp('2023-03-05T01:02:03.456Z').getDayOfYear() == 63
timestamp('2023-03-05T01:02:03.456Z').getMonth() == 2
timestamp('2023-03-05T01:02:03.456Z').getMilliseconds() == 456
timestamp('2023-03-05T01:02:03.456Z').getHours('+02:00') == 3
timestamp('2023-03-05T01:02:03.456Z').getHours('Europe/Vienna') == 2
duration('1500ms').getMilliseconds() == 1500
url('http://a/b?x=1&x=2&y=').getQuery() == {'x':['1','2'],'y':['']}
ip('10.0.0.1').isGlobalUnicast()
ip('169.254.0.1').isLinkLocalUnicast()
ip('224.0.0.5').isLinkLocalMulticast()
ip('255.255.255.255').isGlobalUnicast()
ip('fe80::1').isLinkLocalUnicast() && ip('ff02::1').isLinkLocalMulticast()
optional.unwrap([optional.of(1), optional.none()]) == [1]
[optional.of(1), optional.none()].unwrapOpt() == [1]
matches('abc', '^a')
'a\n'.matches('^a$')
'a\n'.matches('^a$|^b$')
'a\nb'.matches('(?m)^a$')
'a$'.matches('^a[$]$')
'a\n'.matches('^a\\z')
'٣'.matches('^\\d$')
'é'.matches('^\\w$')
bytes('abc') == b'abc'
string(b'abc') == 'abc'
[1,2].all(i, v, v == i + 1)
[1,2].exists(i, v, v == 2 && i == 1)
[1,2].exists_one(i, v, v > 0)
{'a':1}.all(k, v, k == 'a' && v == 1)
[1,2].transformList(i, v, v + i) == [1,3]
[1,2].transformList(i, v, i > 0, v) == [2]
{'a':1}.transformMap(k, v, v + 1) == {'a':2}
{'a':1,'b':2}.transformMap(k, v, v > 1, v) == {'b':2}
{'a':1}.transformMapEntry(k, v, {v: k}) == {1:'a'}
optional.of(1).optMap(x, x + 1).value() == 2
optional.none().optMap(x, 1).hasValue()
optional.of(1).optFlatMap(x, optional.of(x)).value() == 1
[?optional.of(1), ?optional.none(), 2] == [1,2]
{?'a': optional.none(), 'b': 1} == {'b':1}
optional.ofNonZeroValue('').hasValue()
optional.ofNonZeroValue([]).hasValue()
string(duration('90m')) == '5400s'
string(timestamp('2020-01-01T00:00:00.5Z')) == '2020-01-01T00:00:00.5Z'
string(1.0) == '1'
string(1e30) == '1e+30'
'a,b,c'.split(',', 2) == ['a','b,c']
'a,b'.split(',', 0) == []
'abab'.replace('a','x',1) == 'xbab'
'hello'.find('l+') == 'll' && 'hello'.findAll('l') == ['l','l'] && 'hello'.findAll('l', 1) == ['l']
1 / 0 == 1
[1][3] == 1
{'a':1}['b'] == 1
-7 / 2 == -3 && -7 % 2 == -1
9223372036854775807 + 1 == 0
quantity('1.5').isInteger() || quantity('1500m') == quantity('1.5')
'ABC'.lowerAscii() == 'abc' && 'ä'.upperAscii() == 'ä'
'abc'.charAt(3) == ''
'abc'.substring(5) == ''
[1,2,3].min() == 1 && [1,2,3].max() == 3
[].min() == 1
[1.5, 2.5].sum() == 4.0
[].sum() == 0
type(1) == int && type('a') == string && type([]) == list
type({}) == map && type(null) == null_type
type(timestamp('2020-01-01T00:00:00Z')) == google.protobuf.Timestamp
has({'a':1}.a) && !has({'a':1}.b)
dyn(1) == dyn(1.0) && dyn(1) == dyn(1u)
dyn('a') == dyn(1)
1 in [1.0, 2.0].map(x, dyn(x))
duration('1h') > duration('59m')
timestamp('2020-01-01T00:00:00Z') + duration('1h') == timestamp('2020-01-01T01:00:00Z')
format.dns1123LabelPrefix().validate('a-').hasValue()
"""
_WORDS: Final = r"""
format.dns1123Label().validate('A_b').orValue(['none'])[0]
format.dns1123Label().validate('').orValue(['none'])[0]
format.dns1123Subdomain().validate('A_b').orValue(['none'])[0]
format.dns1035Label().validate('1b').orValue(['none'])[0]
format.dns1123LabelPrefix().validate('A-').orValue(['none'])[0]
format.dns1123SubdomainPrefix().validate('A.').orValue(['none'])[0]
format.dns1035LabelPrefix().validate('1-').orValue(['none'])[0]
format.qualifiedName().validate('a/b/c').orValue(['none'])[0]
format.qualifiedName().validate('').orValue(['none'])[0]
format.qualifiedName().validate('_').orValue(['none'])[0]
format.labelValue().validate('a b'.trim()).orValue(['none'])[0]
format.labelValue().validate('a_').orValue(['none'])[0]
format.uri().validate('abc').orValue(['none'])[0]
format.uri().validate('/x').orValue(['none'])[0]
format.uuid().validate('x').orValue(['none'])[0]
format.byte().validate('x').orValue(['none'])[0]
format.date().validate('x').orValue(['none'])[0]
format.datetime().validate('x').orValue(['none'])[0]
format.named('labelValue').value().validate('-').orValue(['none'])[0]
'%s'.format([[1,'a',true]])
'%s'.format([{'a':1,'b':'c'}])
'%b %o %X %e'.format([5, 8, 255, 1.5])
'%s'.format([null])
'%s'.format([timestamp('2020-01-01T00:00:00Z')])
'%s'.format([duration('90s')])
'%f %.3f %d'.format([1.5, 2.0, 7])
'%s'.format([type(1)])
'%x'.format(['abc'])
'%e'.format([1234.5])
'%s'.format([1.0])
'%b'.format([true])
'100%% of %s'.format([self])
strings.quote(self + '"')
string(1/0)
"""


def _fields(name: str, rules: list[dict[str, str]]) -> dict[str, Any]:
    text = {"type": "string", "maxLength": 10}
    return {f"{name}{index}": {**text, "x-kubernetes-validations": [rule]} for index, rule in enumerate(rules)}


FIELDS: Final = {
    **_fields("asked", [{"rule": line} for line in _QUESTIONS.strip().split("\n")]),
    **_fields("told", [{"rule": "false", "messageExpression": line} for line in _WORDS.strip().split("\n")]),
    **_fields("failing", [{"rule": "[1][self.size()] == 1", "message": "no such item"}]),
}
DEFINITION: Final = definition(
    "Asked",
    {"type": "object", "properties": {"spec": {"type": "object", "properties": FIELDS}}},
    group=GROUP,
)


@CASES.case("every function gives what it gives on a real server")
async def _(side: Side) -> None:
    spec = dict.fromkeys(FIELDS, "x")
    body = {"kind": "Asked", "apiVersion": f"{GROUP}/v1", "metadata": {"name": "a"}, "spec": spec}
    exchange = Exchange("POST", f"/apis/{GROUP}/v1/namespaces/{{ns}}/askeds", body)
    found = (await side.server.send(side.filled(exchange))).body
    side.note("causes", {cause["field"]: [cause["reason"], cause["message"]] for cause in found["details"]["causes"]})


@pytest.fixture(scope="package")
async def askeds(both: Both) -> None:
    """The kind whose fields are held to the functions."""
    await install(both, DEFINITION)


@pytest.mark.parametrize("case", CASES.params())
async def test_functions_do_what_they_do_on_a_real_server(judge: Judge, askeds: None, case: Case) -> None:
    """By the messages of fields that violate their rules."""
    await judge(case)
