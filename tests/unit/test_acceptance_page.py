# SPDX-License-Identifier: Apache-2.0
"""docs/reference/acceptance.md names tests that exist, and where they run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.support.named_tests import ROOT, may_run_on_binaries, problem_of, runs_in_simulation

PAGE: Final = (ROOT / "docs" / "reference" / "acceptance.md").read_text()
PLACES: Final = frozenset({"no cluster", "embedded", "binaries", "simulation"})
UNTRUSTED: Final = [*map(str, range(1, 14)), *(f"D{number}" for number in range(1, 7)), "P1", "P2", "P3", "F"]
DROP_IN: Final = [*map(str, range(1, 14)), "S"]


@dataclass(frozen=True)
class Row:
    """One requirement."""

    line: str
    requirement: str
    tests: tuple[str, ...]
    places: tuple[frozenset[str], ...]


def rows(title: str) -> Iterator[Row]:
    """The rows of the table below that title."""
    _, found, rest = PAGE.partition(f"\n## {title}\n")
    assert found, f"the page has no {title}"
    for line in re.findall(r"^\| (.+) \|$", rest.partition("\n## ")[0], re.MULTILINE):
        cells = line.split(" | ")
        assert len(cells) == 4, f"expected four cells: {line}"
        if cells[0] != "#":
            places = tuple(frozenset(each.split(", ")) for each in cells[3].split("<br>"))
            yield Row(cells[0], cells[1], tuple(cells[2].split("<br>")), places)


TABLES: Final = {
    "Tenants and workers that are not trusted": UNTRUSTED,
    "A drop-in for Kueue": DROP_IN,
}
ROWS: Final = [row for title in TABLES for row in rows(title)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.requirement)
def test_the_tests_of_a_requirement_exist(row: Row) -> None:
    assert [problem for test in row.tests if (problem := problem_of(test))] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.requirement)
def test_they_run_where_the_page_says(row: Row) -> None:
    assert len(row.tests) == len(row.places)
    for test, places in zip(row.tests, row.places, strict=True):
        assert places
        assert places <= PLACES
        assert "binaries" not in places or may_run_on_binaries(test), f"{test} has nothing to do with binaries"
        assert ("simulation" in places) is runs_in_simulation(test), test


@pytest.mark.parametrize("title", TABLES)
def test_every_line_has_a_row(title: str) -> None:
    assert list(dict.fromkeys(row.line for row in rows(title))) == TABLES[title]
