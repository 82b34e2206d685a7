# SPDX-License-Identifier: Apache-2.0
"""Messages in expressions: syntax, types and values; and what is too long, too deep or too expensive."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.apiserver.cel import checker
from devcluster.apiserver.cel.budget import LIMITED, limited
from devcluster.apiserver.cel.compile import Expression
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.types import DYN
from devcluster.apiserver.cel.values import CelMessage

NAMES = frozenset({"object"})


def value(text: str, **variables: Any) -> Any:
    return Expression(text, variables=NAMES).evaluate(dict(variables))


def problem(text: str, *, patches: bool = True) -> str:
    with pytest.raises(CelError) as caught:
        checker.check(text, {"object": DYN}, patches=patches)
    return str(caught.value).splitlines()[0]


def test_a_message_has_its_fields() -> None:
    found = value("Object{spec: Object.spec{replicas: 3, ?none: object.?x, ?some: object.?y},}", object={"y": 1})
    assert found == CelMessage("Object", {"spec": CelMessage("Object.spec", {"replicas": 3, "some": 1})})
    assert value("Object{}") == value("Object{,}") == CelMessage("Object", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Object{a: 'x'}.a", "x"), ("has(Object{a: 1}.a)", True), ("has(Object{a: 1}.b)", False)],
)
def test_fields_can_be_selected(text: str, expected: object) -> None:
    checker.check(text, {}, patches=True)
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Object{a: 1}", "Object"),
        ("Object.a.b{}", "Object.a.b"),
        ("[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a'), value: 1}]", "list(JSONPatch)"),
        ("object.x ? Object{} : Object{a: 1}", "Object"),
        ("Object{a: 1}.a", "dyn"),
    ],
)
def test_types_of_messages(text: str, kind: str) -> None:
    assert str(checker.check(text, {"object": DYN}, patches=True).type) == kind


@pytest.mark.parametrize("text", ["Object{}", "jsonpatch.escapeKey('a')"])
def test_only_patches_know_messages_and_their_functions(text: str) -> None:
    checker.check(text, {}, patches=True)
    assert "undeclared reference" in problem(text, patches=False)


def test_keys_are_escaped() -> None:
    assert value("jsonpatch.escapeKey('a/b~c~1')") == "a~1b~0c~01"


def test_problems_of_messages() -> None:
    assert problem("Thing{}") == "ERROR: <input>:1:6: undeclared reference to 'Thing' (in container '')"
    assert problem("int{}") == "ERROR: <input>:1:4: 'int' is not a message type"
    assert problem("object{}") == "ERROR: <input>:1:7: 'dyn' is not a type"
    assert "expected type of field 'op' is 'string' but provided type is 'int'" in problem("JSONPatch{op: 1}")
    assert "expected type 'optional_type(int)' but found 'int'" in problem("Object{?a: 1}")
    assert problem("Object{a}").endswith("mismatched input '}' expecting ':'")
    assert problem("Object{a: 1 b: 2}").endswith("mismatched input 'b' expecting {'}', ','}")


def test_expressions_that_are_too_long_or_too_deep() -> None:
    assert problem("'" + "x" * 100_000 + "'").endswith("size: 100002, limit 100000")
    assert problem("(" * 300 + "1" + ")" * 300).endswith("expression recursion limit exceeded: 250")
    assert problem("1" + " + 1" * 300).endswith("max recursion depth exceeded")
    assert str(checker.check("-" * 300 + "1", {}).type) == "int"


def test_a_budget_is_for_one_evaluation() -> None:
    loop = Expression("object.all(a, object.all(b, a == b))", variables=NAMES | {LIMITED})
    few, many = {"object": [1] * 100}, {"object": [1] * 1000}
    for _ in range(20):
        with limited(few):
            assert loop.evaluate(few) is True
    with limited(many), pytest.raises(CelError, match="cost limit exceeded"):
        loop.evaluate(many)
