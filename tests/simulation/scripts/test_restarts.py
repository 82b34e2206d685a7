# SPDX-License-Identifier: Apache-2.0
"""A manager that is killed at any of its writes, stored or not, leaves the end as it would have been."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(900), pytest.mark.attacks]

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("course", ["provisioning"])
def test_a_manager_that_is_killed_at_any_write_comes_to_the_same_end(course: str) -> None:
    command = [sys.executable, "-m", "tests.simulation.scripts.restarts", course]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) > 30, done.stderr
    assert [line for line in lines if line[2] != "''"] == []
