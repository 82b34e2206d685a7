# SPDX-License-Identifier: Apache-2.0
"""Prints the engine's figures: `python -m tests.bench.engine`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.bench.engine.figures import all_figures
from tests.bench.figure import Figure
from tests.bench.report import figure_line


def main() -> Iterator[Figure]:
    """Each figure as soon as it is known."""
    for measure in all_figures():
        found = measure()
        yield from found if isinstance(found, list) else [found]


def _print() -> int:
    """One line for each figure; exit 1 when a bar is missed."""
    missed = 0
    for figure in main():
        missed += figure.met is False
        print(figure_line(figure), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(_print())
