# SPDX-License-Identifier: Apache-2.0
"""The cost of an evaluation, so that no expression of a policy or webhook can keep the server busy.

The costs are at most those of a real server: an expression that it evaluates is never cancelled here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Program, Variables
from devcluster.apiserver.codec.documents import JsonValue

LIMITED: Final = "#limited"
"""Marks, in the known names, that evaluations have a budget."""
_BUDGET: Final = "#budget"
_LIMIT: Final = 1_000_000
_ROUND: Final = 3
_TEXT: Final = 10
"""The characters of a result for one unit of cost."""
_GROWING: Final = frozenset({"+", "join", "upperAscii", "lowerAscii", "trim"})


class CostBudget:
    """What is left for one evaluation."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _LIMIT

    def charge(self, cost: int) -> None:
        """Spend some of it. Raises `CelError` if nothing is left."""
        self._left -= cost
        if self._left < 0:
            raise CelError("operation cancelled: actual cost limit exceeded")


@contextmanager
def limited(variables: Variables) -> Iterator[None]:
    """Give an evaluation with these variables a budget of its own."""
    before = variables.get(_BUDGET)
    variables[_BUDGET] = CostBudget()
    try:
        yield
    finally:
        variables[_BUDGET] = before


def charged(program: Program, function: str) -> Program:
    """The program of a call, which costs something."""
    grows = function in _GROWING

    def run(variables: Variables) -> JsonValue:
        budget = variables[_BUDGET]
        budget.charge(1)
        found = program(variables)
        if grows and isinstance(found, str | list):
            budget.charge(len(found) // _TEXT)
        return found

    return run


def charge_round(variables: Variables) -> None:
    """Charge one round of a loop, if the evaluation has a budget."""
    budget = variables.get(_BUDGET)
    if budget is not None:
        budget.charge(_ROUND)
