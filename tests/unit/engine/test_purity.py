# SPDX-License-Identifier: Apache-2.0
"""The engine does nothing but decide: no awaiting, no clock, no randomness, no sockets, no files."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import multikueue.engine

ROOT = Path(multikueue.engine.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
FORBIDDEN = {
    "aiohttp",
    "anyio",
    "asyncio",
    "concurrent",
    "kubernetes_asyncio",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
CLOCKS = {"now", "utcnow", "today", "time", "monotonic", "perf_counter"}


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in MODULES])
def test_a_module_imports_nothing_that_awaits_reads_a_clock_or_draws(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported: set[str] = set()
    for node in ast.walk(tree):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith), path
        if isinstance(node, ast.Import):
            imported.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported.add(node.module)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "datetime":
            assert node.attr not in CLOCKS, f"{path}: datetime.{node.attr}"
    assert not {name.split(".")[0] for name in imported} & FORBIDDEN
    ours = {name for name in imported if name.startswith("multikueue.")}
    assert all(name.startswith(("multikueue.core", "multikueue.api", "multikueue.engine")) for name in ours)
    assert "multikueue.core.clock" not in ours
    assert "multikueue.core.backoff" not in ours


def test_importing_the_engine_brings_in_none_of_it_either() -> None:
    code = "import sys; before = set(sys.modules); import multikueue.engine, multikueue.engine.decode;"
    code += "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not set(found.stdout.split()) & {"asyncio", "anyio", "aiohttp", "pydantic", "socket", "ssl", "threading"}


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in MODULES])
def test_a_module_is_short_enough_to_be_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500
