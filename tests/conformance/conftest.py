# SPDX-License-Identifier: Apache-2.0
"""The two servers of the conformance suite, shared by all its tests, and the line that sums it up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest

from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.testing.plugin import binaries_provider, kube_binaries
from tests.conformance.harness import Both, Case, servers

__all__ = ["binaries_provider", "kube_binaries"]

Judge: TypeAlias = Callable[[Case], Awaitable[None]]
_PROPERTY = "conformance"


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> None:
    """Both servers and the connections to them are kept from test to test, and grow by what a test needed."""


@pytest.fixture(scope="session")
async def both(binaries_provider: BinariesProvider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """The embedded server and a real one; skips where there are no binaries."""
    async with servers(binaries_provider, folder=tmp_path_factory.mktemp("conformance")) as found:
        yield found


@pytest.fixture
def judge(both: Both, record_property: Callable[[str, object], None]) -> Judge:
    """Plays a case on both servers and fails when they differ."""

    async def play(case: Case) -> None:
        record_property(_PROPERTY, await both.judge(case))

    return play


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """`cases N, equal N, listed differences N`."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    judged = [report for report in reports if "judge" in getattr(report, "keywords", {}) or _verdict(report)]
    if judged:
        verdicts = [_verdict(report) for report in judged]
        line = f"cases {len(judged)}, equal {verdicts.count('equal')}, listed differences {verdicts.count('listed')}"
        terminalreporter.write_line(f"conformance: {line}")


def _verdict(report: pytest.TestReport) -> str:
    return next((str(value) for name, value in getattr(report, "user_properties", ()) if name == _PROPERTY), "")
