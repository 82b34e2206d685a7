# SPDX-License-Identifier: Apache-2.0
"""Links of documents lead to a file that exists, and to a heading that it has."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"#{1,6} +(.*)")
_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def _documents() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


@cache
def anchors(document: Path) -> frozenset[str]:
    """The anchors of its headings, as GitHub makes them: a second heading of a name has a number."""
    found: dict[str, int] = {}
    for line in _FENCED.sub("", document.read_text()).splitlines():
        heading = _HEADING.match(line)
        if heading is not None:
            shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
            found[name] = found.get(name, 0) + 1
    return frozenset(f"{name}-{number}" if number else name for name, count in found.items() for number in range(count))


@pytest.mark.parametrize("name", _documents())
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    if not document.exists():
        return  # deleted, and not committed yet
    broken = []
    for target in _LINK.findall(_FENCED.sub("", document.read_text())):
        if re.match("[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


def test_anchors_of_headings_are_those_of_github(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("# A `code` heading (2)\n## Twice\n```\n# no heading\n```\n## Twice\n### [A link](x.md), too\n")
    assert anchors(document) == {"a-code-heading-2", "twice", "twice-1", "a-link-too"}
