# SPDX-License-Identifier: Apache-2.0
"""How a figure is printed: one line with its bar, and with its ratio to a former run."""

from __future__ import annotations

from multikueue.core.printable import printable
from tests.bench.comparison import ComparedFigure
from tests.bench.figure import Better, Figure

_MARKS = {True: "ok", False: "MISSED", None: ""}


def figure_line(figure: Figure, compared: ComparedFigure | None = None) -> str:
    """Such as `ok     taking in a pending workload: 11 µs, bar ≤ 60 µs, 1.02× of 10.8 µs (same)`."""
    text = f"{_MARKS[figure.met]:6} {figure.name}: {_amount(figure.value, figure.unit)}"
    if figure.bar is not None:
        sign = "≤" if figure.better is Better.LOWER else "≥"
        text += f", bar {sign} {_amount(figure.bar, figure.unit)}"
    if compared is not None:
        text += f", {_beside(compared)}"
    return f"{text}  ({figure.note})" if figure.note else text


def gone_line(row: ComparedFigure) -> str:
    """The line of a figure that only the former run had."""
    former = "" if row.former is None else f", was {_amount(row.former.value, row.former.unit)}"
    return f"{'':6} {printable(row.name)}: {row.change}{former}"


def _beside(row: ComparedFigure) -> str:
    if row.former is None:
        return str(row.change)
    was = _amount(row.former.value, row.former.unit)
    ratio = row.ratio
    return f"was {was} ({row.change})" if ratio is None else f"{ratio:.2f}× of {was} ({row.change})"


def _amount(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {printable(unit)}" if unit else number
