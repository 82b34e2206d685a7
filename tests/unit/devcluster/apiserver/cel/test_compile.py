# SPDX-License-Identifier: Apache-2.0
"""The values of expressions, and the errors."""

from __future__ import annotations

import pytest

from devcluster.apiserver.cel.compile import Expression
from devcluster.apiserver.cel.syntax import CelError

_NAMES = frozenset({"self", "oldSelf"})


def _value(text: str, **variables: object) -> object:
    return Expression(text, variables=_NAMES).evaluate(dict(variables))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("true ? 'a' : 'b'", "a"),
        ("false && 1 / 0 == 1", False),
        ("1 / 0 == 1 && false", False),
        ("true || 1 / 0 == 1", True),
        ("1 / 0 == 1 || true", True),
        ("true && 1 / 0 == 1 && 2 / 0 == 1 && false", False),
        ("1 / 0 == 1 || false || true", True),
        ("1 == 1.0", True),
        ("'a' in ['a', 'b']", True),
        ("{'a': 1}.a", 1),
        ("[1, 2, 3].filter(x, x > 1).map(x, x * 2)", [4, 6]),
        ("[1, 2].exists_one(x, x == 2)", True),
        ("'a\\n' == \"a\\n\" && r'\\n' == '\\\\n'", True),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", True),
        ("duration('90s') == duration('1m30s')", True),
        ("{'a': 1}[?'b'].orValue(3)", 3),
        ("{'a': 1}.?a.hasValue()", True),
    ],
)
def test_an_expression_has_its_value(text: str, wanted: object) -> None:
    """Precedence, division toward zero, errors that another operand decides."""
    assert _value(text) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.b", "no such key: b"),
        ("self.list[3]", "index out of bounds: 3"),
        ("1 / 0", "division by zero"),
        ("int('x')", "type conversion error"),
        ("self.a < 'x'", "no such overload"),
        ("self.deep.b.c", "no such key: b"),
        ("self.a.b.c", "no such overload: select b"),
        ("true && self.b && self.c && true", "no such key: b"),
        ("false || self.a || self.b", "expected bool"),
    ],
)
def test_a_failed_expression_has_a_reason(text: str, why: str) -> None:
    """With the text that causes repeat."""
    with pytest.raises(CelError, match=why):
        _value(text, self={"a": 1, "list": [1], "deep": {}})


@pytest.mark.parametrize("text", ["self.", "1 +", "(1", "unknown", "self.sing()", "nothing(1)", "'open", "1 2"])
def test_an_invalid_expression_is_not_compiled(text: str) -> None:
    """Bad syntax, unknown names and functions."""
    with pytest.raises(CelError):
        Expression(text, variables=_NAMES)


def test_has_is_false_for_null() -> None:
    """As the API server has dropped what is null."""
    assert _value("has(self.a) && !has(self.b) && !has(self.c)", self={"a": 0, "b": None})


def test_the_variables_that_an_expression_uses_are_known() -> None:
    """Macros' own variables are not among them."""
    found = Expression("self.all(x, x == oldSelf.y)", variables=_NAMES)
    assert found.names == {"self", "oldSelf"}
