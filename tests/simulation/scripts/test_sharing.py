# SPDX-License-Identifier: Apache-2.0
"""Jobs that share clusters whose own queues admit, by every dispatcher, in virtual time; sharing.py has the scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.scripts.sharing import courses

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    """What was wrong in each course."""
    command = [sys.executable, "-m", "tests.simulation.scripts.sharing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert found, done.stderr
    return found


@pytest.mark.parametrize("name", [course.name for course in courses()])
def test_jobs_that_share_clusters_run(problems: dict[str, str], name: str) -> None:
    assert problems[name] == ""
