# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.component.scenarios.table`: play the scenarios and print id, transport, provider and result.

Arguments are pytest's, as `-m binaries` for the binaries; the usual run is the embedded one. Those that wait are
printed last, with what for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from tests.component.scenarios.catalogue import WAITING, listed

_USUAL = ("-m", "not binaries")
_FOLDER = "tests/component"
_PLAYED = (
    "scenarios",
    "kinds/test_scenarios.py",
    "kinds/test_remote_pods.py",
    "kinds/test_remote_app_sets.py",
    "kinds/test_external_frameworks.py",
)
_PROVIDERS = ("embedded", "binaries")


class Results:
    """A pytest plugin that keeps what came of each scenario."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test, or of a preparation that failed."""
        name, _, parameters = report.nodeid.rpartition("::")[2].partition("[")
        transport, _, provider = parameters.rstrip("]").partition("-")
        if transport in _PROVIDERS:
            transport, provider = provider, transport
        if not provider or not (report.when == "call" or report.failed):
            return
        words = name.removeprefix("test_").split("_")
        ids = [word.upper() for word in words if word[:1].isalpha() and word[1:].isdigit()]
        sentence = " ".join(words[len(ids) :])
        result = "passed" if report.passed else "skipped" if report.skipped else "FAILED"
        self.rows.append((" ".join(ids) or "-", sentence, transport, provider, result))


def main(arguments: Sequence[str]) -> int:
    """Play and print; pytest's exit code."""
    results = Results()
    paths = [f"{_FOLDER}/{each}" for each in _PLAYED]
    code = pytest.main([*paths, "-q", "-p", "no:cacheprovider", *(arguments or _USUAL)], plugins=[results])
    order = {each: number for number, each in enumerate(listed())}
    lines = ["", "| id | scenario | transport | provider | result |", "| --- | --- | --- | --- | --- |"]
    rows = sorted(results.rows, key=lambda row: (order.get(row[0].split()[0], len(order)), row))
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", "| id | waits, for |", "| --- | --- |"]
    waiting = sorted(WAITING.items(), key=lambda entry: order[entry[0]])
    lines += [f"| {each} | {reason} |" for each, reason in waiting]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
