#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `mkctl demo` in a terminal of 100 columns and draws what it left on the screen as docs/images/demo.svg."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 100, 60
CONTROL = re.compile(r"\x1b\[(\?25[lh]|\d*[AK])|[\r\n]")
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def recorded(command: list[str]) -> str:
    """Everything that the command writes to its terminal. Ends this program if the command fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    run = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux reports EIO when the last writer has closed the terminal
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    if run.wait():
        sys.exit(f"{' '.join(command)} failed with exit code {run.returncode}")
    return b"".join(parts).decode()


def screen(written: str) -> str:
    """What is left on the screen: rich redraws a live table by moving up and erasing lines, nothing else."""
    lines, row, at = [""], 0, 0
    for control in CONTROL.finditer(written):
        lines[row] += written[at : control.start()]
        at = control.end()
        found = control[0]
        if found == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif found.endswith("A"):
            row = max(0, row - int(found[2:-1] or 1))
        elif found.endswith("K"):
            lines[row] = ""
    lines[row] += written[at:]
    return "\n".join(lines).strip("\n")


def main() -> int:
    """Record the demo and write the picture."""
    left = screen(recorded([str(Path(sys.executable).parent / "mkctl"), "demo"]))
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ make demo", "bold"))
    console.print(Text.from_ansi(left))
    drawn = console.export_svg(title="multikueue", theme=MONOKAI, unique_id="demo")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(FONTS.sub("", drawn))  # no fonts from other sites: the reader's monospace font is used
    print(f"{PICTURE.relative_to(ROOT)}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
