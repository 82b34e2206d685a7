# SPDX-License-Identifier: Apache-2.0
"""`make bench`: every bench of this folder, a line for each figure with its bar, and a file of all figures.

Figures are reported, never asserted: they belong in docs/performance.md, with the machine they were taken on.
`python -m tests.bench NAME…` runs the benches whose names contain one of the arguments, `--baseline FILE` prints the
ratio of each figure to that of a former run. The file is written after each bench, so that a run that was stopped has
what it measured. A bench that fails does not end the others; then the exit code is 1, and 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Final

import tests.bench
from multikueue.core.errors import BadInput
from tests.bench.baseline import Baseline, read_baseline, written
from tests.bench.comparison import Change, compare, compare_figure
from tests.bench.figure import Figure, figures_of
from tests.bench.report import figure_line, gone_line

_PACKAGE: Final = "tests.bench."
_BY_HAND: Final = frozenset({"tests.bench.dispatch", "tests.bench.starting", "tests.bench.__main__"})
_BUILD: Final = Path(__file__).parents[2] / "build"


def benches() -> Iterator[tuple[str, ModuleType]]:
    """Modules under tests/bench that have a `main`, each with its name as it is printed."""
    for found in pkgutil.walk_packages(tests.bench.__path__, _PACKAGE):
        if not found.ispkg and found.name not in _BY_HAND:
            module = importlib.import_module(found.name)
            if hasattr(module, "main"):
                yield found.name.removeprefix(_PACKAGE).removesuffix(".__main__"), module


def main(arguments: list[str]) -> int:
    """Run all, or those that are asked for."""
    options = _options(arguments)
    wanted: list[str] = options.names
    known = dict(benches())
    chosen = {name: known[name] for name in known if not wanted or any(part in name for part in wanted)}
    if not chosen:
        print(f"no bench matches {' '.join(wanted)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    now = datetime.now(UTC)
    target: Path = options.json or _BUILD / f"bench-{now:%Y%m%dT%H%M%SZ}.json"
    try:
        # Before any bench runs: they take many minutes.
        baseline = read_baseline(options.baseline) if options.baseline is not None else None
        _prepare(target, options.baseline)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    if baseline is not None:
        print(f"compared with {options.baseline} ({baseline.taken or 'no time given'})", flush=True)
    run = Run(target=target, taken=_machine(now), baseline=baseline)
    for name, module in chosen.items():
        run.bench(name, module)
    print(run.summary(), flush=True)
    return 1 if run.failed else 0


class Run:
    """The figures so far."""

    def __init__(self, *, target: Path, taken: str, baseline: Baseline | None) -> None:
        self.failed: list[str] = []
        self._target = target
        self._taken = taken
        self._baseline = baseline
        self._figures: dict[str, list[Figure]] = {}
        self._changes: Counter[Change] = Counter()

    def bench(self, name: str, module: ModuleType) -> None:
        """Run one and write what there is."""
        print(f"{name}:", flush=True)
        figures = self._figures.setdefault(name, [])
        try:
            for figure in _measured(module):
                figures.append(figure)
                row = None if self._baseline is None else compare_figure(name, figure, self._baseline)
                print(figure_line(figure, row), flush=True)
        except Exception:  # the others are still worth running, and the exit code is that of a failure
            traceback.print_exc()
            self.failed.append(name)
        else:
            self._compare(name)
        self._target.write_text(written(self._figures, taken=self._taken, failed=self.failed))

    def _compare(self, name: str) -> None:
        if self._baseline is None:
            return
        for row in compare(name, self._figures[name], self._baseline):
            self._changes[row.change] += 1
            if row.change is Change.GONE:
                print(gone_line(row), flush=True)

    def summary(self) -> str:
        """One line about the whole run."""
        figures = [figure for found in self._figures.values() for figure in found]
        parts = [f"{len(figures)} figures", f"{sum(each.met is False for each in figures)} bars missed"]
        if self._baseline is not None:
            parts += [f"{self._changes[change]} {change}" for change in Change if self._changes[change]]
        if self.failed:
            parts.append(f"failed: {', '.join(self.failed)}")
        return f"{', '.join(parts)}; written to {self._target}"


def _measured(module: ModuleType) -> Iterator[Figure]:
    found = module.main()
    yield from figures_of(found, getattr(module, "FIGURES", ())) if isinstance(found, Mapping) else found


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="run the benches")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of benches; all without one")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="print ratios to the figures of this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write (build/bench-TIME.json)")
    return parser.parse_args(arguments)


def _prepare(target: Path, baseline: Path | None) -> None:
    """Make sure that the figures can be written. Raises `BadInput`."""
    if baseline is not None and target.exists() and target.samefile(baseline):
        raise BadInput(f"{target} is the baseline and would be overwritten: name another file for this run")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a"):
            pass
    except OSError as error:
        raise BadInput(f"cannot write figures to {target}: {error.strerror}") from error


def _machine(now: datetime) -> str:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return f"{now:%Y-%m-%d %H:%M} UTC, {cores} cores, load {load:.1f}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
