#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the terminal sessions of docs/first-hour.md at 80 columns, on a federation of `mkctl up` in a new folder.

Writes the output of each command below it, and fails if a line of `mkctl` is longer than 80 columns. `--log` writes
nothing, and prints each command with its time, its exit code and its output instead; other pages may be named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from devcluster.providers.binaries import acquire  # noqa: E402 - this file is run as a script
from tests.support.sessions import Terminal, steps_of, too_wide, with_outputs  # noqa: E402

PAGE = ROOT / "docs" / "first-hour.md"


def main() -> int:
    """Play the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("pages", type=Path, nargs="*", default=[PAGE])
    arguments = parser.parse_args()
    binaries = acquire.find()
    programs = [] if binaries is None else [binaries.path("kubectl").parent]
    wide: list[str] = []
    for page in arguments.pages:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="mk-hour-") as home:
            terminal = Terminal(Path(home), programs=programs)
            played = []
            try:
                for step in steps_of(text):
                    played.append(terminal.play(step))
                    if arguments.log:
                        print(played[-1], flush=True)
                    wide += [f"{page.name}: {step.command}: {line}" for line in too_wide(played[-1])]
            finally:
                terminal.end()
        if not arguments.log:
            page.write_text(with_outputs(text, played), encoding="utf-8")
    for line in wide:
        print(f"more than 80 columns: {line}", file=sys.stderr)
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main())
