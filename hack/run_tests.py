# SPDX-License-Identifier: Apache-2.0
"""Run pytest; run the tests that failed once more, in a new process, if they are few.

`python hack/run_tests.py ARGUMENT...` passes the arguments to pytest. Two cores serve many API servers at a time, and
one answer may come late. A new process starts new servers: on those of the first run the objects of the failed test
still exist, so that it would fail a second time for that reason. The first failure is printed like any other. The
second run has no time limit (`MK_TESTS_UNTIL`, which skips tests): a failed test that is skipped would seem to pass.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

_SLOWEST: Final = ("--durations=20", "--durations-min=15")
"""What takes long is printed at the end: CI has 90 minutes."""
MOST: Final = 5
"""More failures than these have a cause that a second run would only hide."""


def run_tests(arguments: Sequence[str]) -> int:
    """The exit code of pytest; 0 if at most `MOST` tests failed, and passed in the second run."""
    with tempfile.TemporaryDirectory(prefix="tests-") as folder:
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={folder}", *_SLOWEST, *arguments]
        code = subprocess.call(command)
        failed = _failed(Path(folder))
        if code != pytest.ExitCode.TESTS_FAILED or not failed or len(failed) > MOST:
            return code
        print(f"\nrunning once more, in a new process: {', '.join(failed)}", flush=True)
        # Without `none` pytest would run all tests if it found none of these.
        again = [*command, "-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
        return subprocess.call(again, env={**os.environ, "MK_TESTS_UNTIL": ""})


def _failed(cache: Path) -> list[str]:
    found = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(found.read_text())) if found.exists() else []


if __name__ == "__main__":
    sys.exit(run_tests(sys.argv[1:]))
