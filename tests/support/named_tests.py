# SPDX-License-Identifier: Apache-2.0
"""Ids of tests that documents name: whether there is such a test, and where it runs.

Read from the source, so that a document is checked without a collection of all tests.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_TEST: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_ON_BINARIES: Final = re.compile(
    r"\bbinaries\b|BOTH_PROVIDERS|import hub as hub|import clusters\b|import .*\bcluster\b|both_providers"
)
_STAGE_ON_BINARIES: Final = re.compile(r"test_([a-z]+\d+_)*[jdr]\d")
"""The scenarios that run on real binaries by their letter, as in tests/component/scenarios/conftest.py."""


@cache
def tests_of(file: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The tests that are defined in a file, by name."""
    tree = ast.parse(file.read_text())
    return {node.name: node for node in tree.body if isinstance(node, _TEST) and node.name.startswith("test_")}


def problem_of(test: str) -> str:
    """Why there is no test of that id, a file and a function; empty if there is one."""
    file, _, function = test.partition("::")
    if not (ROOT / file).is_file():
        return f"there is no file {file}"
    return "" if function in tests_of(ROOT / file) else f"{file} has no test {function}"


def may_run_on_binaries(test: str) -> bool:
    """Whether the test, its module or the fixtures of its folder have to do with real binaries."""
    name, _, function = test.partition("::")
    file = ROOT / name
    node = tests_of(file)[function]
    if any(argument.arg == "stage" for argument in node.args.args):
        head, *_ = re.split(r"^(?:async )?def ", file.read_text(), maxsplit=1, flags=re.MULTILINE)
        marks = " ".join(ast.unparse(each) for each in node.decorator_list)
        return "also_on_binaries" in head + marks or bool(_STAGE_ON_BINARIES.match(function))
    texts = (file, file.with_name("conftest.py"), file.parent.parent / "conftest.py")
    return any(_ON_BINARIES.search(each.read_text()) for each in texts if each.is_file())


def runs_in_simulation(test: str) -> bool:
    """Whether the test runs in virtual time."""
    name, _, _ = test.partition("::")
    return "tests.simulation" in (ROOT / name).read_text()
