# SPDX-License-Identifier: Apache-2.0
"""The table of scenarios in docs/concepts/provisioning.md names tests that exist, on the servers that it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "component" / "provisioning"
PAGE = (TESTS.parents[2] / "docs" / "concepts" / "provisioning.md").read_text()
ROWS = re.findall(r"^\| (\w+) \| ((?:pv|–).*?) \| (pvx.*?) \|$", PAGE, re.MULTILINE)
ON_BOTH = ("@pytest.mark.also_on_binaries", "@QUICK", "@REAL", "@REAL_BOTH")
EMBEDDED = " (embedded)"
"""After an id that is not played on real API servers."""


def decorators() -> dict[str, str]:
    """By id, the line before the test."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.glob("test_*.py")):
        for line, name in re.findall(r"^(.*)\nasync def test_(pvx?\d+)_", path.read_text(), re.MULTILINE):
            found[name] = line
    return found


def test_every_scenario_is_there() -> None:
    assert [row[0] for row in ROWS] == ["retry", "reject", "expire", "revoke", "partition", "cancel"]


@pytest.mark.parametrize(("name", "here", "across"), ROWS, ids=[row[0] for row in ROWS])
def test_a_scenario_is_played_on_the_servers_that_the_table_says(name: str, here: str, across: str) -> None:
    known = decorators()
    for cell in (here, across):
        ids = cell.split(", ")
        for each in ids:
            found = known[each.removesuffix(EMBEDDED)]
            assert (found in ON_BOTH) == (not each.endswith(EMBEDDED)), f"{name}: {each} {found}"
        assert name == "partition" or any(not each.endswith(EMBEDDED) for each in ids), f"{name}: on real API servers"
