# SPDX-License-Identifier: Apache-2.0
"""Unit tests lie where the tree says, and the pages that describe the tree name what exists.

`tests/unit/X` has the tests of `multikueue/X`; for the other top-level packages the folder has the package's name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FILES = [path for path in sorted(UNIT.rglob("test_*.py")) if path.parent != UNIT]
FOLDERS = sorted({path.parent for path in FILES})
CODE = re.compile(r"`((?:multikueue|manager|worker_agent|devcluster|hack|tests|deploy)/[\w./-]*)`")
NAMED = re.compile(r"`([\w/]+\.py)`: `([\w.]+)`")
HISTORY = {"CHANGELOG.md"}
THROUGH_OTHERS = {
    "devcluster/apiserver/admission/test_service_webhooks.py",
    "devcluster/apiserver/registry/test_lists.py",
    "engine/cycle/test_fair_sharing.py",
    "simulation/test_classes_and_states.py",
    "simulation/test_devices.py",
    "simulation/test_simulate.py",
}
"""These run their subject through the engine, `mkctl simulate` or a whole API server."""


def subject_of(folder: Path) -> str:
    """What a folder of tests is about, as a path without suffix in the repository."""
    inside = folder.relative_to(UNIT)
    return next((top / inside for top in (Path("multikueue"), Path()) if exists(top / inside)), inside).as_posix()


def exists(path: Path) -> bool:
    """Whether it is a package or a module."""
    return (ROOT / path / "__init__.py").is_file() or (ROOT / path).with_suffix(".py").is_file()


def imported(path: Path) -> set[str]:
    """The modules that a test imports, itself or by what it shares with other tests, as paths without suffix."""
    seen: set[str] = set()
    files = [path, path.parent / "conftest.py"]
    while files:
        file = files.pop()
        new = set(imports(file)) - seen if file.is_file() else set()
        seen |= new
        files += [(ROOT / each).with_suffix(".py") for each in new if each.startswith("tests/")]
    return seen


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.replace(".", "/")
            yield from (f"{node.module}.{each.name}".replace(".", "/") for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name.replace(".", "/") for each in node.names)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(UNIT)))
def test_a_folder_of_unit_tests_is_named_after_a_package_or_a_module(folder: Path) -> None:
    assert exists(Path(subject_of(folder)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(UNIT)))
def test_a_unit_test_has_the_name_of_a_module_or_imports_one_of_its_package(path: Path) -> None:
    if str(path.relative_to(UNIT)) in THROUGH_OTHERS:
        return
    package = subject_of(path.parent)
    name = path.stem.removeprefix("test_")
    assert (
        name == path.parent.name
        or exists(Path(package) / name)
        or any(each == package or each.startswith(f"{package}/") for each in imported(path))
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_paths_that_a_page_names_exist(page: Path) -> None:
    if page.name in HISTORY:
        pytest.skip("names what was there then")
    missing = [path for path in CODE.findall(page.read_text()) if not (ROOT / path).exists()]
    assert missing == []


def test_the_functions_that_the_architecture_page_names_exist() -> None:
    named = NAMED.findall(ARCHITECTURE.read_text())
    assert named
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        for part in name.split("."):
            found = [each for each in ast.iter_child_nodes(tree) if getattr(each, "name", "") == part]
            assert found, f"{path} has no {name}"
            tree = found[0]
