# SPDX-License-Identifier: Apache-2.0
"""Every scenario of docs/spec/multikueue.md §2: where it is tested, or what it waits for.

Owns the ids, which are read from the reference itself, the names of the tests that claim them, and the reasons of those
that nothing can be tested of yet. `test_catalogue.py` holds that each id is one or the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
REFERENCE: Final = ROOT / "docs" / "spec" / "multikueue.md"
FOLDERS: Final = (
    "component/scenarios",
    "component/kinds",
    "component/dispatch",
    "unit/dispatch",
    "unit/manager",
    "e2e",
)
"""Of tests/: where names begin with ids."""

_ID: Final = re.compile(r"(?<![\w.#-])([A-Z]\d{1,2})\b")
_TEST: Final = re.compile(r"^ *(?:async )?def test_((?:[a-z]\d{1,2}_)+)", re.MULTILINE)

WAITING: Final = {
    "M1": "it is about state shared by managers in one Go process; here a manager is a process or holds its own state",
}


def listed() -> list[str]:
    """The ids of the reference, in its order."""
    text = REFERENCE.read_text()
    section = text[text.index("## 2.1 ") : text.index("## 2.4 ")]
    found: dict[str, None] = {}
    for line in section.splitlines():
        # A scenario begins a list, or follows a dot, a semicolon, a comma or another one; elsewhere it is referred to.
        if not line.startswith("#"):
            found.update(dict.fromkeys(_ID.findall(line)))
    return [each for each in found if each != "K8"]


def claimed() -> dict[str, list[str]]:
    """The tests whose names begin with each id."""
    found: dict[str, list[str]] = {}
    for path, ids in _claims():
        for each in ids:
            found.setdefault(each, []).append(path)
    return found


def _claims() -> Iterator[tuple[str, list[str]]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
            for match in _TEST.finditer(path.read_text()):
                yield str(path.relative_to(ROOT)), match.group(1).rstrip("_").upper().split("_")
