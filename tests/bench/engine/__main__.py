# SPDX-License-Identifier: Apache-2.0
"""Prints the engine's figures: `python -m tests.bench.engine`."""

from __future__ import annotations

import sys

from tests.bench.engine.figures import all_figures


def main() -> int:
    """One line for each figure; exit 1 when a goal is missed."""
    missed = 0
    for measure in all_figures():
        found = measure()
        for figure in found if isinstance(found, list) else [found]:
            missed += not figure.met
            mark = "ok" if figure.met else "MISSED"
            note = f"  ({figure.note})" if figure.note else ""
            print(f"{mark:6} {figure.name}: {figure.value:.2f} {figure.unit}, goal {figure.goal:g}{note}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
