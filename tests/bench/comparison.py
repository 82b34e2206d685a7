# SPDX-License-Identifier: Apache-2.0
"""Figures beside those of a former run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.bench.baseline import Baseline, FormerFigure
from tests.bench.figure import Better, Figure

TOLERANCE: Final = 1.1
"""Figures of one version differ by as much on one machine in one hour."""


class Change(StrEnum):
    """What became of a figure."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NEW = "new"
    OTHER_UNIT = "other unit"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A row: the figure, None if it is gone; and what it was, None if it is new."""

    name: str
    figure: Figure | None
    former: FormerFigure | None
    change: Change

    @property
    def ratio(self) -> float | None:
        """Now over then; None if one of them is missing, in another unit, or not above zero."""
        if self.figure is None or self.former is None or self.change is Change.OTHER_UNIT:
            return None
        if self.figure.value == self.former.value:
            return 1.0
        return self.figure.value / self.former.value if min(self.figure.value, self.former.value) > 0 else None


def compare(bench: str, figures: Sequence[Figure], baseline: Baseline) -> Iterator[ComparedFigure]:
    """A row for each figure of a bench that ran to its end, then those that only the former run had."""
    for figure in figures:
        yield compare_figure(bench, figure, baseline)
    names = {figure.name for figure in figures}
    for (other, name), former in baseline.figures.items():
        if other == bench and name not in names:
            yield ComparedFigure(name, None, former, Change.GONE)


def compare_figure(bench: str, figure: Figure, baseline: Baseline) -> ComparedFigure:
    """The row of one figure."""
    former = baseline.figures.get((bench, figure.name))
    return ComparedFigure(figure.name, figure, former, _change(figure, former))


def _change(figure: Figure, former: FormerFigure | None) -> Change:
    if former is None:
        return Change.NEW
    if figure.unit != former.unit:
        return Change.OTHER_UNIT
    low, high = sorted((figure.value, former.value))
    if high == low or 0 < high <= low * TOLERANCE:
        return Change.SAME
    grew = figure.value > former.value
    return Change.WORSE if grew is (figure.better is Better.LOWER) else Change.BETTER
