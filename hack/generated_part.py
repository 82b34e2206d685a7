# SPDX-License-Identifier: Apache-2.0
"""The generated part of a page, between two comments: writes it, or checks that it is what would be written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class GeneratedPart:
    """Where the part is, and which script writes it."""

    page: Path
    begin: str
    end: str
    script: str

    def main(self, arguments: Sequence[str], *, problems: Iterable[str], text: Callable[[], str]) -> int:
        """Write the part, or check it with `--check`; nothing is written if there are problems. The exit code."""
        found = list(problems)
        old = self.page.read_text(encoding="utf-8")
        before, _, rest = old.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not end:
            found.append(f"{self.page.relative_to(_ROOT)} lacks the lines {self.begin.strip()} and {self.end.strip()}")
        new = f"{before}{self.begin}\n{text()}\n{self.end}{after}"
        if not found and "--check" in arguments and new != old:
            found.append(f"{self.page.relative_to(_ROOT)} is stale: run {self.script}")
        for each in found:
            print(each, file=sys.stderr)
        if found:
            return 1
        if "--check" not in arguments:
            self.page.write_text(new, encoding="utf-8")
        return 0
