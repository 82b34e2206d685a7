# SPDX-License-Identifier: Apache-2.0
"""A newcomer's hour: the commands of docs/first-hour.md are played, and each output is compared with the page.

`tests/unit/test_first_hour_page.py` holds the page to the README, and to the failures of a first day with their next
commands. The log with times is in `newcomer.log` of the test's folder, and is printed if the test fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.providers.binaries.release import Binaries
from tests.support.sessions import ROOT, Terminal, steps_of, too_wide

# The commands take more than two minutes, which `make test` does not have.
pytestmark = [pytest.mark.binaries, pytest.mark.attacks, pytest.mark.timeout(900)]


@pytest.fixture
def terminal(tmp_path: Path, kube_binaries: Binaries) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, programs=[kube_binaries.path("kubectl").parent])
    try:
        yield terminal
    finally:
        terminal.end()


def test_every_command_of_the_first_hour_prints_what_the_page_shows(terminal: Terminal, tmp_path: Path) -> None:
    different, wide = [], []
    with (tmp_path / "newcomer.log").open("w") as log:
        for step in steps_of((ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")):
            played = terminal.play(step)
            for each in (log, sys.stdout):
                each.write(f"{played}\n")
            if played.difference:
                different.append(f"$ {step.command}\n{played.difference}")
            wide += [f"$ {step.command}\n{line}" for line in too_wide(played)]
    assert not different, "\n\n".join(different)
    assert not wide, "\n\n".join(wide)
