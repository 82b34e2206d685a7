# SPDX-License-Identifier: Apache-2.0
"""`make bench`: every bench of this folder, one JSON object of figures each.

Figures are reported, never asserted: they belong in docs/performance.md, with the machine they were taken on.
`python -m tests.bench NAME…` runs some of them.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator

import tests.bench

_BY_HAND = frozenset({"tests.bench.dispatch", "tests.bench.starting", "tests.bench.__main__"})


def benches() -> Iterator[str]:
    """Modules under tests/bench that have a `main`."""
    for found in pkgutil.walk_packages(tests.bench.__path__, "tests.bench."):
        if not found.ispkg and found.name not in _BY_HAND:
            yield found.name


def run(wanted: list[str]) -> int:
    """Run all, or those whose name contains one of the arguments."""
    chosen = [name for name in benches() if not wanted or any(word in name for word in wanted)]
    if not chosen:
        print(f"no bench matches {' '.join(wanted)}; there are {', '.join(benches())}", file=sys.stderr)
        return 2
    for name in chosen:
        module = importlib.import_module(name)
        if hasattr(module, "main"):
            print(f"{name.removeprefix('tests.bench.')}:", flush=True)
            figures = module.main()
            if isinstance(figures, dict):  # the others print their own lines
                print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
