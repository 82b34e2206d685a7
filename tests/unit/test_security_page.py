# SPDX-License-Identifier: Apache-2.0
"""The table of attacks on the security page names a test in each row, and every finding has a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from multikueue.api import constants
from tests.support.named_tests import problem_of
from worker_agent.options import parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations" / "security.md").read_text()
FINDINGS = {str(number) for number in range(1, 14)}


@dataclass(frozen=True)
class Row:
    """One attack."""

    finding: str
    attack: str
    test: str


def rows() -> Iterator[Row]:
    """The rows of the table of attacks."""
    _, found, rest = PAGE.partition("\n## Attacks and protections\n")
    assert found, "the page has no table of attacks"
    for line in re.findall(r"^\| (?!#)(?!-)(.+) \|$", rest, re.MULTILINE):
        cells = line.split(" | ")
        assert len(cells) == 5, f"expected five cells: {line}"
        if not set(cells[0]) <= {"-", "|"}:
            yield Row(cells[0], cells[2], cells[4])


@pytest.mark.parametrize("row", [row for row in rows() if not row.test.startswith("TBD")], ids=lambda row: row.attack)
def test_the_test_of_an_attack_exists(row: Row) -> None:
    assert problem_of(row.test) == ""


def test_every_attack_has_a_test() -> None:
    # A row may say TBD-NUMBER only until the work on that finding is merged.
    assert [f"{row.test}: {row.attack}" for row in rows() if row.test.startswith("TBD")] == []


def test_every_finding_has_a_row() -> None:
    assert FINDINGS - {row.finding for row in rows()} == set()
    assert len(list(rows())) > 40


def test_every_annotation_and_flag_of_a_policy_is_on_the_page() -> None:
    annotations = (
        constants.ALLOWED_NAMESPACES_ANNOTATION,
        constants.DENIED_NAMESPACES_ANNOTATION,
        constants.ALLOWED_SERVICE_ACCOUNTS_ANNOTATION,
        constants.POD_SECURITY_ANNOTATION,
    )
    flags = re.findall(r"--[a-z]+-(?:namespaces|service-accounts|security)\b", parser().format_help())
    assert len(set(flags)) == 4
    assert [name for name in (*annotations, *flags, "--namespace") if f"`{name}" not in PAGE] == []
