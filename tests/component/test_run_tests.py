# SPDX-License-Identifier: Apache-2.0
"""`hack/run_tests.py`, which `make test` runs pytest with: what it runs once more, and what its exit code is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED_SERVER = """
import os, pathlib, pytest

@pytest.fixture(scope="module")
def server():
    return set()

@pytest.mark.parametrize("name", [str(each) for each in range({tests})])
def test_creates_an_object(server, name):
    assert name not in server, "already exists"
    server.add(name)
    seen = pathlib.Path(__file__).with_name("seen-" + name)
    runs = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (runs + 1))
    assert int(name) >= {failing} or runs >= {times}, "too late"
"""


def runs(folder: Path, *, tests: int, failing: int, times: int) -> tuple[int, str]:
    """The exit code and the output, where the first `failing` tests fail so many times."""
    (folder / "test_some.py").write_text(SHARED_SERVER.format(tests=tests, failing=failing, times=times))
    arguments = ["-q", "-n", "2", "-p", "no:anyio", "--rootdir", str(folder), str(folder)]
    command = [sys.executable, str(ROOT / "hack" / "run_tests.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder)
    return done.returncode, done.stdout


def test_a_test_that_fails_once_passes_on_servers_of_its_own(tmp_path: Path) -> None:
    code, output = runs(tmp_path, tests=8, failing=2, times=1)
    assert code == 0, output
    assert "AssertionError: too late" in output, "the first failure is printed"
    assert "2 failed, 6 passed" in output
    assert "running once more, in a new process: test_some.py::test_creates_an_object[0]" in output
    assert "2 passed" in output.rpartition("running once more")[2]


def test_a_test_that_fails_twice_has_failed(tmp_path: Path) -> None:
    code, output = runs(tmp_path, tests=3, failing=1, times=2)
    assert code == 1
    assert "1 failed" in output.rpartition("running once more")[2]


def test_six_failures_are_not_run_again(tmp_path: Path) -> None:
    code, output = runs(tmp_path, tests=8, failing=6, times=1)
    assert code == 1
    assert "running once more" not in output


def test_nothing_is_run_again_where_nothing_failed(tmp_path: Path) -> None:
    code, output = runs(tmp_path, tests=2, failing=0, times=0)
    assert code == 0
    assert "running once more" not in output


def test_no_test_is_begun_when_the_time_is_over() -> None:
    module = "tests/unit/core/test_quantity.py"
    command = [sys.executable, str(ROOT / "hack" / "run_tests.py"), "-q", "-n", "2", module]
    limits = {"over": str(time.time() - 1), "not over": str(time.time() + 1000), "none": ""}
    ends = {}
    for name, until in limits.items():
        environment = {**os.environ, "MK_TESTS_UNTIL": until}
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT, env=environment)
        assert done.returncode == 0, done.stdout
        ends[name] = done.stdout
    assert " skipped in" in ends["over"]
    assert "no time left" in ends["over"]
    assert "passed" not in ends["over"]
    for name in ("not over", "none"):
        assert "skipped" not in ends[name]
        assert " passed in" in ends[name]


def test_a_failed_test_is_run_again_though_the_time_is_over(tmp_path: Path) -> None:
    limits = tmp_path / "limits"
    (tmp_path / "test_some.py").write_text(
        f"import os\n\ndef test_fails():\n    open({str(limits)!r}, 'a').write(os.environ['MK_TESTS_UNTIL'] + ' ')\n"
        "    assert False\n"
    )
    arguments = ["-p", "no:anyio", "--rootdir", str(tmp_path), str(tmp_path)]
    command = [sys.executable, str(ROOT / "hack" / "run_tests.py"), *arguments]
    environment = {**os.environ, "MK_TESTS_UNTIL": "17"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=environment)
    assert done.returncode == 1
    assert limits.read_text() == "17  ", "the second run has no limit"


def test_a_wrong_argument_is_no_failed_test(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "hack" / "run_tests.py"), "--no-such-option"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 4
