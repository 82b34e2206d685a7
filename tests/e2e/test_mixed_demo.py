# SPDX-License-Identifier: Apache-2.0
"""`mkctl demo --kinds`: jobs of several kinds run once each on the workers of a whole federation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Most of a minute, which `make test` does not have.
pytestmark = pytest.mark.attacks
_SECONDS = 240.0


def test_a_demo_of_every_kind_runs_each_job_once_and_leaves_nothing(tmp_path: Path) -> None:
    arguments = [str(Path(sys.executable).with_name("mkctl")), "demo", "--kinds", "--jobs", "12"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "12 jobs ran exactly once each" in done.stdout
    for kind in ("JobSet", "PyTorchJob", "RayJob", "Pod"):
        assert f"{kind} team-a/" in done.stdout
    assert list((tmp_path / "multikueue").iterdir()) == []
