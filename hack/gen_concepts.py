#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the output of `mkctl simulate` and `mkctl explain` into the pages of docs/concepts.

A page has the command in the first line of a fenced block, as `$ mkctl simulate …`; the lines below are generated. With
`--check` nothing is written, and a page with other output is an error.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(```console\n\$ (mkctl (?:simulate|explain) [^\n]+)\n)(.*?)(```\n)", re.DOTALL)
WIDTH = "112"


def output(command: str) -> str:
    """The output of the command, without trailing spaces."""
    program, *arguments = shlex.split(command)
    path = Path(sys.executable).parent / program
    run = subprocess.run(
        [path, *arguments], cwd=ROOT, env={**os.environ, "COLUMNS": WIDTH}, capture_output=True, text=True, check=False
    )
    if run.returncode:
        sys.exit(f"{command}: {run.stderr.strip()}")
    return "".join(f"{line.rstrip()}\n" for line in run.stdout.splitlines())


def main() -> int:
    """Write the pages, or compare them."""
    stale = []
    for page in sorted((ROOT / "docs" / "concepts").glob("*.md")):
        text = page.read_text()
        made = BLOCK.sub(lambda match: match[1] + output(match[2]) + match[4], text)
        if made != text:
            stale.append(page.relative_to(ROOT))
            if "--check" not in sys.argv:
                page.write_text(made)
    for page in stale:
        print(f"{page}: {'differs from what mkctl prints' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
