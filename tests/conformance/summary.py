# SPDX-License-Identifier: Apache-2.0
"""The table that sums up the conformance suite, and the line below it: `conformance: cases N, equal N, listed …`.

Owns the hook that `tests/conftest.py` installs, where it also hears of tests that ran in other processes. A suite is a
test file; `docs/reference/conformance.md` has the table as a whole run printed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import pytest

PROPERTY: Final = "conformance"
"""The property of a test's report with the result of its case: `equal`, `listed` or `different`."""
_FOLDER: Final = "conformance/"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the table and the line, when cases were judged."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    judged = [(_suite(report.nodeid), verdict) for report in reports if (verdict := _verdict(report))]
    if not judged:
        return
    for row in rows(judged):
        terminalreporter.write_line(row)
    total = Counter(verdict for _, verdict in judged)
    different = f", different {total['different']}" if total["different"] else ""
    terminalreporter.write_line(
        f"conformance: cases {total.total()}, equal {total['equal']}, listed differences {total['listed']}{different}"
    )


def rows(judged: Iterable[tuple[str, str]]) -> list[str]:
    """The table of suites and verdicts."""
    suites: dict[str, Counter[str]] = {}
    for suite, verdict in judged:
        suites.setdefault(suite, Counter())[verdict] += 1
    found = ["| suite | cases | equal | listed differences | different |", "|---|---|---|---|---|"]
    return [*found, *(_row(suite, suites[suite]) for suite in sorted(suites))]


def _row(suite: str, verdicts: Mapping[str, int]) -> str:
    counts = [verdicts.get(verdict, 0) for verdict in ("equal", "listed", "different")]
    return f"| {' | '.join([suite, str(sum(counts)), *map(str, counts)])} |"


def _suite(nodeid: str) -> str:
    path = nodeid.partition("::")[0]
    return path.rpartition(_FOLDER)[2].removesuffix(".py").replace("test_", "")


def _verdict(report: pytest.TestReport) -> str:
    found = [str(value) for name, value in getattr(report, "user_properties", ()) if name == PROPERTY]
    return found[-1] if found else ""
