# SPDX-License-Identifier: Apache-2.0
"""The plugin as other people use it: the examples of docs/testing.md are run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "testing.md"


def test_the_examples_of_the_documentation_pass_in_a_folder_of_their_own(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(import pytest.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(examples) == 2
    for number, example in enumerate(examples):
        (tmp_path / f"test_{number}.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_an_unknown_provider_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--mk-provider", "clouds"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "embedded" in done.stderr
