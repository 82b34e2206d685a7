# SPDX-License-Identifier: Apache-2.0
"""A figure of a bench: a number with its unit, what it should be, and which way is better.

A bench yields figures, or returns nested values and says in `FIGURES` which of them are figures: one `FigureShape` for
each pattern of names. The name of a nested value is its path, joined by dots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Better(StrEnum):
    """Which of two values is the better one."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Figure:
    """One result; `bar` is what it should be at most, or at least where higher is better."""

    name: str
    value: float
    unit: str = ""
    bar: float | None = None
    note: str = ""
    better: Better = Better.LOWER

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; None without one."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.better is Better.LOWER else self.value >= self.bar


@dataclass(frozen=True, slots=True)
class FigureShape:
    """What the values are whose names match `pattern`, in which `*` is any text."""

    pattern: str
    unit: str
    bar: float | None = None
    better: Better = Better.LOWER


def figures_of(values: Mapping[str, object], shapes: Sequence[FigureShape]) -> Iterator[Figure]:
    """The numbers among nested values, each with the first shape that matches.

    With shapes, numbers that match none are left out; without any, all are figures without a unit.
    """
    for name, value in _numbers(values, ""):
        if not shapes:
            yield Figure(name, value)
            continue
        shape = next((each for each in shapes if fnmatchcase(name, each.pattern)), None)
        if shape is not None:
            yield Figure(name, value, shape.unit, shape.bar, better=shape.better)


def _numbers(values: Mapping[str, object], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value
