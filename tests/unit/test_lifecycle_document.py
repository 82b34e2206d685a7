# SPDX-License-Identifier: Apache-2.0
"""docs/reference/lifecycle.md has rows for every section about the lifecycle, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SPEC = TESTS.parent / "docs" / "spec"
PAGE = (TESTS.parent / "docs" / "reference" / "lifecycle.md").read_text()
ROWS = [
    (row[0], row[1], row[2]) for row in re.findall(r"^\| ([EK][\d.]+-\d+) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
]
NOT_YET = "none: "
"""What stands before a reason in a row that has no test."""


def sections() -> list[str]:
    """E7.x of the engine's specification, and the sections of the API's that are about the lifecycle."""
    engine = re.findall(r"^### (7\.\d+) ", (SPEC / "engine.md").read_text(), re.MULTILINE)
    api = re.findall(r"^### (\d\.\d+) ", (SPEC / "kueue-api.md").read_text(), re.MULTILINE)
    wanted = {"5.1", "5.2", "5.4", *(f"9.{number}" for number in (*range(7, 18), *range(22, 25)))}
    return [f"E{each}" for each in engine] + [f"K{each}" for each in api if each in wanted]


def test_every_section_has_rows_numbered_in_order() -> None:
    found: dict[str, list[int]] = {}
    for row, _, _ in ROWS:
        section, _, number = row.rpartition("-")
        found.setdefault(section, []).append(int(number))
    assert list(found) == sections()
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in found.values())
    assert len(ROWS) == PAGE.count("\n| ") - 1, "a row that is not read"


@pytest.mark.parametrize(("row", "tests"), [(row, tests) for row, _, tests in ROWS], ids=[row for row, _, _ in ROWS])
def test_a_row_names_tests_that_exist_or_why_there_is_none(row: str, tests: str) -> None:
    if tests.startswith(NOT_YET):
        assert len(tests) > len(NOT_YET)
        return
    for each in tests.split("<br>"):
        found = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)(?: \[(.+)\])?`", each)
        assert found is not None, each
        path, name, case = found.groups()
        text = (TESTS / path).read_text()
        assert re.search(rf"def {name}\(", text), each
        assert case is None or f'"{case}"' in text, each
