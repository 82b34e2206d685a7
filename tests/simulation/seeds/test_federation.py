# SPDX-License-Identifier: Apache-2.0
"""Seeds hold, and deliberate faults do not get through. `python -m tests.simulation --seeds N` is the long run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.seeds.mutants import MUTANTS

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[3]
SEEDS = 20  # `make simulate` plays 2,000
_LATE = {"lease-ignored": 200}
"""The first seed to play where the ones before are known not to catch the fault."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--jobs", "1", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_whatever_goes_wrong_no_invariant_breaks_and_everything_ends() -> None:
    done = simulate("--seeds", str(SEEDS))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


@pytest.mark.parametrize("work", ["groups", "elastic"])
def test_it_holds_for_pod_groups_and_elastic_jobs(work: str) -> None:
    done = simulate(f"--{work}", "--seeds", str(SEEDS))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


def test_a_seed_has_the_same_timeline_each_time() -> None:
    first, second = (simulate("--replay", "13").stdout for _ in range(2))
    assert len(first.splitlines()) > 20
    assert first == second


@pytest.mark.attacks
@pytest.mark.parametrize("name", [pytest.param(name, id=f"{name} is caught") for name in MUTANTS])
def test_a_deliberate_fault_is_caught_within_500_seeds(name: str) -> None:
    first = _LATE.get(name, 1)
    done = simulate("--mutant", name, "--first", str(first), "--seeds", str(501 - first))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name} is caught by seed" in done.stdout
