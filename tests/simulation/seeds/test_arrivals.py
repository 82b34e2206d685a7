# SPDX-License-Identifier: Apache-2.0
"""Objects come in any order and go again, and the Job after them is started soon. `make simulate` is the long run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SEEDS = 40


def test_whatever_comes_first_the_job_is_started_and_the_queues_show_it_soon_after_the_last() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.seeds.arrivals", "--jobs", "1", "--seeds", str(SEEDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
