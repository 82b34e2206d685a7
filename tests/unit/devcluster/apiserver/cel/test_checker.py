# SPDX-License-Identifier: Apache-2.0
"""Type checks: accepted expressions can be evaluated, and errors have positions."""

from __future__ import annotations

from typing import Final

import pytest

from devcluster.apiserver.cel.checker import check
from devcluster.apiserver.cel.costs import estimate
from devcluster.apiserver.cel.library.functions import FUNCTIONS, METHODS
from devcluster.apiserver.cel.library.libraries import LIBRARIES
from devcluster.apiserver.cel.signatures import signatures
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.schema.declared import declared

_TEXT: Final = {"type": "string", "maxLength": 10}
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "a": _TEXT,
        "l": {"type": "array", "maxItems": 5, "items": _TEXT},
        "e": {"type": "array", "items": _TEXT},
    },
}


def test_every_function_with_a_signature_can_be_called() -> None:
    """Otherwise an accepted rule could not be evaluated."""
    for name, forms in signatures().items():
        library, _, inner = name.rpartition(".")
        for form in forms:
            if name[0] in "_!@-":
                continue
            known = METHODS if form.is_method else LIBRARIES if library else FUNCTIONS
            assert ((library, inner) if library else name) in known, name


def test_errors_have_positions() -> None:
    """All errors, with their lines."""
    kind = declared(_SCHEMA)
    assert kind is not None
    with pytest.raises(CelError) as caught:
        check("self.a == 1 &&\n  self.q", {"self": kind})
    assert str(caught.value) == (
        "ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(string, int)'\n"
        " | self.a == 1 &&\n | .......^\n"
        "ERROR: <input>:2:7: undefined field 'q'\n |   self.q\n | ......^"
    )


@pytest.mark.parametrize(
    ("rule", "cost"),
    [
        ("self.l.all(i, self.l.exists_one(j, i == j))", 3 + 5 * (3 + 4 + 5 * (2 + 2 + 4))),
        ("self.?a.optMap(x, x).hasValue()", None),
    ],
    ids=["a loop in a loop", "an unmeasured function"],
)
def test_rules_cost_what_their_lists_can_hold(rule: str, cost: int | None) -> None:
    """By the limits of the schema; an unknown cost is no error."""
    kind = declared(_SCHEMA)
    assert kind is not None
    assert estimate(check(rule, {"self": kind}), kind) == cost
