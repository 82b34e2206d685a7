# SPDX-License-Identifier: Apache-2.0
"""The line that sums up the conformance suite: `cases N, equal N, listed differences N`.

Owns the hook that `tests/conftest.py` installs, where it also hears of tests that ran in other processes.
"""

from __future__ import annotations

from typing import Final

import pytest

PROPERTY: Final = "conformance"
"""The property of a test's report that tells how its case was judged: `equal`, `listed` or `different`."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the line, when cases were judged."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    verdicts = [verdict for report in reports if (verdict := _verdict(report))]
    if verdicts:
        different = f", different {verdicts.count('different')}" if "different" in verdicts else ""
        terminalreporter.write_line(
            f"conformance: cases {len(verdicts)}, equal {verdicts.count('equal')}, "
            f"listed differences {verdicts.count('listed')}{different}"
        )


def _verdict(report: pytest.TestReport) -> str:
    found = [str(value) for name, value in getattr(report, "user_properties", ()) if name == PROPERTY]
    return found[-1] if found else ""
