# SPDX-License-Identifier: Apache-2.0
"""The pages use the terms of docs/glossary.md, and none of the private words that they replaced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
# The specification quotes Kueue; scenarios.md lists the names of tests.
EXEMPT = {ROOT / "docs" / "reference" / "scenarios.md", *(ROOT / "docs" / "spec").glob("*.md")}
PAGES = [path for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))] if path not in EXEMPT]
PRIVATE = re.compile(
    r"\b(wish(es)?|carriers?|parked|outbox|lineage|set aside|put back|beliefs?|standing|mirror(s|ed)?|stood"
    r"|somebody|nobody|anybody|everybody|goes on|go on|said|heard|hears|for ever)\b",
    re.IGNORECASE,
)
# What a command prints, what a name is, and the name of a test are not prose.
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)|tests/\S+", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_the_private_words(page: Path) -> None:
    prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text())
    found = [
        f"{page.name}:{number}: {word[0]}"
        for number, line in enumerate(prose.splitlines(), 1)
        for word in PRIVATE.finditer(line)
        if "heard from" not in line
    ]
    assert found == []


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    for table in GLOSSARY.read_text().split("\n## ")[1:]:
        terms = re.findall(r"^\| \*\*(.+?)\*\*", table, re.MULTILINE)
        assert terms
        assert terms == sorted(set(terms), key=str.lower)
